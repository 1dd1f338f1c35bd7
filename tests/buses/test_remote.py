"""Buses through a server: clusters, loss and return of the server, refusals of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from tests.buses.conftest import DEADLINE, Recorder, echo, opened
from tests.chaos.freezing_proxy import freezing_proxy
from tests.nats import NatsServer, running_nats
from tests.postgres import SECRETIVE, run_sql
from waypost.buses import Bus, create_bus, postgres
from waypost.buses.nats import parse_url
from waypost.buses.postgres import MAX_NOTIFICATION_BYTES
from waypost.buses.remote import Kind, Link, Receiver
from waypost.errors import DeadlineExceeded, NoHolder, WaypostError

SERVERS: Final = ("postgres_url", "nats_url")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run under a deadline."""
    asyncio.run(asyncio.wait_for(scenario, DEADLINE))


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a bus on each server."""
    found: str = request.getfixturevalue(request.param)
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Poll until a condition holds that no event announces."""
    while not holds():  # noqa: ASYNC110  # nothing sets an event
        await asyncio.sleep(0.01)


async def publish_until_received(sender: Bus, recorder: Recorder) -> None:
    """Publish until a message arrives."""
    before = len(recorder.received)
    while len(recorder.received) == before:
        await sender.publish("a", b"again")
        await asyncio.sleep(0.05)


def test_two_clusters_on_one_server_are_separate(url: str) -> None:
    async def scenario() -> None:
        async with opened(create_bus(url, "one")) as one, opened(create_bus(url, "two")) as two:
            recorder = {"one": Recorder(), "two": Recorder()}
            async with opened(create_bus(url, "one")) as other:
                await one.subscribe(">", recorder["one"])
                await two.subscribe(">", recorder["two"])
                await one.serve("name", echo)
                with pytest.raises(NoHolder):
                    await two.request("name", b"", within=60)
                assert await other.request("name", b"here", within=60) == b"here"
                await other.publish("a", b"")
                await recorder["one"].have(1)
            assert recorder["two"].received == []

    run(scenario())


def test_the_holder_of_a_dead_process_is_gone_at_once(url: str) -> None:
    async def scenario() -> None:
        async with opened(create_bus(url, "c")) as asker, opened(create_bus(url, "c")) as dying:
            await dying.serve("name", echo)
            assert await asker.request("name", b"x", within=60) == b"x"
            # As the end of the process does; without the first line it would connect again, and respond.
            dying._keeper.cancel()  # type: ignore[attr-defined]
            await dying._link.disconnect()  # type: ignore[attr-defined]

            async def is_gone() -> None:
                while True:
                    try:
                        await asker.request("name", b"", within=0.2)
                    except NoHolder:
                        return
                    except DeadlineExceeded:
                        continue

            await asyncio.wait_for(is_gone(), 60)

    run(scenario())


def test_a_responder_that_ends_while_its_bus_connects_gets_no_requests(url: str) -> None:
    async def scenario() -> None:
        leaving = create_bus(url, "c")
        ended = await leaving.serve("name", echo)
        connect = leaving._connect  # type: ignore[attr-defined]

        async def connect_and_end(receiver: Receiver) -> Link:
            link: Link = await connect(receiver)
            add = link.add

            async def add_and_end(kind: Kind, subject: str) -> None:
                await add(kind, subject)
                await ended.end()

            link.add = add_and_end  # type: ignore[method-assign]  # the moment before the link is in use
            return link

        leaving._connect = connect_and_end  # type: ignore[attr-defined]
        async with opened(leaving), opened(create_bus(url, "c")) as other, opened(create_bus(url, "c")) as asker:
            assert leaving.health == "ok"
            await other.serve("name", echo)
            for _ in range(30):  # a server that knew two responders would choose at random
                assert await asker.request("name", b"x", within=60) == b"x"

    run(scenario())


def test_a_subscription_that_began_and_ends_on_a_lost_connection_ends_without_an_error(url: str) -> None:
    async def scenario() -> None:
        async with opened(create_bus(url, "c")) as bus:
            bus._keeper.cancel()  # type: ignore[attr-defined]  # so that the connection is not replaced
            await bus._link.disconnect()  # type: ignore[attr-defined]
            subscription, responder = await bus.subscribe("a", Recorder()), await bus.serve("name", echo)
            await subscription.end()
            await responder.end()

    run(scenario())


def test_large_messages_and_many_equal_ones_arrive_in_order(url: str) -> None:
    async def scenario() -> None:
        async with opened(create_bus(url, "c")) as one, opened(create_bus(url, "c")) as two:
            recorder = Recorder()
            await one.subscribe("a", recorder)
            await one.serve("name", echo)
            sent = [b"same", b"same", b"x" * (2 * MAX_NOTIFICATION_BYTES), b"same", bytes(range(256)), b""]
            for message in sent:
                await two.publish("a", message)
            assert [message for _, message in await recorder.have(len(sent))] == sent
            large = b"\x00y" * MAX_NOTIFICATION_BYTES
            assert await two.request("name", large, within=30) == large

    run(scenario())


