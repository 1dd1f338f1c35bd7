"""Core skills called as tools of a hub, by a client in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.outbound.internet import Answer, site
from waypost import Context, Hub
from waypost.outbound.egress import Egress
from waypost.skills.core import CORE, CoreSkill
from waypost.skills.core.inputs import CoreSettings
from waypost.testing import connect
from waypost.upstreams.jsonrpc import Reply

Call = Callable[..., Any]


def skill(name: str) -> CoreSkill:
    """The core skill of that name."""
    (found,) = [one for one in CORE if one.name == name]
    return found


def hub_with(settings: CoreSettings) -> Hub:
    """A hub that offers the core skills under their plain names."""
    hub = Hub("skills", version="1.0.0")
    for one in CORE:
        add(hub, one, settings)
    return hub


def add(hub: Hub, one: CoreSkill, settings: CoreSettings) -> None:
    base = {"input": {"type": "string"}, "config": {"type": "object"}}
    schema = {"type": "object", "properties": base | dict(one.declaration.input_schema or {})}

    async def tool(args: dict[str, Any], ctx: Context) -> Any:
        return await one.run(args, ctx, settings)

    hub.tool(tool, name=one.name, description=one.declaration.description, input_schema=schema)


@asynccontextmanager
async def calling(*, allow_private: bool = True, sampling: Any = None, **options: Any) -> AsyncIterator[Call]:
    """A function that calls a skill by name and returns its answer."""
    egress = Egress(allow_private)
    hub = hub_with(CoreSettings(egress, **options))
    async with connect(hub, sampling=sampling) as client:

        async def call(name: str, **arguments: Any) -> Reply:
            return await client.call_tool(name, arguments)

        try:
            yield call
        finally:
            await egress.close()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """The address of a server on loopback."""
    async with site(answer) as port:
        yield f"http://127.0.0.1:{port}"
