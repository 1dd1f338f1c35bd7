"""`waypost runs`: the workflow instances of a running hub."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from waypost.cli.arguments import WrongUsage
from waypost.cli.client import Remote, add_action, group, print_json, print_table, segment

STATUSES: Final = (
    *("waiting_for_action", "waiting_for_approval", "waiting_for_workflow", "executing", "going_on"),
    *("unknown_outcome", "chain_failed", "succeeded", "failed", "cancelled", "timed_out"),
)
"""What instances are doing or waiting for, or how they ended."""

_PAGE: Final = 1000


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "runs",
        "list, show, cancel or resolve workflow instances of a running hub",
        "Look after the workflow instances of a running hub.",
        "waypost runs list --status waiting_for_approval",
    )
    listing = add_action(
        actions, "list", show_all, "list workflow instances, the newest first", "waypost runs list --definition release"
    )
    listing.add_argument("--definition", metavar="ID", help="only those of a workflow")
    listing.add_argument("--principal", metavar="ID", help="only those that somebody started")
    listing.add_argument(
        "--status", choices=STATUSES, metavar="STATUS", help=f"only those in a status: {', '.join(STATUSES)}"
    )
    listing.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default: 20)")
    showing = add_action(
        actions, "show", show, "show how an instance stands and what happened to it", "waypost runs show wf_... --json"
    )
    _about(showing)
    ending = add_action(
        actions, "cancel", cancel, "end an instance where it stands", "waypost runs cancel wf_... --reason 'not needed'"
    )
    _about(ending)
    ending.add_argument("--reason", default="", help="why, for the record")
    resolving = add_action(
        actions,
        "resolve",
        resolve,
        "say what became of a transition whose outcome nobody knows",
        "waypost runs resolve wf_... --as succeeded --output '{\"ok\": true}'",
    )
    _about(resolving)
    resolving.add_argument(
        "--as", dest="how", required=True, choices=("retry", "succeeded", "failed"), help="what became of it"
    )
    resolving.add_argument("--output", type=data, metavar="JSON", help="with --as succeeded: what it gave")


def _about(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="the instance, such as wf_...")


def count(text: str) -> int:
    """A number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return number


def data(text: str) -> Any:
    """A value written as JSON."""
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON") from None


def show_all(hub: Remote, given: argparse.Namespace) -> int:
    """Print the newest instances."""
    runs = _pages(hub, given)
    if given.json:
        print_json(runs)
        return 0
    rows = [
        (
            run["workflowId"],
            run["definitionId"],
            run["state"],
            str(run["version"]),
            run["status"],
            run["principal"],
            run.get("startedAt", "")[:19],
        )
        for run in runs
    ]
    print_table(("ID", "WORKFLOW", "STATE", "VERSION", "STATUS", "PRINCIPAL", "STARTED"), rows)
    return 0


def _pages(hub: Remote, given: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    before = None
    while len(found) < given.limit:
        page = hub.get(
            "runs",
            limit=min(_PAGE, given.limit - len(found)),
            before=before,
            definition=given.definition,
            principal=given.principal,
            status=given.status,
        )
        found += page["runs"]
        before = page["next"]
        if before is None:
            break
    return found


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print an instance and its history."""
    run = hub.get(f"runs/{segment(given.id)}")
    if given.json:
        print_json(run)
        return 0
    sys.stdout.write(f"{_told(run)}\ncontext: {json.dumps(run['context'], ensure_ascii=False)}\n")
    for name in ("error", "lastError"):
        if run.get(name):
            sys.stdout.write(f"{name}: {run[name].get('message', run[name])}\n")
    rows = [
        (
            str(row["version"]),
            row["at"][:19],
            row["transition"],
            str(row["from"] or ""),
            str(row["to"] or ""),
            _by(row),
            row.get("outcome", ""),
        )
        for row in run["history"]
    ]
    print_table(("VERSION", "TIME", "TRANSITION", "FROM", "TO", "BY", "OUTCOME"), rows)
    return 0


def _by(row: dict[str, Any]) -> str:
    """Who took a transition, and which people agreed to it."""
    agreed = ", ".join(f"{one['by']} ({one['via']})" for one in row.get("approvals") or ())
    who: str = row.get("decidedBy") or row["by"]
    return f"{who}, approved by {agreed}" if agreed else who


def cancel(hub: Remote, given: argparse.Namespace) -> int:
    """Say that it has ended."""
    run = hub.post(f"runs/{segment(given.id)}/cancel", {"reason": given.reason})
    if given.json:
        print_json(run)
    else:
        sys.stdout.write(f"{given.id} is cancelled in {run['state']}.\n")
    return 0


def resolve(hub: Remote, given: argparse.Namespace) -> int:
    """Say how the instance stands now; a transition that failed again fails."""
    if given.output is not None and given.how != "succeeded":
        raise WrongUsage(f"--output goes with --as succeeded, not with --as {given.how}.")
    wanted = {"as": given.how}
    if given.output is not None:
        wanted["output"] = given.output
    run = hub.post(f"runs/{segment(given.id)}/resolve", wanted)
    failed = run.get("error")
    if given.json:
        print_json(run)
    else:
        sys.stdout.write(f"{_told(run)}\n")
        if failed:
            sys.stderr.write(f"waypost: {failed['message']}\n")
    return 1 if failed else 0


def _told(run: dict[str, Any]) -> str:
    return (
        f"{run['workflowId']} ({run['definitionId']}) is in {run['state']}, version {run['version']}: {run['status']}"
    )
