"""Session values and messages of handlers that make mistakes."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from tests.protocol.conftest import Peer, asynchronous, in_session, request, stateless, until
from tests.transports.http.conftest import browsing
from waypost import Context, Hub
from waypost.errors import StoreError
from waypost.protocol.session import LegacySession
from waypost.testing import connect
from waypost.wire.definitions import Implementation
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28


async def distant(hub: Hub) -> LegacySession:
    """A session that a client can come back to."""
    return await hub.engine.sessions.create(LATEST_LEGACY, Implementation("far", "1"), {})


@pytest.mark.parametrize("value", [object(), {"deep": [object()]}, "\ud800"])
@asynchronous
async def test_a_value_that_cannot_be_stored_does_not_prevent_other_values(value: Any) -> None:
    hub = Hub("hub", version="1")
    session = await distant(hub)
    await session.put("before", 1)
    with pytest.raises(StoreError, match="cannot be stored as JSON"):
        await session.put("bad", value)
    await session.put("after", 2)
    assert dict(session.assigns) == {"before": 1, "after": 2}
    stored = await hub.store.sessions.load(session.id)
    assert stored is not None
    assert stored.assigns == {"before": 1, "after": 2}
    await hub.stop()


@asynchronous
async def test_a_value_is_the_same_before_and_after_a_session_is_restored() -> None:
    hub = Hub("hub", version="1")
    session = await distant(hub)
    given = {"day": date(2026, 1, 2), "pair": (1, 2), "bag": {3}, 4: b"x"}
    await session.put("kept", given)
    given["day"] = "changed since"

    stored = await hub.store.sessions.load(session.id)
    assert stored is not None
    assert dict(session.assigns) == stored.assigns
    assert stored.assigns == {"kept": {"day": "2026-01-02", "pair": [1, 2], "bag": [3], "4": "eA=="}}
    await hub.stop()


@asynchronous
async def test_a_session_continues_after_a_value_that_cannot_be_stored() -> None:
    hub = Hub("hub", version="1")

    @hub.tool(input_schema={"type": "object"})
    async def keep(args: dict[str, Any], ctx: Context) -> str:
        """Keep something."""
        await ctx.session.put("kept", object() if args.get("bad") else "fine")
        return str(ctx.session.assigns["kept"])

    async with browsing(hub) as web:
        visitor = await web.session()
        bad = await visitor.ask("tools/call", {"name": "keep", "arguments": {"bad": True}})
        assert "A value cannot be stored as JSON" in bad["result"]["content"][0]["text"]
        assert (await visitor.ask("tools/call", {"name": "keep"}))["result"]["content"][0]["text"] == "fine"


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (datetime(2020, 1, 1), "2020-01-01T00:00:00"),
        (datetime(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00+00:00"),
        (date(2020, 1, 2), "2020-01-02"),
        ("yesterday", "yesterday"),
    ],
)
@asynchronous
async def test_the_timestamp_of_an_update_is_sent_as_text(timestamp: Any, answer: str) -> None:
    async with in_session(Hub("hub", version="1")) as peer:
        session = only(peer)
        session.subscriptions.add("a://b")
        await session.send_resource_updated("a://b", timestamp)
        assert await peer.hears("notifications/resources/updated") == [
            {"uri": "a://b", "_meta": {"timestamp": answer}},
        ]


@asynchronous
async def test_a_list_that_does_not_exist_cannot_change() -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def change(ctx: Context) -> str:
        """Tell of a list that nobody has."""
        await ctx.session.notify_changed("bogus")  # type: ignore[arg-type]  # that is the mistake
        return "told"

    refusal = "There is no list 'bogus' that could change; there are tools, prompts, resources."
    async with in_session(hub) as peer:
        with pytest.raises(ValueError, match=refusal):
            await hub.notify_changed("bogus")  # type: ignore[arg-type]  # that is the mistake
        for make in (request, stateless):
            result = await peer.result(make(make.__name__, "tools/call", {"name": "change"}))
            assert result["content"][0]["text"] == f"Tool crashed: ValueError: {refusal}"
        await hub.notify_changed("tools")
        await until(lambda: peer.notifications("notifications/tools/list_changed"))
        assert not peer.notifications("notifications/bogus/list_changed")


def only(peer: Peer) -> LegacySession:
    (session,) = peer.hub.engine.sessions
    return session


@pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
@asynchronous
async def test_a_value_that_cannot_be_stored_is_refused_over_transports_that_store_nothing(version: str) -> None:
    hub = Hub("hub", version="1")

    @hub.tool
    async def keep(ctx: Context) -> str:
        """Keep something."""
        with pytest.raises(StoreError, match="cannot be stored as JSON"):
            await ctx.session.put("bad", object())
        await ctx.session.put("pair", (1, 2))
        return str(ctx.session.assigns["pair"])

    async with connect(hub, version=version) as client:
        assert (await client.call_tool("keep"))["content"][0]["text"] == "[1, 2]"
    await hub.stop()
