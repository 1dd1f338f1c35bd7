"""Registered skills and prompts as resources and prompts of a hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.desk import Desk, UnreachableStore, desk
from waypost import Hub, RemoteError
from waypost.capabilities.capability import Kind
from waypost.capabilities.context import Context
from waypost.capabilities.registry import Change, Registry
from waypost.documents.records import DocumentStore
from waypost.errors import InvocationFailed
from waypost.gateway.directory import to_item
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25, V2026_07_28

GREET = [{"name": "name", "description": "Whom", "required": True}, {"name": "tone"}]


class Served(Desk):
    """The registry of a hub, and a client of the hub."""

    hub: Hub
    client: TestClient

    async def failure(self, uri: str) -> RemoteError:
        """The error of reading a URI."""
        with pytest.raises(RemoteError) as caught:
            await self.client.read_resource(uri)
        return caught.value


@asynccontextmanager
async def served(shelf: str | DocumentStore = "store", version: str = V2025_11_25) -> AsyncIterator[Served]:
    """A hub with a registry that has loaded its documents."""
    hub = Hub("content", version="1")
    async with desk(shelf, registry=hub.registry) as plain:
        it = Served(plain.shelf, plain.engine, hub.registry, within=1.0)
        it.on_update = hub.engine.broadcast.resource_updated
        await it.content.refresh()
        async with connect(hub, version) as client:
            it.hub, it.client = hub, client
            yield it


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_clients_get_the_same_lists_and_contents_as_workers(version: str) -> None:
    async with served(version=version) as it:
        it.engine.functions["demo::health"] = lambda _: {"ok": True}
        it.engine.functions["demo::write"] = lambda given: f"Greet {given['name']}."
        await it.skill("a/b", "# Beta")
        await it.skill("a", "# Alpha\n\nText.")
        await it.prompt("greet", arguments=GREET)

        listed = await it.call("skills::resources-list")
        assert sorted(await it.client.list_resources(), key=str) == sorted(listed["resources"], key=str)
        templates = await it.call("skills::resources-templates")
        assert sorted(await it.client.list_resource_templates(), key=str) == sorted(
            templates["resourceTemplates"], key=str
        )
        assert await it.client.list_prompts() == (await it.call("prompts::mcp-list"))["prompts"]
        for uri in ("iii://skills", "iii://a", "iii://a/b", "iii://fn/demo/health"):
            read = await it.client.read_resource(uri)
            assert read["contents"] == (await it.call("skills::resources-read", {"uri": uri}))["contents"]
        given = {"name": "Ann"}
        got = await it.client.get_prompt("greet", given)
        said = await it.call("prompts::mcp-get", {"name": "greet", "arguments": given})
        assert (got["description"], got["messages"]) == (said["description"], said["messages"])
        assert any(isinstance(by, Context) for by in it.engine.askers)


@asynchronous
async def test_a_missing_skill_is_an_unknown_resource_with_a_suggestion() -> None:
    async with served() as it:
        await it.skill("resend/email")
        hinted = await it.failure("iii://resend/emial")
        old = await it.failure("iii://x/demo::guide")
        malformed = await it.failure("iii://a//b")
        missing = await it.failure("iii://fn/demo/gone")

        assert (hinted.code, old.code, malformed.code, missing.code) == (-32002,) * 4
        assert 'Skill not found: resend/emial; did you mean "resend/email"?' in str(hinted)
        assert "Skill not found: x/demo::guide" in str(old)
        assert "iii://fn/demo/guide" in str(old)
        assert it.engine.calls == [("demo::gone", {})]


@asynchronous
async def test_a_section_that_cannot_be_read_is_an_error_with_its_reason() -> None:
    async with served() as it:

        def broken(_: Any) -> str:
            raise InvocationFailed("no luck")

        it.engine.functions["demo::bad"] = broken
        internal = await it.failure("iii://fn/state/set")
        bad = await it.failure("iii://fn/demo/bad")

        assert (internal.code, bad.code) == (-32000, -32000)
        assert "is in an internal namespace" in str(internal)
        assert "trigger demo::bad: no luck" in str(bad)


@asynchronous
async def test_clients_get_one_notification_per_change() -> None:
    async with served() as it:
        seen: list[Change] = []
        it.hub.registry.subscribe(seen.append)
        for uri in ("iii://skills", "iii://a"):
            await it.client.subscribe(uri)

        await it.skill("a", "# One")
        await it.client.assert_notification("resources/list_changed")
        await it.client.assert_notification("resources/updated", uri="iii://a")
        await it.client.assert_notification("resources/updated", uri="iii://skills")
        await it.skill("a", "# One\n\nMore.")
        await it.client.assert_notification("resources/updated", uri="iii://a")
        assert len(seen) == 1

        await it.skill("a", "# Two")
        await it.prompt("p")
        await it.client.assert_notification("prompts/list_changed")
        await it.call("skills::unregister", {"id": "a"})
        await it.call("prompts::unregister", {"name": "p"})
        await it.call("prompts::unregister", {"name": "p"})
        assert len(seen) == 5
        assert [row["uri"] for row in await it.client.list_resources()] == ["iii://skills"]
        assert len(it.hub.registry[Kind.PROMPT]) == 0


@asynchronous
async def test_a_name_that_the_hub_uses_already_is_refused() -> None:
    async with served() as it:

        @it.hub.prompt
        def greet() -> str:
            return "Hi"

        @it.hub.resource("iii://taken")
        def taken() -> str:
            return "Hi"

        assert 'There is a prompt "greet" already' in await it.refusal(
            "prompts::register", {"name": "greet", "description": "x", "function_id": "a::b"}
        )
        assert 'There is a skill "taken" already' in await it.refusal("skills::register", {"id": "taken", "skill": "x"})
        assert await it.call("prompts::list") == {"prompts": []}
        assert it.changes == []


@asynchronous
async def test_changes_by_others_in_the_store_are_applied_by_a_refresh() -> None:
    async with served("state") as it:
        row = {"id": "a", "skill": "# A", "registered_at": "1"}
        it.engine.state["skills", "a"] = row
        it.engine.state["skills", "odd"] = "odd"
        await it.content.refresh()
        assert it.changes == [("skills", "register", "a")]
        assert "iii://a" in [found["uri"] for found in await it.client.list_resources()]

        await it.content.refresh()
        assert len(it.changes) == 1
        it.engine.state["skills", "a"] = {**row, "skill": "# B", "registered_at": "2"}
        await it.content.refresh()
        assert "B" in [found["name"] for found in await it.client.list_resources()]

        del it.engine.state["skills", "a"]
        await it.content.refresh()
        assert it.changes[-1] == ("skills", "unregister", "a")
        assert [found["uri"] for found in await it.client.list_resources()] == ["iii://skills"]


@asynchronous
async def test_a_refresh_does_not_undo_changes_made_while_it_reads() -> None:
    async with served("state") as it:
        before, reading, go_on = it.engine.functions["state::list"], asyncio.Event(), asyncio.Event()

        async def slow(given: Any) -> Any:
            found = before(given)
            reading.set()
            await go_on.wait()
            return found

        await it.skill("old")
        it.engine.functions["state::list"] = slow
        loading = asyncio.ensure_future(it.content.refresh())
        await reading.wait()
        await it.skill("new")
        await it.call("skills::unregister", {"id": "old"})
        go_on.set()
        await loading

        assert [found["uri"] for found in await it.client.list_resources()] == ["iii://new", "iii://skills"]


@asynchronous
async def test_a_stored_prompt_with_a_taken_name_is_added_when_the_name_is_free() -> None:
    async with served("state") as it:

        @it.hub.prompt
        def p() -> str:
            return "Hi"

        mine = it.hub.registry.prompt("p")
        kept = {"name": "p", "description": "Kept.", "arguments": [], "function_id": "a::b", "registered_at": "1"}
        it.engine.state["prompts", "p"] = kept
        await it.content.refresh()
        assert it.hub.registry.prompt("p") is mine

        it.hub.registry.remove([mine])
        await it.content.refresh()
        assert it.hub.registry.prompt("p").definition.description == "Kept."


@asynchronous
async def test_ten_thousand_skills_are_loaded_in_one_change() -> None:
    registry = Registry()
    seen: list[Change] = []
    registry.subscribe(seen.append)
    async with desk("state", registry=registry) as it:
        for number in range(10_000):
            skill_id = f"s{number:05}"
            it.engine.state["skills", skill_id] = {"id": skill_id, "skill": f"# {number}\n\nx", "registered_at": "1"}
        await it.content.refresh()

        assert len(seen) == 1
        assert it.changes == []
        assert sum(len(table) for table in registry.tables.values()) == 10_003
        assert "did you mean" in await it.unread("iii://s0999")
        await it.content.stop()
        assert sum(len(table) for table in registry.tables.values()) == 0


@asynchronous
async def test_a_skill_is_found_by_its_title_and_first_paragraph() -> None:
    async with served() as it:
        await it.skill("resend", "# Resend\n\nEmail provider.\n\nMore.")
        item = to_item(it.hub.registry.resource("iii://resend"), lambda _: None)

        assert item is not None
        assert (item.id, item.kind, item.title, item.description) == (
            "iii://resend",
            "document",
            "Resend",
            "Email provider.",
        )


@asynchronous
async def test_the_index_is_readable_while_the_store_is_unreachable() -> None:
    registry = Registry()
    async with desk(UnreachableStore(), registry=registry) as it:
        with pytest.raises(Exception, match="the state is away"):
            await it.content.refresh()

        assert registry.resource("iii://skills")
        assert registry.resource("iii://any/thing")


@asynchronous
async def test_a_change_is_announced_even_if_its_caller_is_cancelled() -> None:
    async with desk("state") as it:
        writing, go_on, answer = asyncio.Event(), asyncio.Event(), asyncio.Event()
        before = it.engine.functions["state::set"]

        async def slow(given: Any) -> None:
            writing.set()
            await go_on.wait()
            before(given)

        it.engine.functions["state::set"] = slow
        it.on_change = answer.set
        registering = asyncio.ensure_future(it.skill("a"))
        await writing.wait()
        registering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await registering
        go_on.set()
        await answer.wait()
