"""Streams: those that stateless clients listen to, the one of a session, and coming back to any."""

from typing import Any

import pytest

from tests.protocol.conftest import RequestId, assorted_hub, asynchronous, request, stateless
from tests.transports.http.conftest import EVENTS, Call, Web, browsing

# Listen streams.


def listening(web: Web, request_id: RequestId = 7, **wants: Any) -> Call:
    return web.open_modern(stateless(request_id, "subscriptions/listen", {"notifications": wants}))


@asynchronous
async def test_a_listen_stream_is_acknowledged_first_and_tags_its_notifications() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        call = listening(web, 7, toolsListChanged=True, resourceSubscriptions=["docs://readme"])
        first = await call.event()
        assert call.headers["content-type"] == EVENTS
        assert call.headers["cache-control"] == "no-cache, no-transform"
        assert call.headers["x-accel-buffering"] == "no"
        assert first.message["method"] == "notifications/subscriptions/acknowledged"
        await hub.notify_changed("tools")
        await hub.notify_changed("prompts")
        await hub.notify_resource_updated("docs://readme")
        seen = [first, await call.event(), await call.event()]
        assert [event.message["params"]["_meta"] for event in seen] == [
            {"io.modelcontextprotocol/subscriptionId": 7}
        ] * 3
        assert [event.message["method"] for event in seen[1:]] == [
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]
        assert all(event.id is None and event.retry is None for event in seen)


@asynchronous
async def test_several_listen_streams_live_side_by_side_and_end_on_their_own() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        first, second = listening(web, 7, toolsListChanged=True), listening(web, "7", toolsListChanged=True)
        await first.event()
        await second.event()
        assert len(hub.engine.broadcast) == 2
        await first.disconnect()
        assert len(hub.engine.broadcast) == 1
        await hub.notify_changed("tools")
        assert (await second.event()).message["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "7"}


@asynchronous
async def test_a_listen_stream_needs_a_client_that_accepts_events() -> None:
    message = stateless(1, "subscriptions/listen", {"notifications": {}})
    async with browsing(assorted_hub()) as web:
        call = await web.open_modern(message, {"accept": "application/json"}).done()
        assert call.status == 406


# The session's own stream, and coming back to any.


@asynchronous
async def test_notifications_outside_a_request_come_on_the_sessions_stream() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor, other = await web.session(), await web.session()
        await visitor.ask("resources/subscribe", {"uri": "docs://readme"})
        stream, others = visitor.listen(), other.listen()
        await stream.started()
        await others.started()
        await hub.notify_resource_updated("docs://readme")
        await hub.notify_changed("tools")
        answer = [await stream.event(), await stream.event()]
        assert [event.message["method"] for event in answer] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        assert all(event.event == "message" and event.id for event in answer)
        assert (await others.event()).message["method"] == "notifications/tools/list_changed"


@asynchronous
async def test_notifications_from_before_a_stream_was_opened_are_sent_when_it_opens() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor = await web.session()
        await hub.notify_changed("tools")
        assert (await visitor.listen().event()).message["method"] == "notifications/tools/list_changed"


@asynchronous
async def test_a_second_stream_of_a_session_is_a_conflict_until_the_first_is_gone() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        first = await visitor.listen().started()
        assert (await visitor.listen().done()).status == 409
        await first.disconnect()
        assert (await visitor.listen().started()).status == 200


@asynchronous
async def test_a_resumed_stream_replays_only_later_events() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor = await web.session()
        first = visitor.listen()
        for kind in ("tools", "prompts", "resources"):
            await hub.notify_changed(kind)
        seen = [await first.event() for _ in range(3)]
        await first.disconnect()
        await hub.notify_changed("tools")
        again = visitor.listen(seen[0].id)
        answer = [await again.event() for _ in range(3)]
        assert [event.message["method"].split("/")[1] for event in answer] == ["prompts", "resources", "tools"]
        assert [event.id for event in answer[:2]] == [event.id for event in seen[1:]]


@asynchronous
async def test_resuming_a_stream_never_replays_events_of_another() -> None:
    hub = assorted_hub()
    chatter = {"name": "chatter", "arguments": {"levels": ["error", "alert"]}}
    async with browsing(hub) as web:
        visitor, other = await web.session(), await web.session()
        call = await visitor.post(request("mine", "tools/call", chatter))
        second = await visitor.post(request("later", "tools/call", chatter))
        await other.post(request("foreign", "tools/call", chatter))
        await hub.notify_changed("tools")
        primed = call.events()[0]
        again = await visitor.listen(primed.id).done()
        assert again.messages() == call.messages()
        assert again.messages()[-1]["id"] == "mine"
        ids = [event.id for event in call.events() + second.events()]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "event_id", ["", "x", "g", "g_", "g_x", "s99_0", "_1", "g_-1", "g_1.5", "g_²", "g_99", "g_" + "9" * 5000]
)
@asynchronous
async def test_an_event_id_that_was_never_given_is_a_bad_request(event_id: str) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        call = visitor.listen(event_id)
        await call.started()
        assert call.status == 400
        await call.done()


@asynchronous
async def test_a_session_whose_reader_fell_behind_can_open_its_stream_again() -> None:
    hub = assorted_hub()
    async with browsing(hub) as web:
        visitor = await web.session()
        session = hub.engine.sessions.get(visitor.id)
        assert session is not None
        reader = session.streams.general.follow(0)
        await hub.notify_changed("tools")
        assert await anext(reader) is not None
        for _ in range(3000):
            await hub.notify_changed("tools")
        assert [event async for event in reader] == []
        again = visitor.listen()
        await again.started()
        await hub.notify_changed("prompts")
        await again.until(lambda: b"prompts/list_changed" in again.body)
