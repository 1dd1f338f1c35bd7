"""`waypost describe`: the definition of one tool, prompt, resource or item."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING, Final

from waypost.cli.command import Argument, Output
from waypost.cli.target import TARGET, call_gateway, list_everything, target_command
from waypost.errors import WaypostError

if TYPE_CHECKING:
    from waypost.upstreams.client import Client
    from waypost.upstreams.jsonrpc import Reply


async def run(client: Client, args: Namespace) -> Output:
    """Find the definition, or the item of the gateway, and print it as JSON."""
    for entries in (await list_everything(client, args.hub)).values():
        for entry in entries:
            if args.name in (entry.name, entry.uri, entry.get("uriTemplate")):
                return _print(entry)
    item = await call_gateway(client, args.hub, "describe", {"id": args.name})
    if item is None:
        raise WaypostError(f"There is nothing called {args.name!r}; see `waypost list {args.target} --catalog`.")
    return _print(item)


def _print(entry: Reply) -> Output:
    return Output(entry, json.dumps(entry, indent=2, ensure_ascii=False))


COMMAND: Final = target_command(
    run,
    "Show the definition of a tool, prompt, resource or item of the gateway, as JSON.",
    "waypost describe server.py:hub add",
    TARGET,
    Argument("name", metavar="ID", help="a tool, prompt, resource, or the id of a search result"),
)
