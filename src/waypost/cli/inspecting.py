"""`waypost list`, `search`, `describe`, `call` and `read`: using a hub from the shell."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waypost.capabilities.names import SEVEN
from waypost.cli.arguments import json_object
from waypost.cli.client import KEY
from waypost.cli.target import add_target, key_for, open_client
from waypost.errors import RemoteError, WaypostError
from waypost.suggestions import did_you_mean, preselect

if TYPE_CHECKING:
    from waypost.hub import Hub
    from waypost.upstreams.client import Client
    from waypost.upstreams.replies import Reply

_METHOD_NOT_FOUND: Final = -32601
_UNKNOWN_TOOL: Final = -32602
KINDS: Final = ("workflow", "capability", "skill", "prompt", "document")

Command = Callable[["Client", argparse.Namespace], Awaitable[int]]


def register(commands: Any) -> None:
    """Add the commands."""
    listing = _command(
        commands,
        "list",
        show_list,
        "list the tools of a hub",
        "waypost list server.py:hub --catalog --json",
        can_lack=True,
    )
    listing.add_argument("--catalog", action="store_true", help="everything: hidden tools, resources and prompts too")
    searching = _command(
        commands, "search", search, "find what can do something", "waypost search waypost.yaml 'send a mail' --limit 5"
    )
    searching.add_argument("query", metavar="QUERY", help="a few words or a sentence; '' lists everything")
    searching.add_argument("--kind", choices=KINDS, help="only items of this kind")
    searching.add_argument("--limit", type=int, default=10, help="how many, 10 unless told, at most 100")
    describing = _command(
        commands, "describe", describe, "show everything about one thing", "waypost describe server.py:hub add"
    )
    describing.add_argument(
        "name", metavar="ID", help="a tool, prompt, resource, or the id of something that was found"
    )
    calling = _command(commands, "call", call, "call a tool", """waypost call server.py:hub add '{"a": 1, "b": 2}'""")
    calling.add_argument("name", metavar="NAME", help="the tool")
    calling.add_argument(
        "arguments", nargs="?", type=json_object, default={}, metavar="ARGUMENTS", help="its arguments as JSON"
    )
    reading = _command(commands, "read", read, "read a resource", "waypost read server.py:hub docs://readme")
    reading.add_argument("uri", metavar="URI", help="the resource")


def _command(
    commands: Any, name: str, action: Command, text: str, example: str, *, can_lack: bool = False
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=f"example: {example}"
    )
    add_target(command, can_lack=can_lack)
    command.add_argument("--key", help=f"the key for a hub at a URL (default: {KEY} of the environment)")
    command.add_argument(
        "--data", type=Path, metavar="DIR", help="the data directory of a hub at a URL, in place of its key"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=lambda given: asyncio.run(_with_client(action, given)))
    return command


async def _with_client(action: Command, given: argparse.Namespace) -> int:
    async with open_client(given.target, key_for(given), runs=action is call) as (client, hub):
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
        await _tell_of_items(client, given, {tool.name.replace("_", ".") for tool in tools})
    return 0


async def _tell_of_items(client: Client, given: argparse.Namespace, tools: set[str]) -> None:
    """Say that there is more than the tools of a gateway."""
    if tools != SEVEN:
        return
    page = await _gateway(client, None, "home", {})
    if page is not None:
        count = sum(page["counts"]["kind"].values()) if "counts" in page else len(page["items"])
        search = shlex.join(["waypost", "search", given.target, ""])
        sys.stderr.write(f"... and {count} items behind the gateway; see `{search}`\n")


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
    sections = {
        "tools": await client.list_tools(),
        "prompts": await _listed(client.list_prompts),
        "resources": await _listed(client.list_resources),
        "resource_templates": await _listed(client.list_resource_templates),
    }
    items = await _items(client)
    return sections if items is None else {**sections, "items": items}


async def _items(client: Client) -> list[Reply] | None:
    """Everything that a gateway shows, page by page; nothing where there is no gateway."""
    items: list[Reply] = []
    following: dict[str, Any] | None = {}
    while following is not None:
        page = await _gateway(client, None, "home", following)
        if page is None:
            return None
        items += page["items"]
        following = next((link["args"] for link in page["links"] if link["rel"] == "next"), None)
    return items


async def _gateway(client: Client, hub: Hub | None, tool: str, arguments: dict[str, Any]) -> Reply | None:
    """What a tool of the gateway answers; nothing where there is none. A hub at hand always has one."""
    if hub is not None:
        _ = hub.gateway
    try:
        result = await client.call_tool(f"gateway.{tool}", arguments)
    except RemoteError as error:
        if error.code == _UNKNOWN_TOOL:
            return None
        raise
    answer: Reply | None = result.structured
    if answer is not None and result.is_error:
        raise WaypostError(answer["error"]["message"])
    return answer


async def search(client: Client, given: argparse.Namespace) -> int:
    """Print what is found, the best first."""
    asked = {"query": given.query, "limit": given.limit} | ({"kind": given.kind} if given.kind else {})
    found = await _gateway(client, given.hub, "search", asked)
    if found is None:
        raise WaypostError(f"{given.target} has no gateway; see `server.surface` in its configuration.")
    if given.json:
        _print_json(found)
        return 0
    width = max((len(result["item"]["id"]) for result in found["results"]), default=0)
    for result in found["results"]:
        item = result["item"]
        first = (item["description"] or item["title"]).strip().splitlines()
        line = f"{result['score']:>7.3f}  {item['kind']:<10}  {item['id']:<{width}}  {first[0] if first else ''}"
        sys.stdout.write(line.rstrip() + "\n")
    return 0


async def _listed(ask: Callable[[], Awaitable[list[Reply]]]) -> list[Reply]:
    try:
        return await ask()
    except RemoteError as error:
        if error.code == _METHOD_NOT_FOUND:
            return []
        raise


async def describe(client: Client, given: argparse.Namespace) -> int:
    """Print one definition, or one item of the gateway."""
    for entries in (await catalog(client, given.hub)).values():
        for entry in entries:
            if given.name in (entry.name, entry.uri, entry.get("uriTemplate")):
                _print_json(entry)
                return 0
    item = await _gateway(client, given.hub, "describe", {"id": given.name})
    if item is not None:
        _print_json(item)
        return 0
    raise WaypostError(f"There is nothing called {given.name!r}; see `waypost list {given.target} --catalog`.")


async def _unknown(client: Client, given: argparse.Namespace, told: str) -> WaypostError:
    """What is said about a tool that is not there, with the nearest that is."""
    sections = await catalog(client, given.hub)
    known = [_name(entry) for section in ("tools", "items") for entry in sections.get(section, ())]
    return WaypostError(told + did_you_mean(given.name, preselect(given.name, known), "; "))


async def call(client: Client, given: argparse.Namespace) -> int:
    """Print what a tool answers."""
    try:
        result = await client.call_tool(given.name, given.arguments)
    except RemoteError as error:
        if error.code != _UNKNOWN_TOOL or not error.message.startswith("Unknown "):
            raise
        raise await _unknown(client, given, error.message) from None
    if given.json:
        _print_json(result)
    else:
        output = sys.stderr if result.is_error else sys.stdout
        for block in result["content"]:
            output.write((block.text if block.type == "text" else json.dumps(block)) + "\n")
    return 1 if result.is_error else 0


async def read(client: Client, given: argparse.Namespace) -> int:
    """Print what a resource holds; bytes go out as they are."""
    try:
        result = await client.read_resource(given.uri)
    except RemoteError as error:
        if error.code == _METHOD_NOT_FOUND:
            raise WaypostError(f"{given.target} has no resources.") from None
        raise
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
    return str(entry.get("uri") or entry.get("uriTemplate") or entry.get("name") or entry["id"])
