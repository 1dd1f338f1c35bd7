"""Names that several servers have: the import that stands first in the file gets them, whoever answers first."""

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
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.registry import Change
from waypost.testing import TestClient, connect

Json = dict[str, Any]


class Far:
    """A server that says whose answer it is, and may offer what others have or only what is its own."""

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
        """Offer tools; with them, one of everything else."""

        def read(day: str) -> str:
            return f"{self.name}: {day}"

        with self.hub.registry.as_one_change():
            for tool in tools:
                self.hub.tool(name=tool, description=f"Of {self.name}.")(self.say)
            self.hub.prompt(name="greet")(self.say)
            self.hub.resource("notes://today", name="today")(self.say)
            self.hub.resource("days://{day}", name="day")(read)

    def withdraw(self) -> None:
        """Offer only its own any more."""
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
    """Whose the things are that all servers have."""
    return [
        (await client.call_tool("x.add")).text,
        (await client.get_prompt("x.greet")).text,
        (await client.read_resource("notes://today")).text,
        (await client.read_resource("days://1")).text.removesuffix(": 1"),
    ]


def left_out(hub: Hub, name: str) -> set[str]:
    return {one.tool for one in imports_of(hub).one(name).left_out}


def is_owned(hub: Hub, name: str) -> bool:
    row = hub.registry.tools.get("x.add")
    return row is not None and row.owner == f"upstream:{name}"


@asynchronous
async def test_the_first_of_the_file_gets_the_names_whoever_answers_first(tmp_path: Path) -> None:
    async with servers("one", "two", "three") as far:
        one, two, three = far
        two.offer("add")
        three.offer("add", "more")
        file = written(tmp_path, far)
        async with started(file) as hub, connect(hub) as client:
            assert await owners(client) == ["two"] * 4
            second = hub.registry.tools.get("x.add")
            changes: list[Change] = []
            hub.registry.subscribe(changes.append)
            one.offer("add")
            await until(lambda: is_owned(hub, "one"))
            assert await owners(client) == ["one"] * 4
            assert [change.kinds for change in changes] == [{Kind.TOOL}]  # the others look the same
            taken = {"add", "prompt greet", "resource notes://today", "template days://{day}"}
            assert left_out(hub, "two") == left_out(hub, "three") == taken
            assert (await client.call_tool("x.more")).text == "three"
            assert second is not None
            with pytest.raises(ToolError, match="another server's by now"):
                await second.handler({}, None)  # type: ignore[arg-type]  # nobody looks at it
        async with started(file) as hub, connect(hub) as client:
            assert await owners(client) == ["one"] * 4


@asynchronous
async def test_a_name_that_its_server_gives_up_goes_to_the_next_in_the_file(tmp_path: Path) -> None:
    async with servers("one", "two", "three") as far:
        one, two, three = far
        for server in (three, two, one):
            server.offer("add")
        async with started(written(tmp_path, far)) as hub, connect(hub) as client:
            assert await owners(client) == ["one"] * 4
            changes: list[Change] = []
            hub.registry.subscribe(changes.append)
            one.withdraw()
            await until(lambda: not is_owned(hub, "one"))
            assert await owners(client) == ["two"] * 4
            assert left_out(hub, "two") == set()
            assert "add" in left_out(hub, "three")
            assert len(changes) == 1


@asynchronous
async def test_another_order_in_the_file_is_another_decision(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        for server in far:
            server.offer("add")
        async with started(written(tmp_path, far)) as hub, connect(hub) as client:
            assert await owners(client) == ["one"] * 4
            written(tmp_path, far[::-1])
            assert await hub.reload()
            assert await owners(client) == ["two"] * 4


@asynchronous
async def test_two_imports_of_one_server_have_a_place_each(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        far[0].offer("add", "more")
        far[1].offer("add", "more")
        imports: list[Json] = [{"connection": "one", "include": ["add"]}, {"connection": "two"}, {"connection": "one"}]
        async with started(written(tmp_path, far, imports)) as hub, connect(hub) as client:
            assert (await client.call_tool("x.add")).text == "one"
            assert (await client.call_tool("x.more")).text == "two"
            assert (await client.get_prompt("x.greet")).text == "two"


@asynchronous
async def test_what_the_hub_has_itself_stays_whatever_the_order(tmp_path: Path) -> None:
    async with servers("one", "two") as far:
        for server in far:
            server.offer("add")
        hub = Hub.from_config(written(tmp_path, far))

        def ours() -> str:
            return "ours"

        hub.tool(name="x.add")(ours)
        async with connect(hub) as client:
            await imports_of(hub).settled()
            assert (await client.call_tool("x.add")).text == "ours"
            assert "add" in left_out(hub, "one") & left_out(hub, "two")
        await hub.stop()
