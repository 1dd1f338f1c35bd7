"""A revoked principal is reported once, on the loop, whatever revoked it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from tests.policy.issuer import NOW, Clock
from tests.protocol.conftest import asynchronous, idle
from waypost.capabilities.principals import Principal
from waypost.identity import Authentication, Key, digest
from waypost.identity.authentication import RevocationWatcher
from waypost.identity.keys import KeyChange

OLD, NEW = "wp_" + "o" * 43, "wp_" + "n" * 43
GUEST = Principal("anonymous", ("guest",))


class Notified:
    """A callback that collects key changes and signals the first one."""

    def __init__(self) -> None:
        self.changes: list[KeyChange] = []
        self.news = asyncio.Event()

    def __call__(self, changes: object) -> None:
        assert isinstance(changes, list)
        self.changes += changes
        self.news.set()

    def names(self) -> list[tuple[str, str | None, bool]]:
        return [(one.was.id, None if one.now is None else one.now.id, one.ended) for one in self.changes]


@asynccontextmanager
async def watched(auth: Authentication) -> AsyncIterator[Notified]:
    answer = Notified()
    leaving = RevocationWatcher(auth, answer)
    try:
        yield answer
    finally:
        await leaving.stop()


def known(auth: Authentication, key: str) -> Principal:
    found = auth.known({b"authorization": b"Bearer " + key.encode()})
    assert found is not None
    return found


@asynchronous
async def test_a_revocation_in_another_thread_is_reported_on_the_loop() -> None:
    auth = Authentication([Key("ci", digest(OLD))])
    principal = known(auth, OLD)
    async with watched(auth) as answer:
        assert await asyncio.to_thread(auth.keys.revoke, "ci") == 1
        await answer.news.wait()

    assert answer.names() == [("ci", None, True)]
    assert answer.changes[0].was is principal


@asynchronous
async def test_an_expired_key_is_reported_once() -> None:
    clock = Clock()
    soon, later = (datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds) for seconds in (10, 20))
    auth = Authentication([Key("ci", digest(OLD), expires=soon), Key("me", digest(NEW), expires=later)], clock=clock)
    async with watched(auth) as answer:
        clock.now += 10
        await answer.news.wait()
        auth.keys.lapse()
        await idle()
        assert answer.names() == [("ci", None, True)]

        clock.now += 10
        auth.keys.lapse()
        await idle()

    assert answer.names() == [("ci", None, True), ("me", None, True)]


@asynchronous
async def test_a_replaced_key_is_reported_with_the_new_principal_of_its_id() -> None:
    auth = Authentication([Key("ci", digest(OLD))])
    async with watched(auth) as answer:
        auth.exchange(Authentication([Key("ci", digest(NEW))]))
        await answer.news.wait()

    assert answer.names() == [("ci", "ci", True)]
    assert answer.changes[0].now is known(auth, NEW)


@asynchronous
async def test_changed_rights_are_reported_without_an_end_and_unchanged_ones_not_at_all() -> None:
    auth = Authentication([Key("ci", digest(OLD)), Key("me", digest(NEW))])
    async with watched(auth) as answer:
        auth.exchange(Authentication([Key("ci", digest(OLD), roles=("agent",)), Key("me", digest(NEW))]))
        await answer.news.wait()

    assert answer.names() == [("ci", "ci", False)]
    assert answer.changes[0].now is known(auth, OLD)


@asynchronous
async def test_a_changed_or_disabled_anonymous_principal_is_reported() -> None:
    auth = Authentication(anonymous=GUEST)
    async with watched(auth) as answer:
        auth.exchange(Authentication(anonymous=GUEST))
        await idle()
        assert not answer.changes
        auth.exchange(Authentication())
        auth.exchange(Authentication(anonymous=False))
        await idle()

    assert answer.names() == [("anonymous", "anonymous", False), ("anonymous", None, True)]


@asynchronous
async def test_a_stopped_watcher_reports_nothing() -> None:
    auth = Authentication([Key("ci", digest(OLD))])
    async with watched(auth) as answer:
        pass

    auth.keys.revoke("ci")
    await idle()
    assert not answer.changes


def test_a_watcher_stops_after_its_loop_was_closed() -> None:
    async def begin() -> RevocationWatcher:
        return RevocationWatcher(Authentication(), Notified())

    leaving = asyncio.run(begin())
    asyncio.run(leaving.stop())
