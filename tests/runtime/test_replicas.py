"""Two hubs on one PostgreSQL know each other, and changes of one reach the other without waiting for a sweep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from tests.nats import NatsServer, running_nats
from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from waypost import Hub
from waypost.api.metrics import collect_metrics
from waypost.capabilities.principals import ANONYMOUS
from waypost.errors import StoreUnavailable
from waypost.identity import Unauthorized
from waypost.runtime import replicas, runtime
from waypost.runtime.core import Core, Launch
from waypost.runtime.replicas import digest_settings
from waypost.settings import Bus, Server, Settings, Workers

DEADLINE: Final = 120.0


@pytest.fixture(autouse=True)
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off the periodic refresh, so that replicas learn of changes by messages only."""
    monkeypatch.setattr(runtime, "REFRESH_INTERVAL_S", 3600.0)


@pytest.fixture(params=["postgres", "nats"])
def settings(request: pytest.FixtureRequest) -> Settings:
    """With the bus of the store, and with NATS."""
    return Settings() if request.param == "postgres" else Settings(bus=Bus(url=request.getfixturevalue("nats_url")))


@asynccontextmanager
async def running(store: str, settings: Settings | None = None) -> AsyncIterator[Hub]:
    """A hub that has keys, as one that is served over HTTP."""
    hub = Hub("replica", version="1", store=store, settings=settings, breakers=True)
    hub.launch(Launch(serves_http=True))
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds that no event announces."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run under a deadline."""
    asyncio.run(asyncio.wait_for(scenario, DEADLINE))


def test_a_key_of_one_replica_is_accepted_and_revoked_at_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running(postgres_url, settings) as a, running(postgres_url, settings) as b:
            await a.runtime.keys.create("ada")
            await until(lambda: any(key.id == "ada" for key in b.runtime.authentication.keys))
            await a.runtime.keys.revoke("ada")
            await until(lambda: all(key.id != "ada" for key in b.runtime.authentication.keys))

    run(scenario())


def test_a_component_with_the_four_methods_only_does_not_keep_a_replica_from_reading_changes(postgres_url: str) -> None:
    class Plain:
        name = "plain"

        async def start(self, core: Core) -> None: ...
        async def stop(self) -> None: ...
        async def refresh(self) -> None: ...
        async def prepare(self, settings: Settings) -> None: ...

    async def scenario() -> None:
        async with running(postgres_url) as a, running(postgres_url) as b:
            b.add(Plain())
            for key in ("ada", "bob"):
                await a.runtime.keys.create(key)
                await until(lambda key=key: any(one.id == key for one in b.runtime.authentication.keys))  # type: ignore[misc]

    run(scenario())


def test_a_key_that_is_revoked_while_the_bus_is_down_is_refused_at_the_next_request(postgres_url: str) -> None:
    async def scenario(server: NatsServer) -> None:
        settings = Settings(bus=Bus(url=server.url))
        async with running(postgres_url, settings) as a, running(postgres_url, settings) as b:
            key = await a.runtime.keys.create("ada")
            headers = {b"authorization": f"Bearer {key}".encode()}
            await until(lambda: b.runtime.authentication.known(headers) is not None)
            server.kill()
            await until(lambda: "ok" not in (a.core.bus.health, b.core.bus.health))
            auth = b.runtime.authentication
            assert auth.known(headers) is None  # it has to be read first
            assert (await auth.authenticate(headers)).id == "ada"
            await a.runtime.keys.revoke("ada")
            with pytest.raises(Unauthorized):
                await auth.authenticate(headers)

    with running_nats() as server:
        run(scenario(server))


def test_notifications_of_one_replica_reach_the_clients_of_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running(postgres_url, settings) as a, running(postgres_url, settings) as b:
            heard: list[object] = []
            broadcast = b.engine.broadcast
            broadcast.resource_updated = lambda uri, also=(): heard.append(uri)  # type: ignore[method-assign]
            broadcast.list_changed = lambda kind: heard.append(kind)  # type: ignore[method-assign]
            await a.notify_resource_updated("file:///x")
            await a.notify_changed("tools")
            await until(lambda: len(heard) == 2)
            assert heard == ["file:///x", "tools"]

    run(scenario())


def test_acts_at_one_replica_reach_the_event_streams_of_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running(postgres_url, settings) as a, running(postgres_url, settings) as b:
            here, there = list[tuple[str, str]](), list[tuple[str, str]]()
            a.runtime.changes.subscribe(lambda kind, changed: here.append((kind, changed)))
            b.runtime.changes.subscribe(lambda kind, changed: there.append((kind, changed)))
            audit = a.runtime.core.guard.audit
            assert audit is not None
            audit.record_act("key.created", "ada", "api", "ci")
            await until(lambda: bool(there))
            assert here == there == [("keys", "ci")]

    run(scenario())


