"""`waypost upstreams`: the MCP servers whose tools a running hub offers."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from typing import Final

from waypost.cli.client import HubClient, hub_command, quote_segment
from waypost.cli.command import Argument, Columns, Group, Output, Row, escape_control, format_table


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not value.strip():
        raise ArgumentTypeError(f"{text!r} is not a header, such as 'Authorization: Bearer ...'")
    return name.strip(), value.strip()


def _parse_digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text.lower()):
        raise ArgumentTypeError(f"{text!r} is not a digest of 64 hexadecimal digits, as `list` shows it")
    return text.lower()


def _reason(upstream: Row) -> str:
    retry = f" It is tried again in {max(upstream['retryIn'], 0.1):.1f} s." if upstream["retryIn"] else ""
    return f"{upstream['reason']}{retry}"


_COLUMNS: Final[Columns] = {
    "CONNECTION": "connection",
    "TRANSPORT": "transport",
    "STATE": "state",
    "TOOLS": lambda upstream: len(upstream["tools"]),
    "HELD": lambda upstream: len(upstream["held"]),
    "REASON": _reason,
}


def list_all(hub: HubClient, _args: Namespace) -> Output:
    """List all servers, and below them what an operator should look at."""
    upstreams = hub.get("upstreams")["upstreams"]
    remarks = (escape_control(remark) for upstream in upstreams for remark in _list_remarks(upstream))
    return Output(upstreams, "\n".join([format_table(_COLUMNS, upstreams), *remarks]))


def _list_remarks(upstream: Row) -> Iterator[str]:
    """Tools of one server that are held back or left out, and invisible characters in definitions."""
    name = upstream["connection"]
    for held in upstream["held"]:
        how = "is marked" if held["isCallable"] else "is held back"
        yield f"{name}: {held['tool']} {how}, because its definition is {held['why']} (sha256 {held['sha256']}):"
        yield from (f"  {line}" for line in held["difference"])
    for left in upstream["leftOut"]:
        yield f"{name}: {left['tool']} is left out: {left['why']}"
    for hidden in upstream["unseen"]:
        yield f"{name}: the definition of {hidden['tool']} hides {', '.join(hidden['characters'])}"


def approve(hub: HubClient, args: Namespace) -> Output:
    """Approve definitions as they are now, which releases the tools that were held back."""
    answer = hub.post(_path(args, "approve"), {"tool": args.tool, "sha256": args.sha256})
    approved = ", ".join(answer["approved"])
    text = f"Approved of {args.connection}: {approved}." if approved else f"Nothing of {args.connection} is held back."
    return Output(answer, escape_control(text))


def restart(hub: HubClient, args: Namespace) -> Output:
    """Begin a new session with a server; a server that cannot be reached fails the command."""
    upstream = hub.post(_path(args, "restart"))["upstream"]
    reason = f": {_reason(upstream)}" if upstream["reason"] else "."
    text = escape_control(f"{args.connection} is {upstream['state']}{reason}")
    return Output(upstream, text, status=1 if upstream["state"] == "failed" else 0)


def login(hub: HubClient, args: Namespace) -> Output:
    """Store a user's credentials."""
    answer = hub.post(_path(args, "login"), {"principal": args.principal, "headers": dict(args.header)})
    return Output(answer, escape_control(f"The credentials of {args.principal} for {args.connection} are stored."))


def logout(hub: HubClient, args: Namespace) -> Output:
    """Remove a user's credentials."""
    answer = hub.post(_path(args, "logout"), {"principal": args.principal})
    return Output(answer, escape_control(f"The credentials of {args.principal} for {args.connection} are removed."))


def _path(args: Namespace, action: str) -> str:
    return f"upstreams/{quote_segment(args.connection)}/{action}"


_CONNECTION: Final = Argument("connection", metavar="CONNECTION", help="the connection of the server")

COMMAND: Final = Group(
    "Manage the MCP servers whose tools a running hub offers.",
    "waypost upstreams approve github",
    {
        "list": hub_command(
            list_all, "List the servers, and which of their tools are held back.", "waypost upstreams list --json"
        ),
        "approve": hub_command(
            approve,
            "Approve definitions as they are now, and release tools that were held back.",
            "waypost upstreams approve github push",
            _CONNECTION,
            Argument("tool", metavar="TOOL", nargs="?", help="one tool, by the server's own name (default: all)"),
            Argument(
                "--sha256",
                type=_parse_digest,
                metavar="HEX",
                help="the digest of the definition you saw; if it has changed, the approval is refused",
            ),
        ),
        "restart": hub_command(
            restart,
            "Begin a new session with a server, after the calls of the old one have ended.",
            "waypost upstreams restart github",
            _CONNECTION,
        ),
        "login": hub_command(
            login,
            "Store a user's credentials for a server with `credentials: user`.",
            "waypost upstreams login github --principal ada --header 'Authorization: Bearer ...'",
            _CONNECTION,
            Argument("--principal", required=True, help="the user; `hub` for what the hub itself asks the server"),
            Argument(
                "--header",
                required=True,
                action="append",
                type=_parse_header,
                metavar="NAME:VALUE",
                help="a header that is sent with every request; may be repeated",
            ),
        ),
        "logout": hub_command(
            logout,
            "Remove a user's credentials for a server.",
            "waypost upstreams logout github --principal ada",
            _CONNECTION,
            Argument("--principal", required=True, help="the user"),
        ),
    },
)
