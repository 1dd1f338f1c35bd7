"""`waypost approvals`: what waits for people in a running hub, and what they decide."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from waypost.cli.client import Remote, add_action, group, print_json, print_table, segment

_WIDEST: Final = 120


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "approvals",
        "list, approve or reject what waits for people in a running hub",
        "Decide about what waits for people in a running hub.",
        "waypost approvals approve ap_... --reason 'looks good'",
    )
    add_action(actions, "list", show, "list what waits for people, the oldest first", "waypost approvals list --json")
    for name, action, text in (
        ("approve", approve, "say yes; with enough people saying so, the transition is taken"),
        ("reject", reject, "say no; the instance stays where it is"),
    ):
        command = add_action(actions, name, action, text, f"waypost approvals {name} ap_... --reason 'I looked at it'")
        command.add_argument("id", metavar="ID", help="the approval, such as ap_...")
        command.add_argument("--reason", default="", help="why, for the record")
        command.add_argument("--digest", help="the digest of what you saw; another one is refused")


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print what waits."""
    waiting = hub.get("approvals")["approvals"]
    if given.json:
        print_json(waiting)
        return 0
    rows = [
        (
            one["id"],
            one["workflowId"],
            one["definitionId"],
            one["transition"],
            one["role"],
            one["expiresAt"][:19],
            one["prompt"],
            _short(one["presents"]),
        )
        for one in waiting
    ]
    print_table(("ID", "RUN", "WORKFLOW", "TRANSITION", "ROLE", "EXPIRES", "QUESTION", "SHOWN"), rows)
    return 0


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"


def approve(hub: Remote, given: argparse.Namespace) -> int:
    """Say yes."""
    return _decide(hub, given, "approve")


def reject(hub: Remote, given: argparse.Namespace) -> int:
    """Say no."""
    return _decide(hub, given, "reject")


def _decide(hub: Remote, given: argparse.Namespace, word: str) -> int:
    wanted = {"reason": given.reason, "digest": given.digest}
    decided = hub.post(f"approvals/{segment(given.id)}/{word}", wanted)
    if given.json:
        print_json(decided)
        return 0
    sys.stdout.write(
        f"{given.id} is {decided['decision']}; {decided['workflowId']} is in {decided['state']}, "
        f"version {decided['version']}: {decided['status']}\n"
    )
    if decided["error"]:
        sys.stderr.write(f"What followed went wrong: {decided['error']['message']}\n")
    return 0
