"""The issuer is asked again about an opaque token while something is open for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.identity.test_introspection import OPAQUE, active, asking
from tests.identity.test_leaving import Notified
from tests.policy.issuer import ISSUER, NOW, Clock, Server, authentication, bearer, key_set, refused, token
from tests.protocol.conftest import asynchronous, idle
from waypost.capabilities.principals import Principal
from waypost.identity import Authentication
from waypost.identity import authentication as module
from waypost.identity import claims as claims_module
from waypost.identity.authentication import MAX_CONCURRENT_RECHECKS, RecheckQueue, RevocationWatcher
from waypost.identity.claims import TrackedToken, TrackedTokens, Verified

REMEMBER_S = 10.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPIRY_CHECK_INTERVAL_S", 0.01)


class Watched:
    """An authentication whose changes are collected, and the principals that something is open for."""

    def __init__(self, server: Server, auth: Authentication, clock: Clock) -> None:
        self.server, self.auth, self.clock = server, auth, clock
        self.notified = Notified()
        self.open: list[Principal] = []
        self.looked = asyncio.Event()

    def find_in_use(self) -> set[int]:
        self.looked.set()
        return {id(principal) for principal in self.open}

    async def accepted(self) -> Principal:
        return await self.auth.authenticate(bearer(OPAQUE))

    async def look(self) -> None:
        """Wait until the principals in use were looked for once more."""
        self.looked.clear()
        await self.looked.wait()


@asynccontextmanager
async def watching(remember: float = REMEMBER_S) -> AsyncIterator[Watched]:
    clock = Clock()
    async with asking(clock, remember=remember) as (server, auth):
        server.answers(active())
        watched = Watched(server, auth, clock)
        watcher = RevocationWatcher(auth, watched.notified, watched.find_in_use)
        try:
            yield watched
        finally:
            await watcher.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds that no event announces."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynchronous
async def test_what_is_open_for_a_token_ends_when_the_token_is_inactive() -> None:
    async with watching() as hub:
        principal = await hub.accepted()
        hub.open.append(principal)
        hub.server.answers({"active": False})

        hub.clock.now = NOW + REMEMBER_S - 0.1
        await asyncio.sleep(0.05)
        assert hub.server.hits == 1
        hub.clock.now = NOW + REMEMBER_S
        await hub.notified.news.wait()

        assert hub.notified.names() == [(f"{ISSUER}|ada", f"{ISSUER}|ada", True)]
        assert hub.notified.changes[0].was is principal
        await asyncio.sleep(0.05)
        assert hub.server.hits == 2


@asynchronous
async def test_an_active_token_keeps_its_principal_and_is_checked_once_per_remembered_time() -> None:
    async with watching() as hub:
        principal = await hub.accepted()
        hub.open.append(principal)
        for number in (1, 2, 3):
            hub.clock.now = NOW + number * REMEMBER_S
            await until(lambda hits=number + 1: hub.server.hits == hits)  # type: ignore[misc]
            await asyncio.sleep(0.05)
            assert hub.server.hits == number + 1

        assert await hub.accepted() is principal
        assert hub.server.hits == 4
        assert not hub.notified.changes


@asynchronous
async def test_the_issuer_is_not_asked_about_a_token_that_nothing_is_open_for() -> None:
    async with watching() as hub:
        principal = await hub.accepted()
        hub.clock.now = NOW + 3 * REMEMBER_S

        await hub.look()
        await hub.look()

        assert hub.server.hits == 1
        assert principal is not None


@asynchronous
async def test_a_token_whose_principal_is_gone_is_forgotten() -> None:
    async with watching() as hub:
        await hub.accepted()
        assert hub.auth._tracked is not None
        assert len(hub.auth._tracked) == 1

        hub.clock.now = NOW + REMEMBER_S

        await until(lambda: not hub.auth._tracked)


@asynchronous
async def test_what_is_open_ends_when_the_issuer_cannot_be_asked_and_the_token_works_again_later() -> None:
    async with watching() as hub:
        principal = await hub.accepted()
        hub.open.append(principal)
        hub.server.answers({}, status=500)
        hub.clock.now = NOW + REMEMBER_S
        await hub.notified.news.wait()
        assert [(one.was, one.ended) for one in hub.notified.changes] == [(principal, True)]
        assert (await refused(hub.auth, bearer(OPAQUE))).status == 503

        hub.server.answers(active())

        # Another object: a request that began with the first one must not open anything.
        assert await hub.accepted() is not principal


@asynchronous
async def test_a_token_that_lost_a_scope_continues_with_the_rights_it_has() -> None:
    async with watching() as hub:
        principal = await hub.accepted()
        hub.open.append(principal)
        hub.server.answers(active(scope="read"))
        hub.clock.now = NOW + REMEMBER_S
        await hub.notified.news.wait()

        (change,) = hub.notified.changes
        assert change.was is principal
        assert change.now is not None
        assert (change.now.scopes, change.ended) == (("read",), False)

        # What was open for the first principal ends with the token, too.
        hub.notified.news.clear()
        hub.server.answers({"active": False})
        hub.clock.now = NOW + 2 * REMEMBER_S
        await hub.notified.news.wait()
        assert [one.was for one in hub.notified.changes[1:]] == [principal, change.now]


@asynchronous
async def test_what_is_open_ends_when_the_token_names_another_subject() -> None:
    async with watching() as hub:
        principal = await hub.accepted()
        hub.open.append(principal)
        hub.server.answers(active(sub="eve"))
        hub.clock.now = NOW + REMEMBER_S
        await hub.notified.news.wait()

        assert [(one.was, one.now, one.ended) for one in hub.notified.changes] == [(principal, principal, True)]


@asynchronous
async def test_a_token_that_is_not_remembered_is_checked_at_most_once_per_second() -> None:
    async with watching(remember=0.0) as hub:
        hub.open.append(await hub.accepted())
        hub.clock.now = NOW + 0.9
        await asyncio.sleep(0.05)
        assert hub.server.hits == 1

        hub.clock.now = NOW + 1.0

        await until(lambda: hub.server.hits == 2)


@asynchronous
async def test_a_recheck_and_a_request_share_one_question() -> None:
    async with watching() as hub:
        hub.open.append(await hub.accepted())
        going = asyncio.Event()

        async def slowly(request: web.Request) -> web.StreamResponse:
            await going.wait()
            return web.json_response(active())

        hub.server.answer = slowly
        hub.clock.now = NOW + REMEMBER_S
        await until(lambda: hub.server.hits == 2)
        request = asyncio.create_task(hub.accepted())
        await idle()
        going.set()

        assert await request is hub.open[0]
        assert hub.server.hits == 2


@asynchronous
async def test_signed_tokens_are_not_tracked() -> None:
    clock = Clock()
    auth = authentication(clock, jwks=key_set("ed"))

    def find_in_use() -> set[int]:
        raise AssertionError("looked for principals in use")

    watcher = RevocationWatcher(auth, Notified(), find_in_use)
    principal = await auth.authenticate(bearer(token("ed", header={"alg": "Ed25519"})))
    clock.now += 120
    await asyncio.sleep(0.05)

    assert auth.find_due_tokens() == []
    assert principal is not None
    await watcher.stop()


def test_of_too_many_tokens_the_ones_checked_longest_ago_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "_EVICTED_AT_ONCE", 1)
    clock = Clock()
    tokens = TrackedTokens(REMEMBER_S, clock, limit=3)
    verified = [Verified(Principal(f"u{number}"), NOW + 10, NOW + 60) for number in range(4)]
    for number, one in enumerate(verified[:3]):
        tokens.accept(bytes([number]), f"t{number}", one)
    assert tokens.evict() == []
    tokens.accept(bytes([0]), "t0", verified[0])  # checked again
    tokens.accept(bytes([3]), "t3", verified[3])

    evicted = tokens.evict()

    assert [one.token for one in evicted] == ["t1", "t2"]
    assert [change.was.id for one in evicted for change in tokens.end(one)] == ["u1", "u2"]
    assert len(tokens) == 2


class Questions:
    """Checks that wait until they are released, and the tokens that were refused without one."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.refused: list[str] = []
        self.going = asyncio.Event()

    async def check(self, tracked: TrackedToken) -> bool:
        self.asked.append(tracked.token)
        await self.going.wait()
        return self.answer

    def refuse(self, tokens: Any) -> None:
        self.refused += [one.token for one in tokens]


