"""The hub that the clients are driven against; it records what they send in the file that `SAMPLE_RECORD` names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from waypost import Context, Hub

RECORD = Path(os.environ.get("SAMPLE_RECORD", os.devnull))
ALIKE = ("notes.add", "notes:add")
"""Two names that are one as soon as a client replaces the characters that its model does not take."""
LONG = f"catalog.{'very_' * 18}long"

hub = Hub.from_config(Path(__file__).with_suffix(".yaml"))


def record(**entry: Any) -> None:
    """Append what a client did to the record."""
    with RECORD.open("a") as file:
        file.write(json.dumps(entry) + "\n")


@hub.on("request")
async def note(method: str, params: dict[str, Any], ctx: Context) -> Any:
    """Record each request with its client."""
    info = ctx.client_info
    record(
        method=method,
        tool=params.get("name"),
        client=info and info.name,
        version=getattr(ctx.caller, "version", None),
        elicits="elicitation" in ctx.session.client_capabilities,
    )
    return await Hub.on_request(hub, method, params, ctx)


@hub.tool(name="skill:web_search")
async def web_search(query: str) -> str:
    """Search the web."""
    return f"Three pages mention {query}."


@hub.tool(name="catalog.grow")
async def grow() -> str:
    """Add a tool to this server."""
    if hub.registry.find_tool("catalog.grown") is None:
        hub.tool(grown, name="catalog.grown")
    return "There is a further tool now."


async def grown() -> str:
    """Answer as the tool that came later."""
    return "The further tool answers."


@hub.tool(name="user.ask")
async def ask(ctx: Context) -> str:
    """Ask the user for a colour."""
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    answer = await ctx.elicit("Which colour?", schema)
    return f"The user answered {answer.action}: {json.dumps(answer.content)}."


def add_fixed(name: str, answer: str) -> None:
    """Add a tool without arguments that always answers the same."""

    def tool() -> str:
        return answer

    hub.tool(tool, name=name, description=f"Answer: {answer}")


if "alike" in os.environ.get("SAMPLE_TOOLS", ""):
    for name in ALIKE:
        add_fixed(name, f"Added with {name}.")
if "long" in os.environ.get("SAMPLE_TOOLS", ""):
    add_fixed(LONG, "The long name answers.")

if __name__ == "__main__":
    hub.run("http", port=0)
