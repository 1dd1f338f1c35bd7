"""Sessions, streams and calls of a revoked key end at once, without waiting for its next request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tests.policy.issuer import NOW, Clock
from tests.protocol.conftest import asynchronous, idle, initialization, request, stateless
from tests.transports.http.conftest import Call, Web, browsing
from tests.transports.http.guarded import KEYS, READER, WRITER, bearer, guarded, sign_in, with_keys
from waypost import Context, Hub, Session
from waypost.capabilities.principals import Principal
from waypost.identity import Authentication, Key, digest
from waypost.identity.keys import KeyChange
from waypost.protocol.engine import Engine
from waypost.protocol.legacy import SESSION_ENDED
from waypost.protocol.responses import KEY_REVOKED
from waypost.wire.versions import LEGACY

PROMPTLY = 60.0
"""How long an end may take at most; what would not end by itself never does."""

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
OTHER = "wp_" + "o" * 43
WAIT = {"name": "wait", "arguments": {}}


@asynccontextmanager
async def served(hub: Hub) -> AsyncIterator[tuple[Web, asyncio.Event]]:
    """A hub with a tool that waits for ever, and an event that says that it was stopped."""
    stopped = asyncio.Event()

    @hub.tool
    async def wait(ctx: Context) -> str:
        """Wait for ever."""
        await ctx.log("error", "waiting")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with browsing(hub) as web:
        yield web, stopped


async def ended(call: Call) -> Call:
    """The response, which is over by itself."""
    async with asyncio.timeout(PROMPTLY):
        return await call.done()


def keys(hub: Hub) -> Authentication:
    assert hub.auth is not None
    return hub.auth


def listening(web: Web, credential: str) -> Call:
    wants = {"notifications": {"toolsListChanged": True}}
    return web.open_modern(stateless(1, "subscriptions/listen", wants), bearer(credential))


def waiting(web: Web, credential: str) -> Call:
    return web.open_modern(stateless(2, "tools/call", WAIT, **{LOG_LEVEL: "info"}), bearer(credential))


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_the_stream_of_a_session_ends_with_its_key_and_the_session_is_gone(version: str) -> None:
    reasons: list[str] = []
    hub = with_keys()

    @hub.on("terminate")
    async def over(reason: str, session: Session) -> None:
        reasons.append(reason)

    async with served(hub) as (web, _):
        writer, reader = await sign_in(web, WRITER, version), await sign_in(web, READER, version)
        streams = [await visitor.listen().started() for visitor in (writer, reader)]

        keys(hub).keys.revoke("writer")

        await ended(streams[0])
        assert hub.engine.sessions.get(writer.id) is None
        assert hub.engine.sessions.get(reader.id) is not None
        assert not streams[1].complete
        assert reasons == ["revoked"]

        keys(hub).keys.add(Key("writer", digest(OTHER)))
        assert (await writer.post(request(1, "ping"), bearer(OTHER))).status == 404


@asynchronous
async def test_a_listen_stream_ends_with_its_key_and_those_of_others_go_on() -> None:
    hub = with_keys()
    async with served(hub) as (web, _):
        streams = [listening(web, credential) for credential in (WRITER, READER)]
        for stream in streams:
            await stream.event()

        keys(hub).keys.revoke("writer")

        await ended(streams[0])
        await hub.notify_changed("tools")
        assert (await streams[1].event()).message["method"] == "notifications/tools/list_changed"
        assert len(hub.engine.broadcast) == 1


@asynchronous
async def test_a_long_call_without_a_session_ends_with_its_key() -> None:
    hub = with_keys()
    async with served(hub) as (web, stopped):
        call = waiting(web, WRITER)
        await call.event()

        keys(hub).keys.revoke("writer")

        assert (await ended(call)).messages()[-1]["error"]["message"] == KEY_REVOKED.message
        assert stopped.is_set()


@asynchronous
async def test_a_long_call_of_a_session_ends_with_its_key() -> None:
    hub = with_keys()
    async with served(hub) as (web, stopped):
        call = (await sign_in(web, WRITER)).open(request(2, "tools/call", WAIT))
        await call.event()

        keys(hub).keys.revoke("writer")

        assert (await ended(call)).messages()[-1]["error"]["message"] == KEY_REVOKED.message
        assert stopped.is_set()


@asynchronous
async def test_calls_with_one_id_all_end_with_their_key_and_with_their_session() -> None:
    """The latest call of an id must not hide an earlier one, or a client could keep it from ending."""
    for by_key in (True, False):
        hub = with_keys()
        async with served(hub) as (web, _):
            writer = await sign_in(web, WRITER)
            calls = []
            for _ in range(3):
                calls.append(writer.open(request(2, "tools/call", WAIT)))
                await calls[-1].event()

            if by_key:
                keys(hub).keys.revoke("writer")
            else:
                assert (await writer.delete()).status == 204

            ends = [(await ended(call)).messages()[-1]["error"]["message"] for call in calls]
            assert ends == [KEY_REVOKED.message if by_key else SESSION_ENDED.message] * 3


@asynchronous
async def test_sessions_and_streams_end_when_their_key_expires() -> None:
    clock = Clock()
    soon = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=10)
    hub = guarded(Authentication([Key("guest", digest(WRITER), expires=soon)], clock=clock))
    async with served(hub) as (web, _):
        visitor, stream = await sign_in(web, WRITER), listening(web, WRITER)
        own = await visitor.listen().started()
        await stream.event()

        clock.now += 11

        await ended(stream)
        await ended(own)
        assert hub.engine.sessions.get(visitor.id) is None


@asynchronous
async def test_sessions_and_streams_of_a_revoked_stored_key_end() -> None:
    hub = with_keys()
    async with served(hub) as (web, _):
        made = await hub.keys.create("made")
        visitor, stream = await sign_in(web, made), listening(web, made)
        await stream.event()

        await hub.keys.revoke("made")

        await ended(stream)
        assert hub.engine.sessions.get(visitor.id) is None


@asynchronous
async def test_anonymous_sessions_end_when_anonymous_access_is_turned_off() -> None:
    hub = guarded(Authentication())
    async with served(hub) as (web, _):
        visitor = await web.session()
        stream = await visitor.listen().started()

        keys(hub).exchange(Authentication(anonymous=False))

        await ended(stream)
        assert hub.engine.sessions.get(visitor.id) is None


@asynchronous
async def test_a_session_goes_on_with_another_key_of_the_same_id_and_the_stream_of_the_first_ends() -> None:
    old, new = (Key("ci", digest(credential)) for credential in (WRITER, READER))
    hub = guarded(Authentication([old]))
    async with served(hub) as (web, stopped):
        visitor = await sign_in(web, WRITER)
        stream, call = await visitor.listen().started(), visitor.open(request(2, "tools/call", WAIT))
        await call.event()

        keys(hub).exchange(Authentication([new]))

        await ended(stream)
        assert (await ended(call)).messages()[-1]["error"]["message"] == KEY_REVOKED.message
        assert stopped.is_set()
        visitor.headers.update(bearer(READER))
        assert (await visitor.post(request(3, "ping"))).status == 200
        assert (await visitor.listen().started()).status == 200


@asynchronous
async def test_the_stream_of_a_call_ends_with_the_key_that_resumed_it_and_the_call_goes_on() -> None:
    first, second = (Key("ci", digest(credential)) for credential in (WRITER, READER))
    hub = guarded(Authentication([first, second]))
    async with served(hub) as (web, stopped):
        visitor = await sign_in(web, WRITER)
        call = visitor.open(request(2, "tools/call", WAIT))
        begun = await call.event()
        resumed = await visitor.listen(begun.id, headers=bearer(READER)).started()
        assert (await resumed.event()).message["method"] == "notifications/message"

        keys(hub).exchange(Authentication([first]))

        await ended(resumed)
        assert not stopped.is_set()
        again = await visitor.listen(begun.id).started()
        assert (await again.event()).message["method"] == "notifications/message"


@asynchronous
async def test_a_stream_of_a_key_with_changed_scopes_goes_on_with_the_new_ones() -> None:
    hub = guarded(Authentication([Key("ci", digest(WRITER), scopes=("notes:read",))]))

    @hub.resource("notes://news", subscribable=True, scopes=["notes:read"])
    async def news() -> str:
        """News for some."""
        return "news"

    async with served(hub) as (web, _):
        wants = {"notifications": {"resourceSubscriptions": ["notes://open", "notes://news"]}}
        stream = web.open_modern(stateless(1, "subscriptions/listen", wants), bearer(WRITER))
        await stream.event()

        keys(hub).exchange(Authentication([Key("ci", digest(WRITER))]))
        await idle()
        await hub.notify_resource_updated("notes://news")
        await hub.notify_resource_updated("notes://open")

        assert (await stream.event()).message["params"]["uri"] == "notes://open"
        assert not stream.complete


@asynchronous
async def test_only_clients_of_a_key_with_changed_scopes_get_list_changed() -> None:
    other = Key("other", digest(READER))
    hub = guarded(Authentication([Key("ci", digest(WRITER)), other]))
    async with served(hub) as (web, _):
        streams = [listening(web, credential) for credential in (WRITER, READER)]
        for stream in streams:
            await stream.event()
        own = await (await sign_in(web, WRITER)).listen().started()

        keys(hub).exchange(Authentication([Key("ci", digest(WRITER), scopes=("notes:write",)), other]))

        async with asyncio.timeout(PROMPTLY):
            assert (await streams[0].event()).message["method"] == "notifications/tools/list_changed"
            outcome = [(await own.event()).message["method"] for _ in range(3)]
        assert sorted(outcome) == [f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")]
        keys(hub).keys.revoke("other")
        assert b"list_changed" not in (await ended(streams[1])).body


@asynchronous
async def test_a_reload_that_keeps_a_key_keeps_its_streams() -> None:
    hub = guarded(Authentication([Key("ci", digest(WRITER))]))
    async with served(hub) as (web, _):
        stream = listening(web, WRITER)
        await stream.event()

        keys(hub).exchange(Authentication([Key("ci", digest(WRITER)), Key("more", digest(READER))]))
        await idle()
        await hub.notify_changed("tools")

        assert (await stream.event()).message["method"] == "notifications/tools/list_changed"
        keys(hub).keys.revoke("ci")
        await ended(stream)


@asynchronous
async def test_calls_end_with_a_key_whose_roles_were_changed_while_they_ran() -> None:
    hub = guarded(Authentication([Key("ci", digest(WRITER), roles=("agent",))]))
    async with served(hub) as (web, _):
        calls = [waiting(web, WRITER), (await sign_in(web, WRITER)).open(request(2, "tools/call", WAIT))]
        for call in calls:
            await call.event()

        keys(hub).exchange(Authentication([Key("ci", digest(WRITER))]))
        await idle()
        assert not any(call.complete for call in calls)
        keys(hub).keys.revoke("ci")

        for call in calls:
            await ended(call)


class Fickle(Authentication):
    """Authentication that accepts a key and revokes it while the request is being read."""

    engine: Engine

    def known(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        found = super().known(headers)
        if found is not None:
            self.engine.apply_key_changes([KeyChange(found, None, ended=True)])
        return found


@asynchronous
async def test_a_request_whose_key_is_revoked_while_it_is_read_opens_nothing() -> None:
    auth = Fickle([Key("writer", digest(WRITER))])
    hub = guarded(auth)
    auth.engine = hub.engine
    async with served(hub) as (web, _):
        answers = [await ended(listening(web, WRITER)), await web.post(initialization(), bearer(WRITER))]

        assert {answer.json["error"]["message"] for answer in answers} == {KEY_REVOKED.message}
        assert len(hub.engine.sessions) == len(hub.engine.broadcast) == 0


@pytest.mark.parametrize("path", ["/mcp", "/api/v1/keys"])
@asynchronous
async def test_a_request_whose_key_is_revoked_while_its_body_arrives_is_refused(path: str) -> None:
    hub = guarded(Authentication([Key("admin", digest(WRITER), roles=("admin",)), *KEYS[1:]]))
    asked = {"id": "mine"} if path != "/mcp" else initialization()
    body = json.dumps(asked).encode()
    async with served(hub) as (web, _):
        call = web.open("POST", (body[:5], body[5:]), bearer(WRITER), path)
        call.more.clear()
        await idle()

        keys(hub).keys.revoke("admin")
        await idle()
        call.more.set()

        assert (await ended(call)).status == 401
        assert len(hub.engine.sessions) == len(await hub.keys.entries()) == 0


def test_streams_in_a_second_loop_end_with_their_key() -> None:
    hub = with_keys()

    @asynchronous
    async def again() -> None:
        await hub.start()
        async with served(hub) as (web, _):
            made = await hub.keys.create("made")
            stream = listening(web, made)
            await stream.event()

            await hub.keys.revoke("made")

            await ended(stream)

    asyncio.run(hub.start())
    again()


def test_a_key_can_be_revoked_after_the_loop_of_its_hub_was_closed() -> None:
    hub = with_keys()
    asyncio.run(hub.start())

    keys(hub).keys.revoke("writer")

    assert [key.id for key in keys(hub).keys] == ["reader"]