def test_payloads_that_were_read_are_swept(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(create_bus(postgres_url, "c")) as one, opened(create_bus(postgres_url, "c")) as two:
            recorder = Recorder()
            await one.subscribe("a", recorder)
            await two.publish("a", b"x" * (2 * MAX_NOTIFICATION_BYTES))
            await recorder.have(1)
        run_sql(postgres_url, "UPDATE bus_payloads SET at = at - interval '1 hour'")
        async with opened(create_bus(postgres_url, "c")):
            await until(lambda: run_sql(postgres_url, "SELECT count(*) FROM bus_payloads")[0][0] == 0)

    run(scenario())


def test_a_bus_that_cannot_keep_up_with_postgresql_drops_messages_and_reports_the_loss(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        one, two = create_bus(postgres_url, "c"), create_bus(postgres_url, "c")
        async with opened(two):
            monkeypatch.setattr(postgres, "_MAX_UNREAD", 10)
            await one.open()
            recorder, lost = Recorder(), asyncio.Event()
            one.on_reconnect(lost.set)
            await one.subscribe("a", recorder)
            link = one._link  # type: ignore[attr-defined]
            async with link._sending:  # the large message is not read, and what follows waits behind it
                await two.publish("a", b"x" * (2 * MAX_NOTIFICATION_BYTES))
                for number in range(100):
                    await two.publish("a", b"%d" % number)
                async with asyncio.timeout(60):
                    await until(lambda: "loses messages" in caplog.text)
                assert link._incoming.qsize() <= 10
                assert one.health == "degraded"
            await lost.wait()
            await until(lambda: one.health == "ok")
            assert one._link is link  # type: ignore[attr-defined]  # messages of this process still reach the others
            assert [message for _, message in (await recorder.have(4))[1:4]] == [b"0", b"1", b"2"]
            await publish_until_received(two, recorder)
            await one.close()

    run(scenario())


def test_messages_that_the_nats_client_drops_are_reported_as_a_loss(nats_url: str) -> None:
    async def scenario() -> None:
        async with opened(create_bus(nats_url, "c")) as one, opened(create_bus(nats_url, "c")) as two:
            lost = asyncio.Event()
            one.on_reconnect(lost.set)
            await one.subscribe("a", Recorder())
            [subscription] = one._link._subscriptions.values()  # type: ignore[attr-defined]
            subscription._pending_bytes_limit = 1  # the client's own default is 128 MB
            await two.publish("a", b"larger than that")
            async with asyncio.timeout(60):
                await lost.wait()

    run(scenario())


def test_a_connection_that_postgresql_ends_is_replaced_with_all_subscriptions(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(create_bus(postgres_url, "c")) as one, opened(create_bus(postgres_url, "c")) as two:
            recorder, returned = Recorder(), asyncio.Event()
            one.on_reconnect(returned.set)
            await one.subscribe("a", recorder)
            await one.serve("name", echo)
            pid = one._link._listener.get_server_pid()  # type: ignore[attr-defined]
            connection = await asyncpg.connect(postgres_url)
            await connection.execute("SELECT pg_terminate_backend($1)", pid)
            await connection.close()
            await returned.wait()
            assert one.health == "ok"
            await publish_until_received(two, recorder)
            assert await two.request("name", b"x", within=60) == b"x"

    run(scenario())


def test_a_bus_whose_nats_server_comes_later_starts_degraded_and_recovers(caplog: pytest.LogCaptureFixture) -> None:
    server = NatsServer()

    async def scenario() -> None:
        async with opened(create_bus(server.url, "c")) as one, opened(create_bus(server.url, "c")) as two:
            recorder, returned = Recorder(), asyncio.Event()
            one.on_reconnect(returned.set)
            await one.subscribe("a", recorder)
            await one.serve("name", echo)
            assert one.health == two.health == "degraded"
            await one.publish("a", b"within the process")
            assert await recorder.have(1) == [("a", b"within the process")]
            assert await one.request("name", b"x", within=60) == b"x"
            with pytest.raises(NoHolder, match="not connected"):
                await two.request("name", b"x", within=60)
            server.start()
            await returned.wait()
            await until(lambda: two.health == "ok")
            await publish_until_received(two, recorder)
            assert await two.request("name", b"x", within=60) == b"x"
            returned.clear()
            server.kill()
            await until(lambda: one.health == "degraded")
            server.start()
            await returned.wait()
            await publish_until_received(two, recorder)

    with caplog.at_level(logging.WARNING, "waypost.buses"):
        try:
            run(scenario())
        finally:
            server.kill()
    assert any("bus not connected" in record.message for record in caplog.records)


def test_a_request_whose_server_dies_does_not_wait_for_its_deadline() -> None:
    async def scenario(server: NatsServer) -> None:
        async with opened(create_bus(server.url, "c")) as one, opened(create_bus(server.url, "c")) as two:
            began, go = asyncio.Event(), asyncio.Event()

            async def waits(_question: bytes) -> bytes:
                began.set()
                await go.wait()
                return b""

            await one.serve("name", waits)
            asking = asyncio.create_task(two.request("name", b"", within=1000))
            await began.wait()
            server.kill()
            with pytest.raises(DeadlineExceeded, match="was lost before name answered"):
                await asking
            go.set()

    with running_nats() as server:
        run(scenario(server))


def test_one_of_several_nats_servers_is_enough(nats_url: str) -> None:
    async def scenario() -> None:
        here = nats_url.removeprefix("nats://")
        async with opened(create_bus(f"nats://127.0.0.1:1,{here}", "c")) as bus:
            assert bus.health == "ok"

    run(scenario())


def refusal(url: str) -> str:
    """The error message of a bus that cannot be opened."""

    async def scenario() -> str:
        bus = create_bus(url, "c")
        with pytest.raises(WaypostError) as refused:
            await bus.open()
        assert bus.health == "down"
        return refused.value.message

    return asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_wrong_credentials_are_one_sentence(postgres_server: str) -> None:
    with running_nats("--user", "ada", "--pass", "lovelace") as server:
        host = server.url.removeprefix("nats://")
        message = f"The NATS server at {host} refused the credentials of the bus."
        assert refusal(server.url) == message
        assert refusal(f"nats://ada:wrong@{host}") == message
    role = f"CREATE ROLE {SECRETIVE} LOGIN PASSWORD 'right'"
    run_sql(
        postgres_server, f"DO $$ BEGIN {role}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )
    user = postgres_server.replace("postgresql://postgres:", f"postgresql://{SECRETIVE}:wrong", 1)
    assert "password authentication failed" in refusal(user)


def test_a_nats_server_without_permission_for_the_subjects_is_one_sentence(tmp_path: Path) -> None:
    for permission in ('publish: "other.>"', 'subscribe: "other.>"'):
        file = tmp_path / "nats.conf"
        file.write_text(
            f"authorization {{ users = [ {{ user: ada, password: x, permissions: {{ {permission} }} }} ] }}\n"
        )
        with running_nats("-c", str(file)) as server:
            host = server.url.removeprefix("nats://")
            said = refusal(f"nats://ada:x@{host}")
            assert said.startswith(f"The NATS server at {host} does not permit the subjects of the cluster; ")
            assert "allow to publish and to subscribe waypost.c.>" in said


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nats://", "is like nats://host:4222"),
        ("nats://a?cred=x", "has no option 'cred'"),
        ("redis://a", "a names no bus"),
        ("nats://a?ca=/does/not/exist.pem", "cannot be read"),
    ],
)
def test_a_url_that_names_no_bus_is_refused(given: str, why: str) -> None:
    with pytest.raises(WaypostError, match=why):
        create_bus(given, "c")


def test_credentials_given_once_are_for_all_servers() -> None:
    servers = parse_url("tls://ada:x@a:4222,b,c:5222/?creds=/x.creds")
    assert servers.urls == ("tls://ada:x@a:4222", "tls://ada:x@b", "tls://ada:x@c:5222")
    assert servers.name == "a:4222,b,c:5222"
    assert servers.options == {"creds": "/x.creds"}


def test_a_server_that_does_not_answer_degrades_the_bus_before_the_connection_counts_as_lost(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(postgres, "_TIMEOUT_S", 2 * DEADLINE)  # so that it is not lost in this test
        async with freezing_proxy(postgres_url) as (proxy, url), opened(create_bus(url, "c")) as bus:
            link = bus._link  # type: ignore[attr-defined]
            proxy.freeze()
            await until(lambda: bus.health == "degraded")
            proxy.thaw()
            await until(lambda: bus.health == "ok")
            assert bus._link is link  # type: ignore[attr-defined]

    run(scenario())


def test_a_bus_connects_again_after_an_attempt_that_the_server_did_not_answer(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.DEBUG, "waypost.buses")
        async with freezing_proxy(postgres_url) as (proxy, url), opened(create_bus(url, "c")) as bus:
            proxy.freeze()
            proxy.drop()
            await until(lambda: "bus not connected" in caplog.text)
            assert bus.health == "degraded"
            proxy.thaw()
            await until(lambda: bus.health == "ok")

    run(scenario())
