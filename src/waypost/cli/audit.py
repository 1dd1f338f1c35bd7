"""`waypost audit`: what was decided and done, and whether the record of it is whole."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any, Final

from waypost.cli.client import Remote, add_action, group, print_json, print_table

_PAGE: Final = 1000


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "audit",
        "show or verify the audit of a running hub",
        "Look at what was decided and done.",
        "waypost audit tail",
    )
    tailing = add_action(
        actions, "tail", tail, "show the latest entries, the newest last", "waypost audit tail --decision deny"
    )
    tailing.add_argument("--limit", type=count, default=20, metavar="N", help="how many entries (default: 20)")
    tailing.add_argument("--decision", choices=("allow", "deny"), help="only those with this decision")
    add_action(actions, "verify", verify, "say whether the audit is as it was written", "waypost audit verify --json")


def count(text: str) -> int:
    """A number that is at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of entries")
    return int(text)


def tail(hub: Remote, given: argparse.Namespace) -> int:
    """Print entries, in the order they were written."""
    entries = list(reversed(_latest(hub, given.limit, given.decision)))
    if given.json:
        print_json(entries)
    else:
        print_table(("TIME", "PRINCIPAL", "CALLER", "CAPABILITY", "DECISION", "OUTCOME", "REASON"), map(_row, entries))
    return 0


def _latest(hub: Remote, limit: int, decision: str | None) -> list[dict[str, Any]]:
    """So many entries, the newest first."""
    entries: list[dict[str, Any]] = []
    before: str | None = None
    while len(entries) < limit:
        page = hub.get("audit", limit=min(_PAGE, limit - len(entries)), decision=decision, before=before)
        entries += page["entries"]
        before = page["next"]
        if before is None:
            break
    return entries


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    time = datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    reason = "" if entry.get("action") == "begin" else entry.get("reason", "")
    outcome = entry.get("outcome") or entry.get("action", "")
    return time, entry["principal"], entry["callerType"], entry["capability"], entry["decision"], outcome, reason


def verify(hub: Remote, given: argparse.Namespace) -> int:
    """Print what is wrong; anything is a failure."""
    verdict = hub.get("audit/verify")
    if given.json:
        print_json(verdict)
    elif verdict["problems"]:
        sys.stdout.writelines(f"{problem}\n" for problem in verdict["problems"])
    else:
        sys.stdout.write(f"The audit is whole: {verdict['entries']} entries in {verdict['chains']} chains.\n")
    return 1 if verdict["problems"] else 0
