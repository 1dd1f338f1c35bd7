"""`waypost runs`: the workflow instances of a running hub."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Final

from waypost.cli.client import HubClient, hub_command, quote_segment
from waypost.cli.command import (
    Argument,
    Columns,
    Group,
    Output,
    Row,
    WrongUsage,
    format_table,
    parse_count,
    parse_json,
    to_second,
)

STATUSES: Final = (
    *("waiting_for_action", "waiting_for_approval", "waiting_for_workflow", "executing", "going_on"),
    *("unknown_outcome", "chain_failed", "succeeded", "failed", "cancelled", "timed_out"),
)
"""What instances are doing or waiting for, or how they ended."""


def _agents(row: Row) -> str:
    """Who caused a transition, and who approved it."""
    agreed = ", ".join(f"{one['by']} ({one['via']})" for one in row.get("approvals") or ())
    resolved_by = (row.get("executor") or {}).get("resolvedBy")
    principal: str = row.get("decidedBy") or resolved_by or row["by"]
    return f"{principal}, approved by {agreed}" if agreed else principal


_COLUMNS: Final[Columns] = {
    "ID": "workflowId",
    "WORKFLOW": "definitionId",
    "STATE": "state",
    "VERSION": "version",
    "STATUS": "status",
    "PRINCIPAL": "principal",
    "STARTED": to_second("startedAt"),
}
_HISTORY_COLUMNS: Final[Columns] = {
    "VERSION": "version",
    "TIME": to_second("at"),
    "TRANSITION": "transition",
    "FROM": "from",
    "TO": "to",
    "BY": _agents,
    "OUTCOME": "outcome",
}


def list_newest(hub: HubClient, args: Namespace) -> Output:
    """List instances, the newest first."""
    runs = hub.get_pages(
        "runs",
        "runs",
        args.limit,
        definition=args.definition,
        principal=args.principal,
        status=args.status,
        all="true" if args.all else None,
    )
    return Output(runs, format_table(_COLUMNS, runs))


def show(hub: HubClient, args: Namespace) -> Output:
    """Show an instance and its history."""
    run = hub.get(_path(args))
    lines = [_summarize(run), f"context: {json.dumps(run['context'], ensure_ascii=False)}"]
    lines += [f"{key}: {run[key].get('message', run[key])}" for key in ("error", "lastError") if run.get(key)]
    return Output(run, "\n".join([*lines, format_table(_HISTORY_COLUMNS, run["history"])]))


def cancel(hub: HubClient, args: Namespace) -> Output:
    """Cancel an instance."""
    run = hub.post(f"{_path(args)}/cancel", {"reason": args.reason})
    return Output(run, f"{args.id} is cancelled in {run['state']}.")


def resolve(hub: HubClient, args: Namespace) -> Output:
    """Resolve an unknown outcome; a transition that fails again fails the command."""
    if args.output is not None and args.how != "succeeded":
        raise WrongUsage(f"--output goes with --as succeeded, not with --as {args.how}.")
    run = hub.post(f"{_path(args)}/resolve", {"as": args.how, "output": args.output})
    error = run.get("error")
    return Output(run, _summarize(run), f"waypost: {error['message']}" if error else "", status=1 if error else 0)


def _path(args: Namespace) -> str:
    return f"runs/{quote_segment(args.id)}"


def _summarize(run: Row) -> str:
    instance = f"{run['workflowId']} ({run['definitionId']})"
    return f"{instance} is in {run['state']}, version {run['version']}: {run['status']}"


_ID: Final = Argument("id", metavar="ID", help="the instance, such as wf_...")

COMMAND: Final = Group(
    "Manage the workflow instances of a running hub.",
    "waypost runs list --status waiting_for_approval",
    {
        "list": hub_command(
            list_newest,
            "List workflow instances, the newest first.",
            "waypost runs list --definition release",
            Argument("--definition", metavar="ID", help="only instances of this workflow"),
            Argument("--principal", metavar="ID", help="only instances that this principal started"),
            Argument(
                "--status",
                choices=STATUSES,
                metavar="STATUS",
                help=f"only instances with this status: {', '.join(STATUSES)}",
            ),
            Argument("--all", action="store_true", help="also single calls through the gateway that wait for nothing"),
            Argument("--limit", type=parse_count, default=20, metavar="N", help="how many (default: 20)"),
        ),
        "show": hub_command(
            show, "Show the state and the history of an instance.", "waypost runs show wf_... --json", _ID
        ),
        "cancel": hub_command(
            cancel,
            "Cancel an instance.",
            "waypost runs cancel wf_... --reason 'not needed'",
            _ID,
            Argument("--reason", default="", help="why, for the record"),
        ),
        "resolve": hub_command(
            resolve,
            "Resolve a transition whose outcome is unknown.",
            "waypost runs resolve wf_... --as succeeded --output '{\"ok\": true}'",
            _ID,
            Argument(
                "--as", dest="how", required=True, choices=("retry", "succeeded", "failed"), help="how to resolve it"
            ),
            Argument("--output", type=parse_json, metavar="JSON", help="with --as succeeded: the executor's output"),
        ),
    },
)