def test_a_breaker_opens_and_closes_at_both(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running(postgres_url, settings) as a, running(postgres_url, settings) as b:
            first, second = a.runtime.core.guard.breakers, b.runtime.core.guard.breakers
            assert first is not None
            assert second is not None
            for _ in range(first.settings.failures):
                first.record_failure("tool", "ada", "OSError", "no route")
            await until(lambda: "tool" in second.states())
            assert second.states()["tool"].state == "open"
            assert second.states()["tool"].last_error == "no route"
            first.reset("tool")
            await until(lambda: not second.states())

    run(scenario())


def test_replicas_know_each_other_and_notice_one_that_stops(postgres_url: str) -> None:
    async def scenario() -> None:
        async with running(postgres_url) as a:
            gone: list[str] = []
            a.runtime.replicas.on_gone(gone.append)
            async with running(postgres_url) as b:
                await until(lambda: [one.status for one in a.runtime.replicas.list_all()] == ["ready", "ready"])
                health = await a.runtime.health()
                assert (health["bus"], health["replica"], health["replicas"]) == ("ok", a.runtime.core.replica, 2)
                assert "differing" not in health
                there = b.runtime.core.replica
            await until(lambda: gone == [there])
            assert (await a.runtime.health())["replicas"] == 1

    run(scenario())


def test_a_replica_that_was_silent_too_long_is_dead_and_learns_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "DEAD_AFTER_S", 0.3)
    monkeypatch.setattr(replicas, "HEARTBEAT_INTERVAL_S", 0.05)

    async def scenario() -> None:
        async with running(postgres_url) as a, running(postgres_url) as b:
            gone, fenced = list[str](), asyncio.Event()
            await until(lambda: len(a.runtime.replicas.list_all()) == 2)
            a.runtime.replicas.on_gone(gone.append)
            b.runtime.replicas.on_fenced(fenced.set)
            silent = asyncio.Event()
            beat = b.runtime.replicas.rows.beat

            async def wait_and_beat(replica: Any) -> bool:
                await silent.wait()
                return await beat(replica)

            b.runtime.replicas.rows.beat = wait_and_beat  # type: ignore[method-assign]
            await until(lambda: gone == [b.runtime.core.replica])
            silent.set()
            await fenced.wait()
            await until(lambda: len(a.runtime.replicas.list_all()) == 2)

    run(scenario())


def test_replicas_that_all_lost_the_store_do_not_declare_each_other_dead(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "DEAD_AFTER_S", 3.0)
    monkeypatch.setattr(replicas, "HEARTBEAT_INTERVAL_S", 0.05)

    async def scenario() -> None:
        async with running(postgres_url) as a, running(postgres_url) as b:
            gone, failed, back = list[str](), asyncio.Event(), asyncio.Event()
            await until(lambda: len(a.runtime.replicas.list_all()) == 2)
            a.runtime.replicas.on_gone(gone.append)
            own, other = a.runtime.replicas.rows, b.runtime.replicas.rows
            beat, late_beat = own.beat, other.beat

            async def fail(replica: Any) -> bool:
                failed.set()
                raise StoreUnavailable("The store is away.")

            async def beat_late(replica: Any) -> bool:
                await back.wait()
                return await late_beat(replica)

            other.beat = beat_late  # type: ignore[method-assign]
            own.beat = fail  # type: ignore[method-assign]
            await failed.wait()
            await asyncio.sleep(1.2 * replicas.DEAD_AFTER_S)  # the heartbeat of the other one grows old
            own.beat = beat  # type: ignore[method-assign]
            await until(lambda: a.runtime.replicas.read_at > a.runtime.core.store.now() - 0.04)
            back.set()
            await asyncio.sleep(replicas.DEAD_AFTER_S)
            assert gone == []
            other.beat = fail  # type: ignore[method-assign]
            await until(lambda: gone == [b.runtime.core.replica])

    run(scenario())


def test_the_metrics_of_a_replica_count_the_others_and_the_age_of_their_heartbeats(postgres_url: str) -> None:
    async def scenario() -> None:
        async with running(postgres_url) as a, running(postgres_url) as b:
            await until(lambda: len(a.runtime.replicas.list_all()) == 2)
            found = (await collect_metrics(a.runtime, a.core.pipeline.counters, ANONYMOUS)).replicas
            assert (found.replica, found.bus, found.count) == (a.core.replica, "ok", 2)
            assert found.heartbeat_ages.keys() == {b.core.replica}
            assert 0 <= found.heartbeat_ages[b.core.replica] < replicas.DEAD_AFTER_S

    run(scenario())


def test_replicas_that_differ_are_named_once(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        other = Settings(server=Server(page_size=7))
        async with running(postgres_url) as a, running(postgres_url, other) as b:
            await until(lambda: len(a.runtime.replicas.list_all()) == 2)
            for _ in range(3):
                await a.runtime.replicas.refresh()
            first, second = a.runtime.replicas.list_all()
            assert first.config_digest != second.config_digest
            for one in (a, b):
                await one.runtime.replicas.refresh()
                assert (await one.runtime.health())["differing"] == 1

    run(scenario())
    assert len([record for record in caplog.records if "differs" in record.message]) == 2  # each of the other


def test_a_digest_covers_everything_but_addresses() -> None:
    settings = Settings(workers=Workers())
    here = msgspec.structs.replace(settings, server=Server(port=1), workers=Workers(port=2, host="::1"))
    assert digest_settings(settings) == digest_settings(here)
    assert digest_settings(settings) != digest_settings(Settings(server=Server(page_size=7)))


def test_a_hub_with_a_store_of_its_own_is_alone_and_writes_no_heartbeat() -> None:
    async def scenario() -> None:
        async with running("sqlite://") as hub:
            health = await hub.runtime.health()
            assert (health["bus"], health["replicas"]) == ("ok", 1)
            assert [one.id for one in hub.runtime.replicas.list_all()] == [hub.runtime.core.replica]
            assert await hub.runtime.replicas.rows.list() == []

    run(scenario())
