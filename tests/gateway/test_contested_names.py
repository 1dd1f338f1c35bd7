"""Names that several upstreams offer: a name in use stays with its upstream, and a later tool gets a suffix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import imports_of, write
from tests.gateway.passers import started
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.pools import listening
from waypost import Hub, ToolError
from waypost.capabilities.capability import Capability, Kind, disambiguate
from waypost.capabilities.registry import Change
from waypost.testing import TestClient, connect

Json = dict[str, Any]


class Far:
    """An upstream that answers with its own name and offers shared or unshared capabilities."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hub = Hub(name, version="1")
        self.url = ""
        self.hub.prompt(name=f"own_{name}")(self.say)
        self.hub.resource(f"{name}://own", name="own")(self.say)
        self.own = self.rows

    @property
    def rows(self) -> list[Capability]:
        return [row for kind in Kind for row in self.hub.registry[kind]]

    def say(self) -> str:
        return self.name

    def offer(self, *tools: str) -> None:
        """Offer tools, a prompt, a resource and a template."""

        def read(day: str) -> str:
            return f"{self.name}: {day}"

        with self.hub.registry.as_one_change():
            for tool in tools:
                self.hub.tool(name=tool, description=f"Of {self.name}.")(self.say)
            self.hub.prompt(name="greet")(self.say)
            self.hub.resource("notes://today", name="today")(self.say)
            self.hub.resource("days://{day}", name="day")(read)

    def withdraw(self) -> None:
        """Withdraw the shared capabilities."""
        self.hub.registry.remove([row for row in self.rows if row not in self.own])


@asynccontextmanager
async def servers(*names: str) -> AsyncIterator[list[Far]]:
    """Servers at URLs."""
    if not names:
        yield []
        return
    far = Far(names[0])
    async with listening(far.hub.asgi()) as far.url, servers(*names[1:]) as others:
        yield [far, *others]
    await far.hub.stop()


def written(folder: Path, far: Sequence[Far], imports: list[Json] | None = None) -> Path:
    """A configuration that imports everything under one prefix."""
    connections = {one.name: {"kind": "mcp", "url": one.url} for one in far}
    shared = [{"connection": one.name} for one in far] if imports is None else imports
    return write(folder, connections, [{"prefix": "x", "trust": "off", **one} for one in shared])


async def owners(client: TestClient) -> list[str]:
    """The upstreams that answer for the shared tool, prompt, resource and template."""
    return [
        (await client.call_tool("x.add")).text,
        (await client.get_prompt("x.greet")).text,
        (await client.read_resource("notes://today")).text,
        (await client.read_resource("days://1")).text.removesuffix(": 1"),
    ]


def left_out(hub: Hub, name: str) -> set[str]:
    return {one.tool for one in imports_of(hub).get_row(name).left_out}


def suffixed(name: str, tool: str = "x.add") -> str:
    return disambiguate(f"upstream/{name}", tool)


SHARED = {"prompt greet", "resource notes://today", "template days://{day}"}


@asynchronous
async def test_a_name_in_use_stays_with_its_server_and_a_later_tool_gets_a_suffix(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        one, two = far
        two.offer("add")
        async with started(written(tmp_path, far)) as hub, connect(hub) as client:
            assert await owners(client) == ["two"] * 4
            changes: list[Change] = []
            hub.registry.subscribe(changes.append)
            one.offer("add", "more")
            await until(lambda: hub.registry.tools.get("x.more") is not None)
            assert await owners(client) == ["two"] * 4
            assert (await client.call_tool(suffixed("one"))).text == "one"
            assert [change.kinds for change in changes] == [{Kind.TOOL}]
            assert left_out(hub, "one") == SHARED
            assert left_out(hub, "two") == set()
            assert imports_of(hub).get_row("one").tools == [suffixed("one"), "x.more"]


@asynchronous
async def test_upstreams_with_stored_lists_get_their_names_in_the_order_of_the_file(tmp_path: Path) -> None:
    async with servers("one", "two", "three") as far:
        for server in far:
            server.offer("add")
        file = written(tmp_path, far)
        async with started(file) as hub:
            known = {row.owner for row in hub.registry.tools}
            assert known == {"upstream:one", "upstream:two", "upstream:three"}
        async with started(file) as hub, connect(hub) as client:
            assert await owners(client) == ["one"] * 4
            assert [(await client.call_tool(suffixed(name))).text for name in ("two", "three")] == ["two", "three"]


@asynchronous
async def test_a_released_uri_or_prompt_goes_to_the_next_upstream_but_a_tool_name_stays_free(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        one, two = far
        one.offer("add")
        async with started(written(tmp_path, far)) as hub, connect(hub) as client:
            two.offer("add")
            await until(lambda: hub.registry.tools.get(suffixed("two")) is not None)
            changes: list[Change] = []
            hub.registry.subscribe(changes.append)
            one.withdraw()
            await until(lambda: hub.registry.tools.get("x.add") is None)
            assert len(changes) == 1
            assert (await client.call_tool(suffixed("two"))).text == "two"
            assert (await client.get_prompt("x.greet")).text == "two"
            assert (await client.read_resource("notes://today")).text == "two"
            assert (await client.read_resource("days://1")).text == "two: 1"
            assert left_out(hub, "two") == set()


@asynchronous
async def test_another_order_in_the_file_moves_no_name_that_is_in_use(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        far[0].offer("add")
        async with started(written(tmp_path, far)) as hub, connect(hub) as client:
            far[1].offer("add")
            await until(lambda: hub.registry.tools.get(suffixed("two")) is not None)
            written(tmp_path, far[::-1])
            assert await hub.reload()
            assert await owners(client) == ["one"] * 4
            assert (await client.call_tool(suffixed("two"))).text == "two"


@asynchronous
async def test_a_renamed_connection_gets_its_names_back(tmp_path: Path) -> None:
    async with servers("one") as far:
        far[0].offer("add")
        async with started(written(tmp_path, far)) as hub, connect(hub) as client:
            row = hub.registry.tool("x.add")
            far[0].name = "other"
            written(tmp_path, far)
            assert await hub.reload()
            await imports_of(hub).wait_until_listed()
            assert (await client.call_tool("x.add")).text == "other"
            with pytest.raises(ToolError, match="is gone"):
                await row.handler({}, None)  # type: ignore[arg-type]  # refused before the context is used


@asynchronous
async def test_a_second_import_of_an_upstream_skips_the_tools_of_the_first(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        far[0].offer("add", "more")
        far[1].offer("add", "more")
        imports: list[Json] = [{"connection": "one", "include": ["add"]}, {"connection": "one"}]
        async with started(written(tmp_path, far, imports)) as hub, connect(hub) as client:
            assert (await client.call_tool("x.add")).text == "one"
            assert (await client.call_tool("x.more")).text == "one"
            assert [row.id for row in hub.registry.tools] == ["x.add", "x.more"]
            assert left_out(hub, "one") == {"add"}


@asynchronous
async def test_a_tool_of_the_hub_keeps_its_name_beside_imported_ones(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        for server in far:
            server.offer("add")
        hub = Hub.from_config(written(tmp_path, far))

        def ours() -> str:
            return "ours"

        hub.tool(name="x.add")(ours)
        async with connect(hub) as client:
            await imports_of(hub).wait_until_listed()
            assert (await client.call_tool("x.add")).text == "ours"
            assert (await client.call_tool(suffixed("one"))).text == "one"
            assert (await client.call_tool(suffixed("two"))).text == "two"
        await hub.stop()
