"""Prompts, resources and templates of upstreams: lists, reads, subscriptions, quarantine and name clashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import imports_of, stdio, write
from tests.gateway.passers import client_of, downstream, importing, started, transports, upstream
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.pools import listening
from tests.upstreams.servers.curious import curious
from waypost import Hub, RemoteError
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28


@downstream
@upstream
@transports
def test_prompts_resources_and_templates_are_offered(tmp_path: Path, version: str, era: str, transport: str) -> None:
    @asynchronous
    async def offered() -> None:
        async with client_of(tmp_path, version, era, transport) as (client, _):
            prompts = {one["name"]: one for one in await client.list_prompts()}
            assert list(prompts) == ["up.ask_first", "up.greet"]
            assert (prompts["up.greet"]["title"], prompts["up.greet"]["description"]) == ("Greeting", "Greet somebody.")
            assert [one["name"] for one in prompts["up.greet"]["arguments"]] == ["name", "tone"]
            assert (await client.get_prompt("up.greet", {"name": "Ada"})).text == "Greet Ada, warm."
            resources = {one["uri"]: one for one in await client.list_resources()}
            assert list(resources) == ["notes://picture", "notes://today"]
            today = resources["notes://today"]
            assert (today["name"], today["title"], today["mimeType"]) == ("up.today", "up: Today", "text/plain")
            assert (await client.read_resource("notes://today")).text == "Sunny."
            (picture,) = (await client.read_resource("notes://picture"))["contents"]
            assert picture == {"uri": "notes://picture", "blob": "cG5n", "mimeType": "image/png"}
            (day,) = await client.list_resource_templates()
            assert (day["uriTemplate"], day["name"]) == ("notes://day/{day}", "up.day")
            (read,) = (await client.read_resource("notes://day/1%2F2"))["contents"]
            assert (read["uri"], read["text"]) == ("notes://day/1%2F2", "Notes of 1/2.")

    offered()


@downstream
@upstream
def test_an_error_of_the_upstream_about_a_resource_or_prompt_is_passed_on(
    tmp_path: Path, version: str, era: str
) -> None:
    @asynchronous
    async def unknown() -> None:
        async with client_of(tmp_path, version, era) as (client, _):
            with pytest.raises(RemoteError, match="not found") as missing:
                await client.read_resource("notes://nowhere")
            assert missing.value.code == (-32602 if version == V2026_07_28 else -32002)
            with pytest.raises(RemoteError, match="name") as wrong:
                await client.get_prompt("up.greet", {"tone": "cold"})
            assert wrong.value.code == -32602

    unknown()


@upstream
def test_a_session_gets_updates_of_a_resource_while_it_is_subscribed(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def check_updates() -> None:
        async with client_of(tmp_path, LATEST_LEGACY, era) as (client, far):
            assert far is not None
            await client.subscribe("notes://today")
            await until(lambda: far.engine.broadcast.subscribed_uris() == {"notes://today"})
            await client.call_tool("up.rewrite")
            await client.assert_notification("resources/updated", uri="notes://today", within=60)
            await client.refute_notification("resources/updated")
            await client.unsubscribe("notes://today")
            await until(lambda: far.engine.broadcast.subscribed_uris() == set())
            await client.call_tool("up.rewrite")
            await client.refute_notification("resources/updated")

    check_updates()


@upstream
def test_a_listen_stream_gets_updates_of_a_resource_while_it_is_open(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def check_updates() -> None:
        async with client_of(tmp_path, V2026_07_28, era) as (client, far):
            assert far is not None
            async with client.listen(resourceSubscriptions=["notes://today", "notes://day/1"]):
                await until(lambda: far.engine.broadcast.subscribed_uris() == {"notes://today", "notes://day/1"})
                await client.call_tool("up.rewrite")
                await client.assert_notification("resources/updated", uri="notes://today", within=60)
            await until(lambda: far.engine.broadcast.subscribed_uris() == set())

    check_updates()


@upstream
def test_the_subscriptions_of_a_client_end_when_it_disconnects(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def check_disconnect() -> None:
        async with importing(tmp_path, era) as (hub, far):
            assert far is not None
            async with connect(hub, LATEST_LEGACY) as client:
                await client.subscribe("notes://today")
                await until(lambda: far.engine.broadcast.subscribed_uris() == {"notes://today"})
            await until(lambda: far.engine.broadcast.subscribed_uris() == set())

    check_disconnect()


@upstream
def test_a_restarted_upstream_session_is_subscribed_again(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with importing(tmp_path, era) as (hub, far), connect(hub, LATEST_LEGACY) as client:
            assert far is not None
            await client.subscribe("notes://today")
            await until(lambda: far.engine.broadcast.subscribed_uris() == {"notes://today"})
            await imports_of(hub).restart("up")
            await client.unsubscribe("notes://day/1")  # has no effect
            await until(lambda: len(far.engine.sessions) == (1 if era == LATEST_LEGACY else 0))
            await until(lambda: far.engine.broadcast.subscribed_uris() == {"notes://today"})
            assert imports_of(hub).is_needed("up")
            await client.call_tool("up.rewrite")
            await client.assert_notification("resources/updated", uri="notes://today", within=60)

    scenario()


@upstream
def test_new_prompts_and_resources_cause_one_notification_each(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with client_of(tmp_path, LATEST_LEGACY, era) as (client, _):
            client.notifications.clear()
            await client.call_tool("up.grow")
            await client.assert_notification("prompts/list_changed", within=60)
            if not any(note["method"] == "notifications/resources/list_changed" for note in client.notifications):
                await client.assert_notification("resources/list_changed", within=60)
            assert "up.extra" in [one["name"] for one in await client.list_prompts()]
            await client.refute_notification("prompts/list_changed")
            await client.refute_notification("tools/list_changed")

    scenario()


@asynchronous
async def test_stored_prompts_and_resources_are_offered_without_starting_the_upstream(tmp_path: Path) -> None:
    file = write(tmp_path, {"up": stdio("curious", LATEST_LEGACY)}, [{"connection": "up"}])
    async with started(file):
        pass
    async with started(file) as hub, connect(hub) as client:
        assert "up.greet" in [one["name"] for one in await client.list_prompts()]
        assert len(await client.list_resources()) == 2
        assert imports_of(hub).get_row("up").state == "not started"
        assert (await client.read_resource("notes://day/1")).text == "Notes of 1."
        assert imports_of(hub).get_row("up").state == "running"


@asynchronous
async def test_prompts_are_selected_by_name_and_include_leaves_out_all_resources(tmp_path: Path) -> None:
    async with importing(tmp_path, V2026_07_28, include=["paint", "greet"]) as (hub, _), connect(hub) as client:
        assert [one["name"] for one in await client.list_tools()] == ["up.paint"]
        assert [one["name"] for one in await client.list_prompts()] == ["up.greet"]
        assert imports_of(hub).get_row("up").resources == []
    async with importing(tmp_path, V2026_07_28, exclude=["greet", "today"]) as (hub, _), connect(hub) as client:
        assert [one["name"] for one in await client.list_prompts()] == ["up.ask_first"]
        assert [one["uri"] for one in await client.list_resources()] == ["notes://picture"]


def ours(name: str) -> str:
    """A resource of the hub itself."""
    return f"ours: {name}"


@asynchronous
async def test_a_uri_in_use_stays_with_its_owner(tmp_path: Path) -> None:
    first, second = curious(V2026_07_28, "first"), curious(V2026_07_28, "second")

    @second.resource("own://thing", name="thing")
    def thing() -> str:
        return "second's"

    async with listening(first.asgi()) as one, listening(second.asgi()) as two:
        connections = {"one": {"kind": "mcp", "url": one}, "two": {"kind": "mcp", "url": two}}
        file = write(tmp_path, connections, [{"connection": "one"}])
        async with started(file) as hub, connect(hub) as client:
            hub.resource("own://{name}", name="own")(ours)
            write(tmp_path, connections, [{"connection": "one"}, {"connection": "two"}])
            assert await hub.reload()
            await imports_of(hub).wait_until_listed()
            assert {row["name"] for row in await client.list_resources()} == {"one.today", "one.picture"}
            left = {row.tool: row.why for row in imports_of(hub).get_row("two").left_out}
            assert left["resource notes://today"] == "Something else is read at notes://today."
            assert left["resource own://thing"] == "Something else is read at own://thing."
            assert "Another template" in left["template notes://day/{day}"]
            assert (await client.read_resource("own://thing")).text == "ours: thing"
            assert "two.greet" in [row["name"] for row in await client.list_prompts()]
    await first.stop()
    await second.stop()


@asynchronous
async def test_a_resource_of_the_hub_takes_precedence_even_when_added_later(tmp_path: Path) -> None:
    async with importing(tmp_path, V2026_07_28) as (hub, _), connect(hub) as client:
        assert (await client.read_resource("notes://today")).text == "Sunny."
        hub.resource("notes://{name}", name="zz")(ours)
        assert (await client.read_resource("notes://today")).text == "ours: today"
        assert (await client.read_resource("notes://day/1")).text == "Notes of 1."


async def seen(client: TestClient) -> tuple[list[str], list[str]]:
    """The prompts and resources that a client lists."""
    prompts = [one["name"] for one in await client.list_prompts()]
    return prompts, [one["uri"] for one in await client.list_resources()]


async def changed(folder: Path, trust: str, check: Any) -> None:
    far: Hub = curious(V2026_07_28)
    async with listening(far.asgi()) as url:
        file = write(folder, {"up": {"kind": "mcp", "url": url}}, [{"connection": "up", "trust": trust}])
        async with started(file) as hub, connect(hub) as client:
            await client.call_tool("up.grow")
            await until(lambda: len(imports_of(hub).get_row("up").held) == 2)
            await check(hub, client)
    await far.stop()


@asynchronous
async def test_new_prompts_and_resources_are_held_back_until_they_are_approved(tmp_path: Path) -> None:
    async def held(hub: Hub, client: TestClient) -> None:
        row = imports_of(hub).get_row("up")
        assert {one.tool for one in row.held} == {"prompt extra", "resource notes://extra"}
        prompts, resources = await seen(client)
        assert "up.extra" not in prompts
        assert "notes://extra" not in resources
        with pytest.raises(RemoteError, match='approve up "prompt extra"'):
            await client.get_prompt("up.extra")
        with pytest.raises(RemoteError, match="held back"):
            await client.read_resource("notes://extra")
        assert await imports_of(hub).approve("up", "prompt extra", None, "me") == ["prompt extra"]
        assert (await client.get_prompt("up.extra")).text == "More."
        await imports_of(hub).approve("up", None, None, "me")
        assert (await client.read_resource("notes://extra")).text == "More."

    await changed(tmp_path, "quarantine", held)


@asynchronous
async def test_new_prompts_and_resources_are_only_marked_with_trust_flag(tmp_path: Path) -> None:
    async def marked(hub: Hub, client: TestClient) -> None:
        (extra,) = [one for one in await client.list_prompts() if one["name"] == "up.extra"]
        assert extra["_meta"]["waypost/trust"] == "new"
        assert (await client.read_resource("notes://extra")).text == "More."

    await changed(tmp_path, "flag", marked)
