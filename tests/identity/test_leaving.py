"""Who is let in no more is told once, on the loop, whatever took them away."""

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


class Told:
    """What was told, and the wait for it."""

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
async def watched(auth: Authentication) -> AsyncIterator[Told]:
    told = Told()
    leaving = RevocationWatcher(auth, told)
    try:
        yield told
    finally:
        await leaving.stop()


def known(auth: Authentication, key: str) -> Principal:
    found = auth.known({b"authorization": b"Bearer " + key.encode()})
    assert found is not None
    return found


@asynchronous
async def test_a_key_that_is_revoked_in_another_thread_is_told_on_the_loop() -> None:
    auth = Authentication([Key("ci", digest(OLD))])
    principal = known(auth, OLD)
    async with watched(auth) as told:
        assert await asyncio.to_thread(auth.keys.revoke, "ci") == 1
        await told.news.wait()

    assert told.names() == [("ci", None, True)]
    assert told.changes[0].was is principal


@asynchronous
async def test_a_key_whose_time_is_over_is_told_once() -> None:
    clock = Clock()
    soon, later = (datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=seconds) for seconds in (10, 20))
    auth = Authentication([Key("ci", digest(OLD), expires=soon), Key("me", digest(NEW), expires=later)], clock=clock)
    async with watched(auth) as told:
        clock.now += 10
        await told.news.wait()
        auth.keys.lapse()
        await idle()
        assert told.names() == [("ci", None, True)]

        clock.now += 10
        auth.keys.lapse()
        await idle()

    assert told.names() == [("ci", None, True), ("me", None, True)]


@asynchronous
async def test_who_has_another_key_of_the_same_id_is_told_with_the_one_that_is_gone() -> None:
    auth = Authentication([Key("ci", digest(OLD))])
    async with watched(auth) as told:
        auth.exchange(Authentication([Key("ci", digest(NEW))]))
        await told.news.wait()

    assert told.names() == [("ci", "ci", True)]
    assert told.changes[0].now is known(auth, NEW)


@asynchronous
async def test_other_rights_of_a_key_end_nothing_and_the_same_ones_are_not_told() -> None:
    auth = Authentication([Key("ci", digest(OLD)), Key("me", digest(NEW))])
    async with watched(auth) as told:
        auth.exchange(Authentication([Key("ci", digest(OLD), roles=("agent",)), Key("me", digest(NEW))]))
        await told.news.wait()

    assert told.names() == [("ci", "ci", False)]
    assert told.changes[0].now is known(auth, OLD)


@asynchronous
async def test_callers_without_a_key_are_told_when_they_are_somebody_else_or_let_in_no_more() -> None:
    auth = Authentication(anonymous=GUEST)
    async with watched(auth) as told:
        auth.exchange(Authentication(anonymous=GUEST))
        await idle()
        assert not told.changes
        auth.exchange(Authentication())
        auth.exchange(Authentication(anonymous=False))
        await idle()

    assert told.names() == [("anonymous", "anonymous", False), ("anonymous", None, True)]


@asynchronous
async def test_nothing_is_told_once_it_stopped() -> None:
    auth = Authentication([Key("ci", digest(OLD))])
    async with watched(auth) as told:
        pass

    auth.keys.revoke("ci")
    await idle()
    assert not told.changes


def test_it_stops_where_the_loop_it_was_made_in_is_closed() -> None:
    async def begin() -> RevocationWatcher:
        return RevocationWatcher(Authentication(), Told())

    leaving = asyncio.run(begin())
    asyncio.run(leaving.stop())
