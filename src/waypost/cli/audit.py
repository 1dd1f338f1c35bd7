"""`waypost audit`: the audit of a running hub, and whether it is intact."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from typing import Final

from waypost.cli.arguments import parse_count
from waypost.cli.client import HubClient, hub_command
from waypost.cli.command import Argument, Group
from waypost.cli.output import Columns, Output, Row, format_table


def _time(entry: Row) -> str:
    return datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


_COLUMNS: Final[Columns] = {
    "TIME": _time,
    "PRINCIPAL": "principal",
    "CALLER": "callerType",
    "CAPABILITY": "capability",
    "DECISION": "decision",
    "OUTCOME": lambda entry: entry.get("outcome") or entry.get("action"),
    "REASON": lambda entry: "" if entry.get("action") == "begin" else entry.get("reason"),
}


def tail(hub: HubClient, args: Namespace) -> Output:
    """Show the latest entries in the order they were written."""
    entries = hub.get_pages("audit", "entries", args.limit, decision=args.decision)[::-1]
    return Output(entries, format_table(_COLUMNS, entries))


def verify(hub: HubClient, _args: Namespace) -> Output:
    """Check every entry; any problem fails the command."""
    verdict = hub.get("audit/verify")
    if verdict["problems"]:
        return Output(verdict, "\n".join(verdict["problems"]), status=1)
    return Output(verdict, f"The audit is intact: {verdict['entries']} entries in {verdict['chains']} chains.")


COMMAND: Final = Group(
    "Show and verify the audit of a running hub.",
    "waypost audit tail",
    {
        "tail": hub_command(
            tail,
            "Show the latest entries, the newest last.",
            "waypost audit tail --decision deny",
            Argument("--limit", type=parse_count, default=20, metavar="N", help="how many entries (default: 20)"),
            Argument("--decision", choices=("allow", "deny"), help="only entries with this decision"),
        ),
        "verify": hub_command(verify, "Check that no entry was changed or removed.", "waypost audit verify --json"),
    },
)
