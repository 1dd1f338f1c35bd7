"""`waypost approvals`: workflow transitions that wait for a person's approval in a running hub."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Final

from waypost.cli.client import HubClient, hub_command, list_command, quote_segment
from waypost.cli.command import Argument, Command, Group, Output, Row, to_second

MAX_PRESENTED_CHARACTERS: Final = 120


def _shorten(approval: Row) -> str:
    text = json.dumps(approval["presents"], ensure_ascii=False)
    return text if len(text) <= MAX_PRESENTED_CHARACTERS else f"{text[:MAX_PRESENTED_CHARACTERS]}…"


def _decide(verb: str, description: str) -> Command:
    """The action that approves or rejects."""

    def run(hub: HubClient, args: Namespace) -> Output:
        decided = hub.post(f"approvals/{quote_segment(args.id)}/{verb}", {"reason": args.reason, "digest": args.digest})
        missing = decided["missing"]
        outcome = (
            f"needs {missing} more approval{'s' if missing > 1 else ''}" if missing else f"is {decided['decision']}"
        )
        text = (
            f"{args.id} {outcome}; {decided['workflowId']} is in {decided['state']}, "
            f"version {decided['version']}: {decided['status']}"
        )
        error = decided["error"]
        return Output(
            decided, text, f"The decision stands, but the workflow failed: {error['message']}" if error else ""
        )

    return hub_command(
        run,
        description,
        f"waypost approvals {verb} ap_... --reason 'I looked at it'",
        Argument("id", metavar="ID", help="the approval, such as ap_..."),
        Argument("--reason", default="", help="why, for the record"),
        Argument("--digest", help="the digest of what you saw; if it has changed, the decision is refused"),
    )


COMMAND: Final = Group(
    "List and decide pending approvals of a running hub.",
    "waypost approvals approve ap_... --reason 'looks good'",
    {
        "list": list_command(
            "approvals",
            "List pending approvals, the oldest first.",
            "waypost approvals list --json",
            {
                "ID": "id",
                "RUN": "workflowId",
                "WORKFLOW": "definitionId",
                "TRANSITION": "transition",
                "ROLE": "role",
                "EXPIRES": to_second("expiresAt"),
                "QUESTION": "prompt",
                "SHOWN": _shorten,
            },
        ),
        "approve": _decide("approve", "Approve; the transition is taken once enough people have approved."),
        "reject": _decide("reject", "Reject; the instance stays in its state."),
    },
)
