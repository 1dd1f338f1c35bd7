"""`waypost keys`: create, list and revoke keys of a running hub."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from datetime import UTC, datetime, timedelta
from typing import Final

from waypost.cli.client import HubClient, hub_command, list_command, quote_segment
from waypost.cli.command import Argument, Group, Output, parse_key_id, parse_name

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([mhdw])")


def parse_expiry(text: str) -> datetime:
    """When a key expires: a time span from now, or a date."""
    span = _SPAN.fullmatch(text)
    if span is not None:
        return datetime.now(UTC) + timedelta(**{_UNITS[span[2]]: int(span[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is neither a time span such as 30d nor a date") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def create(hub: HubClient, args: Namespace) -> Output:
    """Create a key and print it; the hub keeps only its hash."""
    body = {"id": args.id, "roles": args.role, "permissions": args.permission, "scopes": args.scope}
    if args.expires is not None:
        body["expiresAt"] = args.expires
    created = hub.post("keys", body)
    return Output(created, created["key"], "Store it now: it is not shown again.")


def revoke(hub: HubClient, args: Namespace) -> Output:
    """Revoke a key."""
    return Output(hub.delete(f"keys/{quote_segment(args.id)}"), f"The key of {args.id} is revoked.")


COMMAND: Final = Group(
    "Manage the keys of a running hub.",
    "waypost keys create --id ci --role agent",
    {
        "create": hub_command(
            create,
            "Create a key, which is shown once.",
            "waypost keys create --id ci --role agent --permission deploy --expires 30d",
            Argument("--id", type=parse_key_id, required=True, help="the id of the principal that uses the key"),
            *(
                Argument(f"--{right}", type=parse_name, action="append", default=[], help=f"a {right}; may be repeated")
                for right in ("role", "permission", "scope")
            ),
            Argument("--expires", type=parse_expiry, metavar="WHEN", help="30d, 12h or 2030-01-01 (default: never)"),
        ),
        "list": list_command(
            "keys",
            "List all keys, without the keys themselves.",
            "waypost keys list --json",
            {
                "ID": "id",
                "STATUS": "status",
                "SOURCE": "source",
                "ROLES": "roles",
                "PERMISSIONS": "permissions",
                "SCOPES": "scopes",
                "EXPIRES": lambda key: (key["expiresAt"] or "never")[:19],
            },
        ),
        "revoke": hub_command(
            revoke,
            "Revoke a key at once.",
            "waypost keys revoke ci",
            Argument("id", metavar="ID", help="the id of the principal that uses the key"),
        ),
    },
)