def many(count: int) -> tuple[list[TrackedToken], list[Principal]]:
    principals = [Principal(f"u{number}") for number in range(count)]
    tokens = [TrackedToken(str(number).encode(), f"t{number}") for number in range(count)]
    for one, principal in zip(tokens, principals, strict=True):
        one.add(principal)
    return tokens, principals


@asynchronous
async def test_a_few_tokens_are_checked_at_a_time_and_each_once() -> None:
    questions = Questions(answer=True)
    queue = RecheckQueue(questions.check, questions.refuse)
    tokens, principals = many(50)
    in_use = {id(principal) for principal in principals}

    queue.add(tokens, in_use)
    queue.add(tokens, in_use)
    await idle()
    assert len(questions.asked) == MAX_CONCURRENT_RECHECKS
    questions.going.set()
    await until(lambda: len(questions.asked) == 50)
    await idle()

    assert len(set(questions.asked)) == len(questions.asked) == 50
    assert not questions.refused
    await queue.stop()


@asynchronous
async def test_when_no_question_is_answered_the_tokens_that_wait_are_refused_without_one() -> None:
    questions = Questions(answer=False)
    queue = RecheckQueue(questions.check, questions.refuse)
    tokens, principals = many(50)

    queue.add(tokens, {id(principal) for principal in principals})
    await idle()
    questions.going.set()
    await until(lambda: bool(questions.refused))

    assert len(questions.asked) + len(questions.refused) == 50
    assert len(questions.asked) < 2 * MAX_CONCURRENT_RECHECKS
    # The next tokens are asked about again.
    questions.answer = True
    await idle()
    asked = len(questions.asked)
    queue.add(tokens[:1], {id(principals[0])})
    await until(lambda: len(questions.asked) == asked + 1)
    await queue.stop()


@asynchronous
async def test_a_stopped_queue_asks_nothing_more() -> None:
    questions = Questions(answer=True)
    queue = RecheckQueue(questions.check, questions.refuse)
    tokens, principals = many(50)
    queue.add(tokens, {id(principal) for principal in principals})
    await idle()

    await queue.stop()
    questions.going.set()
    await idle()

    assert len(questions.asked) == MAX_CONCURRENT_RECHECKS
