"""`waypost list`: the tools of a hub, or everything it offers."""

from __future__ import annotations

import shlex
from argparse import Namespace
from typing import TYPE_CHECKING, Final

from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.capabilities.schemas.problems import counted
from waypost.cli.command import Argument, Output
from waypost.cli.target import OPTIONAL_TARGET, call_gateway, first_line, list_everything, name_of, target_command

if TYPE_CHECKING:
    from waypost.upstreams.client import Client
    from waypost.upstreams.jsonrpc import Reply


async def run(client: Client, args: Namespace) -> Output:
    """List the tools; of a hub that lists only its gateway, say how much is behind it."""
    if args.catalog:
        sections = await list_everything(client, args.hub)
        return Output(sections, "\n".join(line for name, rows in sections.items() for line in _format(rows, name)))
    tools = await client.list_tools()
    hint = ""
    if not args.json and {tool.name.replace("_", ".") for tool in tools} == GATEWAY_TOOLS:
        page = await call_gateway(client, None, "home", {})
        if page is not None:
            count = sum(page["counts"]["kind"].values()) if "counts" in page else len(page["items"])
            search = shlex.join(["waypost", "search", args.target, ""])
            hint = f"... and {counted(count, 'item')} behind the gateway; see `{search}`"
    return Output(tools, "\n".join(_format(tools)), hint)


def _format(entries: list[Reply], section: str = "") -> list[str]:
    width = max((len(name_of(entry)) for entry in entries), default=0)
    label = f"{section:<20}" if section else ""
    lines = []
    for entry in entries:
        hidden = " (hidden)" if entry.hidden else ""
        lines.append(f"{label}{name_of(entry):<{width}}  {first_line(entry.description)}{hidden}".rstrip())
    return lines


COMMAND: Final = target_command(
    run,
    "List the tools of a hub.",
    "waypost list server.py:hub --catalog --json",
    OPTIONAL_TARGET,
    Argument("--catalog", action="store_true", help="everything: hidden tools, resources and prompts too"),
)
