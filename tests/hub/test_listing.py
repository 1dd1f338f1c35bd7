"""What is listed and completed: as registered, as hooks decide, and as a session may see it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.hub.samples import (
    ERAS,
    Arithmetic,
    Greet,
    Readme,
    Shout,
    definition,
    empty,
    hearing,
    ids,
    names,
    resource_at,
)
from waypost import Context, DefinitionError, Hub
from waypost.capabilities.capability import Capability
from waypost.protocol.lists import Page
from waypost.testing import connect
from waypost.wire.versions import ALL, V2026_07_28


class Choosy(Hub):
    """A hub that decides for each request which tools are listed."""

    async def on_list_tools(self, cursor: str | None, ctx: Context) -> Page:
        shown = await super().on_list_tools(cursor, ctx)
        return Page([row for row in shown.items if definition(row).name in ("add", "shout")])

    async def on_completion(self, ref: str, argument: Any, ctx: Context) -> list[str]:
        usual = await super().on_completion(ref, argument, ctx)
        return [*usual, f"{ref}:{argument['name']}:{argument['value']}"]


@pytest.mark.parametrize("version", ERAS)
def test_a_subclass_decides_which_tools_are_listed(version: str) -> None:
    hub = Choosy("test", "1").add(Arithmetic).add(Shout)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert names(await client.list_tools()) == ["add", "shout"]
            assert (await client.call_tool("multiply", {"a": 2, "b": 3})).structured == {"result": 6}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_completion_hook_can_go_on_with_the_usual_values(version: str) -> None:
    hub = Choosy("test", "1").add(Greet)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            offered = await client.complete({"type": "ref/prompt", "name": "greet"}, "tone", "w")
            assert offered == ["warm", "wry", "greet:tone:w"]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_without_a_hook_the_values_of_a_field_are_offered(version: str) -> None:
    hub = empty().add(Greet)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert await client.complete({"type": "ref/prompt", "name": "greet"}, "tone", "W") == ["warm", "wry"]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_hooks_can_be_registered_as_functions(version: str) -> None:
    hub = empty().add(Arithmetic).add(Greet).add(Readme).add(resource_at("docs://other"))

    @hub.on("list_tools")
    async def only_some(cursor: str | None, ctx: Context) -> Any:
        return [row for row in hub.expand() if row.id == "divide"]

    @hub.on("list_resources")
    def in_two_pages(cursor: str | None, ctx: Context) -> Any:
        first, second = hub.expand("resources")
        return ([first], "more") if cursor is None else [second]

    @hub.on("completion")
    def complete(ref: str, argument: Any, ctx: Context) -> list[str]:
        return [argument["value"] + "!"]

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert names(await client.list_tools()) == ["divide"]
            assert [row.uri for row in await client.list_resources()] == ["docs://other", "docs://readme"]
            assert await client.complete({"type": "ref/prompt", "name": "greet"}, "name", "A") == ["A!"]
            assert names(await client.list_prompts()) == ["greet"]

    asyncio.run(scenario())


def test_registering_a_hook_returns_the_function() -> None:
    def hook(cursor: str | None, ctx: Context) -> list[Any]:
        return []

    assert empty().on("list_tools")(hook) is hook


def test_an_unknown_hook_is_refused_with_those_there_are() -> None:
    with pytest.raises(DefinitionError, match=r"no hook 'tool_list'.*list_tools"):
        empty().on("tool_list")


# Lists what is registered


def test_registered_tools_are_paged_with_or_without_hidden_ones() -> None:
    hub = empty(page_size=2).add(Arithmetic)

    first = hub.list_registered("tools")
    second = hub.list_registered("tools", first.next_cursor)
    everything = [hub.list_registered("tools", include_hidden=True)]
    while everything[-1].next_cursor is not None:
        everything.append(hub.list_registered("tools", everything[-1].next_cursor, include_hidden=True))

    assert [definition(row).name for row in first.items] == ["add", "maths.power"]
    assert [definition(row).name for row in second.items] == ["multiply", "subtract"]
    assert second.next_cursor is None
    assert [definition(row).name for page in everything for row in page.items] == ids(hub)


@pytest.mark.parametrize(
    ("kind", "there"),
    [
        ("tools", ["shout"]),
        ("prompts", ["greet"]),
        ("resources", ["docs://readme"]),
        ("resource_templates", ["notes://{id}"]),
    ],
)
def test_each_kind_is_listed_for_itself(kind: Any, there: list[str]) -> None:
    hub = empty().add([Shout, Greet, Readme])

    @hub.resource("notes://{id}")
    def note(id: str) -> str:
        return id

    assert ids(hub, kind) == there
    assert [row.id for row in hub.list_registered(kind).items if isinstance(row, Capability)] == there


# Lists that depend on the session


class Vault(Hub):
    """A hub that lists its hidden tools for sessions that know the word."""

    async def on_list_tools(self, cursor: str | None, ctx: Context) -> Page:
        return self.list_registered("tools", cursor, include_hidden=bool(ctx.session.assigns.get("open")))


def vault() -> Vault:
    hub = Vault("vault", "1")

    @hub.tool
    async def unlock(word: str, ctx: Context) -> str:
        """Show what is hidden."""
        await ctx.session.put("open", word == "sesame")
        await ctx.session.notify_changed("tools")
        return "done"

    @hub.tool(hidden=True)
    async def treasure() -> str:
        """Not for everybody's eyes."""
        return "gold"

    return hub


@pytest.mark.parametrize("version", [version for version in ALL if version != V2026_07_28])
def test_a_session_unlocks_tools_for_itself_alone(version: str) -> None:
    hub = vault()

    async def scenario() -> None:
        async with connect(hub, version) as insider, connect(hub, version) as outsider:
            assert names(await insider.list_tools()) == ["unlock"]
            assert (await insider.call_tool("treasure")).text == "gold"
            await insider.call_tool("unlock", {"word": "sesame"})
            await insider.assert_notification("tools/list_changed")
            await insider.refute_notification("tools/list_changed")
            assert names(await insider.list_tools()) == ["treasure", "unlock"]
            await outsider.refute_notification("tools/list_changed")
            assert names(await outsider.list_tools()) == ["unlock"]
            await insider.call_tool("unlock", {"word": "abracadabra"})
            assert names(await insider.list_tools()) == ["unlock"]

    asyncio.run(scenario())


def test_a_stateless_request_unlocks_nothing_for_the_next() -> None:
    async def scenario() -> None:
        async with hearing(vault(), V2026_07_28) as client:
            await client.call_tool("unlock", {"word": "sesame"})
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["unlock"]

    asyncio.run(scenario())
