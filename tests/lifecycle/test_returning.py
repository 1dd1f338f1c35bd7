"""Sessions that are restored: after they expired, at another replica, after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lifecycle.hubs import expire, plain
from tests.protocol.conftest import asynchronous, request
from tests.transports.http.conftest import Visitor, browsing
from waypost import Hub
from waypost.capabilities.context import Session
from waypost.capabilities.principals import Principal
from waypost.errors import ToolError
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.wire.definitions import Implementation
from waypost.wire.versions import LATEST_LEGACY

ADA = Principal("ada")


def noted(hub: Hub) -> list[str]:
    """The sessions for which the hook ran when they were restored."""
    asked: list[str] = []

    @hub.on("session_expired")
    async def on_session_expired(session_id: str, session: Session) -> None:
        await asyncio.sleep(0)
        asked.append(session_id)

    return asked


async def remembered(visitor: Visitor) -> str:
    """The word that the session still holds."""
    return str((await visitor.ask("tools/call", {"name": "recall"}))["result"]["content"][0]["text"])


async def remember(visitor: Visitor, word: str) -> None:
    await visitor.ask("tools/call", {"name": "remember", "arguments": {"word": word}})


@asynchronous
async def test_an_expired_session_is_restored_with_all_its_data() -> None:
    hub = plain()
    async with browsing(hub) as web:
        visitor = await web.session()
        await remember(visitor, "plugh")
        await visitor.ask("logging/setLevel", {"level": "error"})
        await visitor.ask("resources/subscribe", {"uri": "docs://readme"})
        before = hub.engine.sessions.get(visitor.id)
        expire(hub, visitor.id)
        assert hub.engine.sessions.get(visitor.id) is None
        assert await remembered(visitor) == "plugh"
        session = hub.engine.sessions.get(visitor.id)
        assert session is not None
        assert session is not before
        assert session.subscriptions == {"docs://readme"}
        call = await visitor.post(request(9, "tools/call", {"name": "murmur"}))
        assert [message.get("method") for message in call.messages()] == [None]
        listening = visitor.listen()
        await listening.started()
        await hub.notify_resource_updated("docs://readme")
        await listening.until(lambda: b"resources/updated" in listening.body)


@asynchronous
async def test_a_client_with_a_forgotten_last_event_id_goes_on_listening() -> None:
    hub = plain()
    async with browsing(hub) as web:
        visitor = await web.session()
        listening = visitor.listen()
        await hub.notify_changed("tools")
        seen = await listening.event()
        await listening.disconnect()
        expire(hub, visitor.id)
        again = await visitor.listen(seen.id).started()
        assert again.status == 200
        await hub.notify_changed("prompts")
        assert (await again.event()).message["method"] == "notifications/prompts/list_changed"


@asynchronous
async def test_a_restored_session_does_not_reuse_request_ids() -> None:
    hub = plain()
    async with browsing(hub) as web:
        visitor = await web.session()
        asked = []
        for _ in range(2):
            await visitor.ask("ping")
            (session,) = hub.engine.sessions
            asked.append(session.calls.next_id())
            expire(hub, visitor.id)
        assert asked[0] != asked[1]


@pytest.mark.parametrize("answer", [None, {"name": "renamed"}, {"name": "renamed", "version": "9"}])
def test_a_hook_may_rename_a_client_that_comes_back(answer: Mapping[str, Any] | None) -> None:
    hub = plain()
    asked: list[str] = []

    @hub.on("session_expired")
    async def on_session_expired(session_id: str, session: Session) -> Mapping[str, Any] | None:
        asked.append(session_id)
        return answer

    @asynchronous
    async def run() -> None:
        async with browsing(hub) as web:
            visitor = await web.session()
            expire(hub, visitor.id)
            assert "result" in await visitor.ask("ping")
            session = hub.engine.sessions.get(visitor.id)
            assert session is not None
            assert session.client_info is not None
            expected = {"name": "tester", "version": "1.0", **(answer or {})}
            assert (session.client_info.name, session.client_info.version) == (expected["name"], expected["version"])
            assert asked == [visitor.id]

    run()


@asynchronous
async def test_a_hook_that_raises_refuses_a_client_that_comes_back() -> None:
    hub = plain()

    @hub.on("session_expired")
    async def on_session_expired(session_id: str, session: Session) -> Mapping[str, Any] | None:
        raise ToolError("start over")

    async with browsing(hub) as web:
        visitor = await web.session()
        expire(hub, visitor.id)
        assert (await visitor.post(request(1, "ping"))).status == 404
        assert (await visitor.listen().done()).status == 404
        assert len(hub.engine.sessions) == 0


@asynchronous
async def test_a_deleted_session_is_never_restored() -> None:
    hub = plain()
    async with browsing(hub) as web:
        visitor = await web.session()
        await visitor.delete()
        assert (await visitor.post(request(1, "ping"))).status == 404


@asynchronous
async def test_concurrent_requests_restore_a_session_once() -> None:
    hub = plain()
    asked = noted(hub)

    async with browsing(hub) as web:
        visitor = await web.session()
        expire(hub, visitor.id)
        calls = await asyncio.gather(*(visitor.post(request(number, "ping")) for number in range(8)))
        assert [call.status for call in calls] == [200] * 8
    assert asked == [visitor.id]


@asynchronous
async def test_another_principal_cannot_restore_a_session() -> None:
    hub = plain()
    asked = noted(hub)

    sessions = hub.engine.sessions
    session = await sessions.create(LATEST_LEGACY, Implementation("tester", "1"), {}, ADA)
    expire(hub, session.id)
    assert await sessions.find(session.id) is None
    assert await sessions.find(session.id, Principal("eve")) is None
    assert asked == []
    assert len(sessions) == 0
    back = await sessions.find(session.id, ADA)
    assert back is not None
    assert back.principal == ADA
    await hub.stop()


@pytest.mark.parametrize("in_memory", [True, False])
def test_another_replica_takes_over_a_session(in_memory: bool, tmp_path: Path) -> None:
    @asynchronous
    async def run() -> None:
        store = Store(SqliteDatabase(None if in_memory else tmp_path / "hub.db"))
        first, second = [plain(store=store if in_memory else f"sqlite:///{tmp_path}/hub.db") for _ in range(2)]
        async with browsing(first) as here, browsing(second) as there:
            visitor = await here.session()
            await remember(visitor, "xyzzy")
            moved = Visitor(there, visitor.id, LATEST_LEGACY)
            assert await remembered(moved) == "xyzzy"

    run()


@asynchronous
async def test_a_session_survives_the_restart_of_its_hub(tmp_path: Path) -> None:
    async with browsing(plain(store=f"sqlite:///{tmp_path}/hub.db")) as web:
        visitor = await web.session()
        await remember(visitor, "xyzzy")
    async with browsing(plain(store=f"sqlite:///{tmp_path}/hub.db")) as web:
        assert await remembered(Visitor(web, visitor.id, LATEST_LEGACY)) == "xyzzy"
