import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, idle
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import Busy
from waypost.protocol.exchange import Exchange
from waypost.protocol.relay import Liveness
from waypost.protocol.session import LegacySession, MessageLog
from waypost.protocol.sessions import Sessions
from waypost.protocol.streams import Event, EventStream
from waypost.settings import Limits
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.wire.definitions import Implementation
from waypost.wire.versions import V2025_11_25

ADA = Principal("ada")


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Host:
    """Replaces the engine, and records which hooks ran."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store(SqliteDatabase())
        self.messages = MessageLog(0)
        self.notifications: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.messages = MessageLog(10)

    def background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def call_hook(self, session: LegacySession, name: str, *args: Any) -> Any:
        self.notifications.append((name, *args))
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def offers(self, capability: str) -> bool:
        return True

    async def task_status(self, task_id: str, principal: Principal) -> bytes:
        return f"{task_id} of {principal.id}".encode()


class Nowhere:
    async def send(self, message: bytes) -> None: ...
    async def close_early(self) -> None: ...


class Lobby:
    """Sessions with a clock and a host of their own."""

    def __init__(self, idle_after: float = 60.0, limit: int = 100, store: Store | None = None) -> None:
        self.clock = Clock()
        self.host = Host(store)
        self.store = self.host.store
        self.sessions = Sessions(
            self.host, Liveness(self.host), idle=idle_after, limit=limit, limits=Limits(), clock=self.clock
        )

    async def create(self, principal: Principal | None = None) -> LegacySession:
        who = ANONYMOUS if principal is None else principal
        return await self.sessions.create(V2025_11_25, Implementation("tester", "1"), {"sampling": {}}, who)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.sessions.sweep()

    @property
    def live(self) -> list[str]:
        return [session.id for session in self.sessions]


@asynchronous
async def test_an_id_is_long_visible_and_new_each_time() -> None:
    lobby = Lobby(limit=1000)
    ids = [(await lobby.create()).id for _ in range(500)]
    assert len(set(ids)) == 500
    assert all(len(name) >= 32 and all(0x21 <= ord(c) <= 0x7E for c in name) for name in ids)


@asynchronous
async def test_a_session_is_found_by_its_id_only() -> None:
    lobby = Lobby()
    session = await lobby.create()
    assert await lobby.sessions.find(session.id) is session
    assert lobby.sessions.get(session.id) is session
    for other in ("", session.id + "x", session.id[:-1], session.id.swapcase(), "unknown", "../../etc/passwd"):
        assert await lobby.sessions.find(other) is None
        assert lobby.sessions.get(other) is None


@asynchronous
async def test_the_session_of_another_principal_is_not_found() -> None:
    lobby = Lobby()
    session = await lobby.create(ADA)
    assert await lobby.sessions.find(session.id) is None
    assert await lobby.sessions.find(session.id, Principal("bob")) is None
    assert await lobby.sessions.find(session.id, ADA) is session
    lobby.pass_time(61)
    assert await lobby.sessions.find(session.id, Principal("bob")) is None
    assert lobby.live == []


@asynchronous
async def test_an_idle_session_ends_and_an_active_one_stays() -> None:
    lobby = Lobby(idle_after=60)
    quiet, active = await lobby.create(), await lobby.create()
    for _ in range(4):
        lobby.pass_time(20)
        assert await lobby.sessions.find(active.id) is active
    assert lobby.live == [active.id]
    assert quiet.streams.general.closed
    await idle()
    assert ("terminate", "expired") in lobby.host.notifications


@asynchronous
async def test_a_session_is_still_found_when_its_idle_time_has_just_ended() -> None:
    lobby = Lobby(idle_after=60)
    session = await lobby.create()
    lobby.pass_time(60)
    assert lobby.live == [session.id]
    lobby.pass_time(0.5)
    assert lobby.live == []


@asynchronous
async def test_a_session_with_a_call_running_is_not_idle() -> None:
    lobby = Lobby(idle_after=60)
    session = await lobby.create()
    session.running[1] = Exchange(1, V2025_11_25, Nowhere(), session)
    for _ in range(10):
        lobby.pass_time(500)
    assert lobby.live == [session.id]
    del session.running[1]
    lobby.pass_time(59)
    assert lobby.live == [session.id]
    lobby.pass_time(2)
    assert lobby.live == []


@asynchronous
async def test_a_session_with_an_open_stream_is_not_idle() -> None:
    lobby = Lobby(idle_after=60)
    session = await lobby.create()

    async def read() -> list[Event | None]:
        return [event async for event in session.streams.general.follow(0)]

    reader = asyncio.create_task(read())
    await idle()
    lobby.pass_time(500)
    assert lobby.live == [session.id]
    session.streams.general.release()
    await reader
    lobby.pass_time(500)
    assert lobby.live == []


@asynchronous
async def test_a_session_on_a_connection_lasts_as_long_as_the_connection() -> None:
    lobby = Lobby(idle_after=60)
    session = await lobby.create()
    session.attach(lambda _: None)
    lobby.pass_time(10_000)
    assert lobby.live == [session.id]


@asynchronous
async def test_an_expired_session_is_restored_with_its_state() -> None:
    lobby = Lobby()
    session = await lobby.create(ADA)
    await session.put("word", "kept")
    session.subscriptions.add("a://x")
    session.log_level = 4
    await session.save()
    lobby.pass_time(61)
    assert lobby.live == []
    back = await lobby.sessions.find(session.id, ADA)
    assert back is not None
    assert back is not session
    assert (back.id, back.version, back.principal) == (session.id, V2025_11_25, ADA)
    assert back.assigns == {"word": "kept"}
    assert back.subscriptions == {"a://x"}
    assert back.log_level == 4
    assert back.client_info == session.client_info
    assert back.client_capabilities == {"sampling": {}}
    assert lobby.host.notifications[-1] == ("session_expired", session.id)


@asynchronous
async def test_a_hook_may_change_the_client_info_of_a_restored_session() -> None:
    lobby = Lobby()
    session = await lobby.create()
    lobby.host.answers["session_expired"] = {"version": "2"}
    lobby.pass_time(61)
    back = await lobby.sessions.find(session.id)
    assert back is not None
    assert back.client_info == Implementation("tester", "2")


@pytest.mark.parametrize("answer", [RuntimeError("no"), "yes", 5, {"version": 2}])
@asynchronous
async def test_a_hook_refuses_a_session_by_an_error_or_a_value_that_is_no_client_info(answer: Any) -> None:
    lobby = Lobby()
    session = await lobby.create()
    lobby.host.answers["session_expired"] = answer
    lobby.pass_time(61)
    assert await lobby.sessions.find(session.id) is None
    assert lobby.live == []


@asynchronous
async def test_concurrent_requests_restore_one_session() -> None:
    lobby = Lobby()
    session = await lobby.create()
    lobby.pass_time(61)
    found = await asyncio.gather(*(lobby.sessions.find(session.id) for _ in range(10)))
    assert len({id(back) for back in found}) == 1
    assert found[0] is not None
    assert lobby.host.notifications.count(("session_expired", session.id)) == 1


@pytest.mark.parametrize("reason", ["closed", "disconnected"])
@asynchronous
async def test_a_closed_session_is_not_restored(reason: str) -> None:
    lobby = Lobby()
    session = await lobby.create()
    lobby.sessions.close(session, reason)
    assert await lobby.sessions.find(session.id) is None
    await idle()
    assert ("terminate", reason) in lobby.host.notifications
    assert await lobby.sessions.find(session.id) is None


@asynchronous
async def test_a_session_survives_a_restart_with_its_store() -> None:
    before = Lobby()
    session = await before.create()
    await session.put("word", "kept")
    before.sessions.close(session, "shutdown")
    after = Lobby(store=before.store)
    back = await after.sessions.find(session.id)
    assert back is not None
    assert back.assigns == {"word": "kept"}


@asynchronous
async def test_the_session_limit_refuses_with_its_number_until_a_session_closes() -> None:
    lobby = Lobby(limit=2)
    first = await lobby.create()
    await lobby.create()
    with pytest.raises(Busy, match="2 sessions"):
        await lobby.create()
    lobby.sessions.close(first, "closed")
    await lobby.create()
    assert len(lobby.sessions) == 2


@asynchronous
async def test_expired_sessions_make_room() -> None:
    lobby = Lobby(limit=1)
    await lobby.create()
    lobby.clock.now += 61
    second = await lobby.create()
    assert lobby.live == [second.id]


@asynchronous
async def test_a_session_whose_hook_fails_is_not_opened() -> None:
    lobby = Lobby()
    lobby.host.answers["init"] = RuntimeError("no")
    with pytest.raises(RuntimeError):
        await lobby.create()
    assert len(lobby.sessions) == 0


@asynchronous
async def test_closing_cancels_running_requests_and_removes_the_session() -> None:
    lobby = Lobby()
    session = await lobby.create()
    exchange = Exchange(1, V2025_11_25, Nowhere(), session)
    session.running[1] = exchange
    stream = session.streams.open()
    lobby.sessions.close(session, "closed")
    lobby.sessions.close(session, "closed")
    await idle()
    assert exchange.cancelled
    assert not stream.closed, "it ends with the answer"
    assert session.streams.general.closed
    assert lobby.host.notifications.count(("terminate", "closed")) == 1
    assert await lobby.sessions.find(session.id) is None


@asynchronous
async def test_all_streams_can_be_released_at_once() -> None:
    lobby = Lobby()
    opened = [await lobby.create() for _ in range(5)]
    lobby.sessions.release()
    assert all(session.streams.general.closed for session in opened)
    assert len(lobby.sessions) == 5


@asynchronous
async def test_streams_have_unique_names_and_are_found_by_them() -> None:
    session = await Lobby().create()
    streams = [session.streams.open() for _ in range(10)]
    assert len({stream.name for stream in streams} | {session.streams.general.name}) == 11
    assert all(session.streams.get(stream.name) is stream for stream in streams)
    assert session.streams.get(session.streams.general.name) is session.streams.general
    assert session.streams.get("s99") is None
    assert session.streams.get("") is None


@asynchronous
async def test_finished_streams_are_removed_oldest_first_and_open_ones_never() -> None:
    session = await Lobby().create()
    open_streams = [session.streams.open() for _ in range(3)]
    finished: list[EventStream] = []
    for _ in range(300):
        stream = session.streams.open()
        stream.close()
        finished.append(stream)
    assert all(session.streams.get(stream.name) is stream for stream in open_streams)
    remembered = [session.streams.get(stream.name) is stream for stream in finished]
    assert remembered[-1]
    assert 40 <= sum(remembered) <= 64
    assert remembered == sorted(remembered)
    assert len({stream.name for stream in finished}) == 300


@asynchronous
async def test_messages_without_a_request_wait_on_the_general_stream() -> None:
    session = await Lobby().create()
    await session.notify_changed("tools")
    await session.send_log("error", "mine", {"a": 1})
    await session.send_log("debug", "unwanted")
    await session.send_resource_updated("a://x")
    session.subscriptions.add("a://x")
    await session.send_resource_updated("a://x")
    session.streams.general.close()
    outcome = [json.loads(event.message) async for event in session.streams.general.follow(0) if event is not None]
    assert [message["method"] for message in outcome] == [
        "notifications/tools/list_changed",
        "notifications/message",
        "notifications/resources/updated",
    ]
    assert outcome[1]["params"] == {"level": "error", "data": {"message": "mine", "a": 1}}


@asynchronous
async def test_an_attached_session_is_written_to_directly() -> None:
    session = await Lobby().create()
    written: list[bytes] = []
    session.attach(written.append)
    session.push(b"{}")
    assert written == [b"{}"]


@asynchronous
async def test_session_values_belong_to_one_session_and_are_read_only() -> None:
    lobby = Lobby()
    session, other = await lobby.create(), await lobby.create()
    await session.put("a", 1)
    await session.put("a", 2)
    assert session.assigns == {"a": 2}
    assert other.assigns == {}
    changed: Any = session.assigns
    with pytest.raises(TypeError):
        changed["a"] = 3
