"""Sessions, tasks and messages of two hubs on one PostgreSQL, as operators see them at either."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.api.conftest import AGENT, Operator, operated_hub, operating
from tests.console.conftest import Person
from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.conftest import asynchronous, initialization, request
from waypost.errors import NoHolder
from waypost.identity import Key, digest, new_key
from waypost.identity.keys import make_sign_in_token
from waypost.runtime import replicas
from waypost.settings import Bus, Settings, Store
from waypost.stores.replicas import Replica

CLIENT = {"authorization": f"Bearer {AGENT}"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use long timeouts, so that a loaded machine does not make a replica look dead."""
    monkeypatch.setattr(replicas, "DEAD_AFTER_S", 3600.0)
    monkeypatch.setattr(replicas, "ANSWER_TIMEOUT_S", 60.0)


@pytest.fixture(params=["postgres", "nats"])
def bus(request: pytest.FixtureRequest) -> Bus:
    """The bus of the store, and NATS."""
    return Bus() if request.param == "postgres" else Bus(url=request.getfixturevalue("nats_url"))


@asynccontextmanager
async def two_hubs(url: str, bus: Bus) -> AsyncIterator[tuple[Operator, Operator]]:
    """Operators of two replicas that know each other."""
    settings = Settings(bus=bus, store=Store(timeout_ms=60_000))
    operators = [Operator(operated_hub(rules=(), store=url, settings=settings)) for _ in range(2)]
    try:
        for operator in operators:
            await operator.hub.start()
        for operator in operators:
            await operator.hub.runtime.replicas.refresh()
        yield operators[0], operators[1]
    finally:
        for operator in operators:
            await operator.hub.stop()


async def _read_pages(operator: Operator, name: str, query: str) -> list[dict[str, Any]]:
    """The rows of all pages of a list."""
    page = await operator.fetch("GET", f"/api/v1/{name}?{query}")
    rows: list[dict[str, Any]] = page[name]
    while page["next"] is not None:
        page = await operator.fetch("GET", f"/api/v1/{name}?{query}&before={page['next']}")
        rows += page[name]
    return rows


@asynchronous
async def test_the_sessions_of_both_replicas_are_listed_page_by_page_and_ended_at_either(
    postgres_url: str, bus: Bus
) -> None:
    async with two_hubs(postgres_url, bus) as (one, other):
        opened = [
            (await operator.post(initialization(), CLIENT)).headers["mcp-session-id"]
            for operator in (one, other, one, other, other)
        ]
        for operator in (one, other):
            page = await operator.fetch("GET", "/api/v1/sessions")
            assert (len(page["sessions"]), page["total"], page["replicas"], page["silent"]) == (5, 5, 2, [])
            seen = [row["lastSeenAt"] for row in page["sessions"]]
            assert seen == sorted(seen, reverse=True)
        found = await _read_pages(one, "sessions", "limit=2")
        assert len({row["id"] for row in found}) == len(found) == 5
        ids = {operator.hub.runtime.core.replica for operator in (one, other)}
        assert {row["replica"] for row in found} == ids

        theirs = next(row for row in found if row["replica"] == other.hub.runtime.core.replica)
        assert (await one.fetch("DELETE", f"/api/v1/sessions/{theirs['id']}"))["status"] == "ended"
        page = await other.fetch("GET", "/api/v1/sessions")
        assert theirs["id"] not in [row["id"] for row in page["sessions"]]
        answers = [
            (await other.post(request(2, "tools/list"), {**CLIENT, "mcp-session-id": session})).status
            for session in opened
        ]
        assert answers.count(404) == 1
        assert (await one.refused("DELETE", f"/api/v1/sessions/{theirs['id']}"))[0] == 404


@asynchronous
async def test_the_messages_of_both_replicas_are_listed_page_by_page(postgres_url: str, bus: Bus) -> None:
    async with two_hubs(postgres_url, bus) as (one, other):
        for operator in (one, other, other, one, other):
            await operator.modern("tools/list", headers=CLIENT)
        everything = await one.fetch("GET", "/api/v1/requests?method=tools/list&limit=200")
        assert (everything["replicas"], everything["next"]) == (2, None)
        numbers = [row["number"] for row in everything["requests"]]
        assert len(numbers) == 10  # five requests and their responses
        assert numbers == sorted(numbers, reverse=True)
        found = await _read_pages(other, "requests", "method=tools/list&limit=3")
        assert [row["number"] for row in found] == numbers


