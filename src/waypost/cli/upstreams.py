"""`waypost upstreams`: the MCP servers whose tools a running hub offers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from typing import Any

from waypost.cli.client import Remote, add_action, group, print_json, print_table, segment, visible


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "upstreams",
        "list or restart the MCP servers behind a running hub, or approve what they changed",
        "Look after the MCP servers whose tools a running hub offers.",
        "waypost upstreams approve github",
    )
    add_action(
        actions,
        "list",
        show,
        "list the servers, and what of them is held back or left out",
        "waypost upstreams list --json",
    )
    approving = add_action(
        actions,
        "approve",
        approve,
        "trust definitions as they are now, and release those that were held back",
        "waypost upstreams approve github push",
    )
    _about(approving)
    approving.add_argument("tool", metavar="TOOL", nargs="?", help="one tool, by its own name (default: all)")
    approving.add_argument(
        "--sha256",
        type=_digest,
        metavar="HEX",
        help="the digest of the definition you saw; another one is refused",
    )
    restarting = add_action(
        actions,
        "restart",
        restart,
        "end the session with a server when its calls are done, and begin a new one",
        "waypost upstreams restart github",
    )
    _about(restarting)
    _register_credentials(actions)


def _register_credentials(actions: Any) -> None:
    entering = add_action(
        actions,
        "login",
        login,
        "keep what somebody shows at a server whose sessions are not shared",
        "waypost upstreams login github --principal ada --header 'Authorization: Bearer ...'",
    )
    _about(entering)
    entering.add_argument("--principal", required=True, help="who shows it; `hub` for asking what the server offers")
    entering.add_argument(
        "--header",
        required=True,
        action="append",
        type=_header,
        metavar="NAME:VALUE",
        help="a header of every request; may be given several times",
    )
    leaving = add_action(
        actions,
        "logout",
        logout,
        "forget what somebody shows at a server",
        "waypost upstreams logout github --principal ada",
    )
    _about(leaving)
    leaving.add_argument("--principal", required=True, help="whose credential is forgotten")


def _about(command: argparse.ArgumentParser) -> None:
    command.add_argument("connection", metavar="CONNECTION", help="the connection of the server")


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not value.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not a header, such as 'Authorization: Bearer ...'")
    return name.strip(), value.strip()


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text.lower()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a digest of 64 hexadecimal digits, as `list` shows it")
    return text.lower()


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print all servers, and what people should look at."""
    found = hub.get("upstreams")["upstreams"]
    if given.json:
        print_json(found)
        return 0
    rows = [
        (one["connection"], one["transport"], one["state"], str(len(one["tools"])), str(len(one["held"])), _reason(one))
        for one in found
    ]
    print_table(("CONNECTION", "TRANSPORT", "STATE", "TOOLS", "HELD", "REASON"), rows)
    for one in found:
        for line in _remarks(one):
            sys.stdout.write(visible(line) + "\n")
    return 0


def _reason(one: dict[str, Any]) -> str:
    again = f" It is tried again in {one['retryIn']:g} s." if one["retryIn"] else ""
    return f"{one['reason']}{again}"


def _remarks(one: dict[str, Any]) -> Iterator[str]:
    """What is held back, left out and hidden in the definitions of one server."""
    name = one["connection"]
    for held in one["held"]:
        how = "is marked" if held["isCallable"] else "is held back"
        yield f"{name}: {held['tool']} {how}, because its definition is {held['why']} (sha256 {held['sha256']}):"
        yield from (f"  {line}" for line in held["difference"])
    for left in one["leftOut"]:
        yield f"{name}: {left['tool']} is left out: {left['why']}"
    for hidden in one["unseen"]:
        yield f"{name}: the definition of {hidden['tool']} hides {', '.join(hidden['characters'])}"


def approve(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was released."""
    wanted = {"tool": given.tool, "sha256": given.sha256}
    answer = hub.post(f"upstreams/{segment(given.connection)}/approve", wanted)
    if given.json:
        print_json(answer)
    elif answer["approved"]:
        sys.stdout.write(visible(f"Approved of {given.connection}: {', '.join(answer['approved'])}.") + "\n")
    else:
        sys.stdout.write(f"Nothing of {given.connection} is held back.\n")
    return 0


def restart(hub: Remote, given: argparse.Namespace) -> int:
    """Say how it goes with the server now."""
    one = hub.post(f"upstreams/{segment(given.connection)}/restart")["upstream"]
    if given.json:
        print_json(one)
    else:
        reason = f": {_reason(one)}" if one["reason"] else "."
        sys.stdout.write(visible(f"{given.connection} is {one['state']}{reason}") + "\n")
    return 0 if one["state"] != "failed" else 1


def login(hub: Remote, given: argparse.Namespace) -> int:
    """Say whose credential is kept."""
    wanted = {"principal": given.principal, "headers": dict(given.header)}
    return _told(given, hub.post(f"upstreams/{segment(given.connection)}/login", wanted), "shows a credential now")


def logout(hub: Remote, given: argparse.Namespace) -> int:
    """Say whose credential is forgotten."""
    answer = hub.post(f"upstreams/{segment(given.connection)}/logout", {"principal": given.principal})
    return _told(given, answer, "shows no credential any more")


def _told(given: argparse.Namespace, answer: dict[str, Any], what: str) -> int:
    if given.json:
        print_json(answer)
    else:
        sys.stdout.write(visible(f"{given.principal} {what} at {given.connection}.") + "\n")
    return 0
