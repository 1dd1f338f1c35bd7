"""`waypost keys`: making, listing and revoking keys of a running hub."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from waypost.cli.arguments import key_id, name
from waypost.cli.client import Remote, add_action, group, print_json, print_table, segment

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([mhdw])")


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "keys",
        "make, list or revoke keys of a running hub",
        "Look after the keys of a running hub.",
        "waypost keys create --id ci --role agent",
    )
    making = add_action(
        actions,
        "create",
        create,
        "make a key, which is shown once",
        "waypost keys create --id ci --role agent --permission deploy --expires 30d",
    )
    making.add_argument("--id", type=key_id, required=True, help="whose key it is")
    for right in ("role", "permission", "scope"):
        told = f"a {right} it has; may be repeated"
        making.add_argument(f"--{right}", type=name, action="append", default=[], help=told)
    making.add_argument("--expires", type=moment, metavar="WHEN", help="30d, 12h or 2030-01-01 (default: never)")
    add_action(actions, "list", show, "list all keys, without the keys themselves", "waypost keys list --json")
    revoking = add_action(actions, "revoke", revoke, "refuse a key from now on", "waypost keys revoke ci")
    revoking.add_argument("id", metavar="ID", help="whose key it is")


def moment(text: str) -> datetime:
    """When something ends: so much time from now, or a date."""
    span = _SPAN.fullmatch(text)
    if span is not None:
        return datetime.now(UTC) + timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a time span such as 30d nor a date") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def create(hub: Remote, given: argparse.Namespace) -> int:
    """Print the key."""
    wanted = {"id": given.id, "roles": given.role, "permissions": given.permission, "scopes": given.scope}
    if given.expires is not None:
        wanted["expiresAt"] = given.expires
    made = hub.post("keys", wanted)
    if given.json:
        print_json(made)
    else:
        sys.stdout.write(made["key"] + "\n")
        sys.stderr.write("Keep it: it is not shown again.\n")
    return 0


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print what is known of every key."""
    keys = hub.get("keys")["keys"]
    if given.json:
        print_json(keys)
    else:
        rows = [
            (
                key["id"],
                key["status"],
                key["source"],
                ",".join(key["roles"]),
                ",".join(key["permissions"]),
                ",".join(key["scopes"]),
                (key["expiresAt"] or "never")[:19],
            )
            for key in keys
        ]
        print_table(("ID", "STATUS", "SOURCE", "ROLES", "PERMISSIONS", "SCOPES", "EXPIRES"), rows)
    return 0


def revoke(hub: Remote, given: argparse.Namespace) -> int:
    """Say that it is done."""
    revoked = hub.delete(f"keys/{segment(given.id)}")
    if given.json:
        print_json(revoked)
    else:
        sys.stdout.write(f"The key of {given.id} is revoked.\n")
    return 0