@asynchronous
async def test_the_pages_name_the_replica_of_each_row_and_those_that_do_not_answer(
    postgres_url: str, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_hubs(postgres_url, bus) as (one, other):
        await other.post(initialization(), CLIENT)
        person = Person(one.hub)
        await person.sign_in()
        replica = other.hub.runtime.core.replica
        for page in ("sessions", "requests"):
            html = await person.read(page)
            assert "2 replicas" in html
            assert replica in html
            assert "did not answer" not in html

        async def refuse(*_: object) -> bytes:
            raise NoHolder("gone")

        monkeypatch.setattr(one.hub.runtime.core.bus, "request", refuse)
        for page in ("sessions", "requests"):
            assert "This replica did not answer" in await person.read(page)


def _own_key(operator: Operator) -> str:
    """A key of the hub itself, as `waypost serve` makes one for each process."""
    key = new_key()
    operator.hub.runtime.authentication.admit(Key("hub", digest(key), roles=("admin",)))
    return key


@asynchronous
async def test_a_session_of_a_hubs_own_key_works_at_every_replica_while_that_hub_lives(
    postgres_url: str, bus: Bus
) -> None:
    async with two_hubs(postgres_url, bus) as (one, other):
        here, there = Person(one.hub), Person(other.hub)
        assert (await here.sign_in(_own_key(one))).status == 303
        there.cookie = here.cookie
        _own_key(other)
        for person in (here, there, here, there):
            assert (await person.visit("/console/keys")).status == 200

        await one.hub.stop()
        await other.hub.runtime.replicas.refresh()
        assert (await there.visit("/console/keys")).status == 303, "the key ended with its hub"


@asynchronous
async def test_a_one_time_link_signs_in_once_at_any_replica(postgres_url: str, bus: Bus) -> None:
    async with two_hubs(postgres_url, bus) as (one, other):
        link = f"/console/sign-in?token={make_sign_in_token(_own_key(one), time.time())}"
        there, here = Person(other.hub), Person(one.hub)
        assert (await there.visit(link, address="203.0.113.9")).status == 403
        assert (await there.visit(link)).status == 303
        here.cookie = there.cookie
        assert "Keys" in await there.read("keys")
        assert "Keys" in await here.read("keys")
        for person in (there, here):
            person.cookie = ""
            assert (await person.visit(link)).status == 403, "it was used"
        forged = f"/console/sign-in?token={make_sign_in_token(new_key(), time.time())}"
        assert (await there.visit(forged)).status == 403


def _replica(name: str, started_at: float, version: str, config_digest: str) -> Replica:
    return Replica(
        id=name,
        address="",
        version=version,
        config_digest=config_digest,
        started_at=started_at,
        last_seen_at=started_at,
        status="ready",
    )


@asynchronous
async def test_the_replicas_that_differ_from_most_or_from_the_newest_are_marked() -> None:
    async with operating() as operator:
        found = operator.hub.runtime.replicas
        me = found.describe()

        async def differing() -> list[str]:
            rows = (await operator.fetch("GET", "/api/v1/replicas"))["replicas"]
            return sorted(one["id"] for one in rows if one["differs"])

        assert await differing() == []
        old = _replica("old", me.started_at - 9, "0.0.1", me.config_digest)
        found.others = {"old": old}
        assert await differing() == ["old"]  # there is no majority: this one is newer
        found.others["new"] = _replica("new", me.started_at + 9, me.version, "another")
        assert await differing() == sorted(["old", me.id])
        found.others["same"] = _replica("same", me.started_at - 8, me.version, me.config_digest)
        found.others["also"] = _replica("also", me.started_at - 7, me.version, me.config_digest)
        assert await differing() == ["new", "old"]
