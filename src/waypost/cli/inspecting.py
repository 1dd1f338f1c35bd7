"""`waypost list`, `describe`, `call` and `read`: using a hub from the shell."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.cli.targets import add_target, open_client
from waypost.errors import RemoteError, WaypostError

if TYPE_CHECKING:
    from waypost.hub import Hub
    from waypost.upstreams.client import Client
    from waypost.upstreams.replies import Reply

_METHOD_NOT_FOUND: Final = -32601

Command = Callable[["Client", argparse.Namespace], Awaitable[int]]


def register(commands: Any) -> None:
    """Add the commands."""
    listing = _command(
        commands, "list", show_list, "list the tools of a hub", "waypost list server.py:hub --catalog --json"
    )
    listing.add_argument("--catalog", action="store_true", help="everything: hidden tools, resources and prompts too")
    describing = _command(
        commands, "describe", describe, "show the full definition of a capability", "waypost describe server.py:hub add"
    )
    describing.add_argument("name", metavar="NAME", help="a tool, prompt or resource")
    calling = _command(commands, "call", call, "call a tool", """waypost call server.py:hub add '{"a": 1, "b": 2}'""")
    calling.add_argument("name", metavar="NAME", help="the tool")
    calling.add_argument("arguments", nargs="?", default="{}", metavar="ARGUMENTS", help="its arguments as JSON")
    reading = _command(commands, "read", read, "read a resource", "waypost read server.py:hub docs://readme")
    reading.add_argument("uri", metavar="URI", help="the resource")


def _command(commands: Any, name: str, action: Command, text: str, example: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=f"example: {example}"
    )
    add_target(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=lambda given: asyncio.run(_with_client(action, given)))
    return command


async def _with_client(action: Command, given: argparse.Namespace) -> int:
    async with open_client(given.target) as (client, hub):
        given.hub = hub
        return await action(client, given)


async def show_list(client: Client, given: argparse.Namespace) -> int:
    """Print what the hub offers."""
    if given.catalog:
        sections = await catalog(client, given.hub)
        if given.json:
            _print_json(sections)
        else:
            for section, entries in sections.items():
                _print_rows([(section, entry) for entry in entries])
        return 0
    tools = await client.list_tools()
    if given.json:
        _print_json(tools)
    else:
        _print_rows([("", tool) for tool in tools])
    return 0


async def catalog(client: Client, hub: Hub | None) -> dict[str, list[Reply]]:
    """Everything a hub offers: all of it where it is at hand, else what its catalog or its lists say."""
    if hub is not None:
        from waypost.capabilities.catalog import everything
        from waypost.upstreams.replies import Reply

        return {section: [Reply.of(entry) for entry in rows] for section, rows in everything(hub.registry).items()}
    try:
        found = await client.call_tool("catalog")
        if found.structured is not None and not found.is_error:
            return dict(found["structuredContent"])
    except RemoteError:
        pass
    return {
        "tools": await client.list_tools(),
        "prompts": await _listed(client.list_prompts),
        "resources": await _listed(client.list_resources),
        "resource_templates": await _listed(client.list_resource_templates),
    }


async def _listed(ask: Callable[[], Awaitable[list[Reply]]]) -> list[Reply]:
    try:
        return await ask()
    except RemoteError as error:
        if error.code == _METHOD_NOT_FOUND:
            return []
        raise


async def describe(client: Client, given: argparse.Namespace) -> int:
    """Print one definition."""
    for entries in (await catalog(client, given.hub)).values():
        for entry in entries:
            if given.name in (entry.name, entry.uri, entry.get("uriTemplate")):
                _print_json(entry)
                return 0
    raise WaypostError(f"There is nothing called {given.name!r}; see `waypost list {given.target} --catalog`.")


async def call(client: Client, given: argparse.Namespace) -> int:
    """Print what a tool answers."""
    try:
        arguments = msgspec.json.decode(given.arguments, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise WaypostError(f"The arguments are not a JSON object: {error}.") from None
    result = await client.call_tool(given.name, arguments)
    if given.json:
        _print_json(result)
    else:
        output = sys.stderr if result.is_error else sys.stdout
        for block in result["content"]:
            output.write((block.text if block.type == "text" else json.dumps(block)) + "\n")
    return 1 if result.is_error else 0


async def read(client: Client, given: argparse.Namespace) -> int:
    """Print what a resource holds; bytes go out as they are."""
    result = await client.read_resource(given.uri)
    if given.json:
        _print_json(result["contents"])
        return 0
    for part in result["contents"]:
        if "blob" in part:
            sys.stdout.buffer.write(base64.b64decode(part["blob"]))
        else:
            sys.stdout.write(part["text"] + "\n")
    return 0


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _print_rows(rows: list[tuple[str, Reply]]) -> None:
    width = max((len(_name(entry)) for _, entry in rows), default=0)
    for section, entry in rows:
        first = (entry.description or "").strip().splitlines()
        label = f"{section:<20}" if section else ""
        hidden = " (hidden)" if entry.hidden else ""
        sys.stdout.write(f"{label}{_name(entry):<{width}}  {first[0] if first else ''}{hidden}".rstrip() + "\n")


def _name(entry: Reply) -> str:
    return str(entry.get("uri") or entry.get("uriTemplate") or entry["name"])
