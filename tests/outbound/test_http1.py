"""The connection pool: reuse, limits, cancellation and errors."""

from __future__ import annotations

import asyncio
import datetime
import errno
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.outbound.raw_http import ASKED, DEADLINE, OK, Caught, Talk, always, ask, once, speaking
from tests.ports import free_port
from tests.upstreams.conftest import until
from waypost.outbound.http1 import Address, ConnectionPool, HttpError, parse_address

# Connections that are kept


def test_one_connection_carries_one_request_after_the_other() -> None:
    async def scenario() -> None:
        async with speaking(always(OK)) as server:
            pool = server.pool()
            for _ in range(20):
                assert (await ask(pool)).body == b"ok"
            assert server.connections == 1
            await pool.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + OK,
        OK + b"garbage",
    ],
    ids=["it says so", "an older version", "two answers", "something more"],
)
def test_a_connection_that_cannot_be_reused_is_replaced(answer: bytes) -> None:
    async def scenario() -> None:
        async with speaking(always(answer)) as server:
            pool = server.pool()
            for _ in range(3):
                assert (await ask(pool)).body == b"ok"
            assert server.connections == 3
            await pool.close()

    asyncio.run(scenario())


def test_idle_connections_that_the_server_closed_are_replaced() -> None:
    async def scenario() -> None:
        async with speaking(once(OK)) as server:
            pool = server.pool()
            for number in range(1, 6):
                assert (await ask(pool)).body == b"ok"
                await until(lambda: server.open == 0)
                await until(lambda: not pool._idle)
                assert server.connections == number
            await pool.close()

    asyncio.run(scenario())


def test_a_closed_idle_connection_is_detected_before_the_loop_reports_it() -> None:
    async def scenario() -> None:
        closing = asyncio.Event()

        async def converse(talk: Talk) -> None:
            await talk.asked()
            await talk.say(OK)
            if talk.number == 1:
                await closing.wait()
            else:
                await talk.ended()

        async with speaking(converse) as server:
            pool = server.pool()
            await ask(pool)
            for connection in pool._idle:
                connection.idle_since -= 2
                assert connection._transport is not None
                connection._transport.pause_reading()
            closing.set()
            await until(lambda: server.open == 0)
            assert (await ask(pool)).body == b"ok"
            assert server.connections == 2
            await pool.close()

    asyncio.run(scenario())


def test_a_reused_connection_closed_without_a_response_is_an_error_without_a_retry() -> None:
    requests: list[bytes] = []

    async def converse(talk: Talk) -> None:
        requests.append(await talk.asked())
        await talk.say(OK)
        requests.append(await talk.asked())

    async def scenario() -> None:
        async with speaking(converse) as server:
            pool = server.pool()
            await ask(pool)
            with pytest.raises(HttpError, match="closed without a response") as caught:
                await ask(pool)
            assert caught.value.sent
            await pool.close()

    asyncio.run(scenario())
    assert len(requests) == 2


def test_a_connection_with_unsolicited_data_is_closed() -> None:
    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.say(OK)
        await talk.say(OK)
        await talk.ended()

    async def scenario() -> None:
        async with speaking(converse) as server:
            pool = server.pool()
            assert (await ask(pool)).body == b"ok"
            await server.left.wait()
            await pool.close()

    asyncio.run(scenario())


def test_idle_connections_are_closed() -> None:
    async def scenario() -> None:
        async with speaking(always(OK)) as server:
            pool = server.pool(idle_timeout=0.05)
            await asyncio.gather(*(ask(pool) for _ in range(5)))
            assert server.connections == 5  # the first may be closed already
            await until(lambda: server.open == 0)
            assert (await ask(pool)).body == b"ok"
            await pool.close()

    asyncio.run(scenario())


# Limits


def test_a_thousand_requests_at_once_share_a_few_connections_in_their_order() -> None:
    async def scenario() -> None:
        async with speaking(always(OK)) as server:
            pool = server.pool(max_connections=8)
            ended: list[int] = []

            async def one(number: int) -> None:
                await ask(pool)
                ended.append(number)

            await asyncio.gather(*(one(number) for number in range(1000)))
            assert server.most_open <= 8
            assert server.connections <= 8
            assert max(abs(number - place) for place, number in enumerate(ended)) <= 16
            await pool.close()

    asyncio.run(scenario())


def test_waiting_requests_are_sent_on_new_connections_when_others_close() -> None:
    async def scenario() -> None:
        async with speaking(once(OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))) as server:
            pool = server.pool(max_connections=2)
            answers = await asyncio.gather(*(ask(pool) for _ in range(20)))
            assert [answer.body for answer in answers] == [b"ok"] * 20
            assert server.connections == 20
            await pool.close()

    asyncio.run(scenario())


def test_waiting_requests_fail_when_no_connection_can_be_made() -> None:
    async def scenario() -> None:
        pool = ConnectionPool(Address("http", "127.0.0.1", free_port(), "/"), max_connections=2)
        async with asyncio.timeout(DEADLINE):
            outcomes = await asyncio.gather(*(ask(pool) for _ in range(10)), return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["the connection was refused"] * 10
        await pool.close()

    asyncio.run(scenario())


def test_urgent_requests_do_not_wait_for_others() -> None:
    async def converse(talk: Talk) -> None:
        if b"/slow" in await talk.asked():
            await talk.ended()
        await talk.say(OK)
        await always(OK)(talk)

    async def scenario() -> None:
        async with speaking(converse) as server:
            pool = server.pool(max_connections=1)
            slow = Caught(ASKED.replace(b"/mcp", b"/slow"))
            pool.send(slow)
            urgent = Caught()
            pool.send(urgent, is_urgent=True)
            patient = Caught()
            pool.send(patient)
            assert (await urgent.outcome()).body == b"ok"
            assert not patient.is_over.is_set()
            pool.cancel(slow)
            assert (await patient.outcome()).body == b"ok"
            await pool.close()

    asyncio.run(scenario())


# Cancelling


def test_a_cancelled_slow_response_closes_its_connection() -> None:
    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x")
        await talk.ended()

    async def scenario() -> None:
        async with speaking(converse) as server:
            pool = server.pool()
            caught = Caught()
            pool.send(caught)
            await caught.begins.wait()
            pool.cancel(caught)
            pool.cancel(caught)
            await server.left.wait()
            assert not caught.is_over.is_set()
            await pool.close()

    asyncio.run(scenario())


def test_cancelling_a_finished_request_does_not_affect_the_next_one() -> None:
    async def scenario() -> None:
        async with speaking(always(OK)) as server:
            pool = server.pool()
            first, second = Caught(), Caught()
            pool.send(first)
            await first.outcome()
            pool.send(second)
            pool.cancel(first)
            assert (await second.outcome()).body == b"ok"
            assert server.connections == 1
            await pool.close()

    asyncio.run(scenario())


def test_a_waiting_or_connecting_request_can_be_cancelled() -> None:
    async def scenario() -> None:
        async with speaking(always(OK)) as server:
            pool = server.pool(max_connections=1)
            caught = [Caught() for _ in range(3)]
            for one in caught:
                pool.send(one)
            pool.cancel(caught[0])
            pool.cancel(caught[1])
            assert (await caught[2].outcome()).body == b"ok"
            assert not caught[0].is_over.is_set()
            assert not caught[1].is_over.is_set()
            await pool.close()

    asyncio.run(scenario())


def test_closing_ends_all_waiting_requests() -> None:
    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.ended()

    async def scenario() -> None:
        async with speaking(converse) as server:
            pool = server.pool(max_connections=2)
            caught = [Caught() for _ in range(4)]
            pool.send(caught[0])
            await until(lambda: server.open == 1)
            for one in caught[1:]:
                pool.send(one)
            await pool.close()
            assert [str(one.problem) for one in caught] == ["the connection was closed"] * 4
            assert [one.problem.sent for one in caught if isinstance(one.problem, HttpError)] == [True] + [False] * 3
            await until(lambda: server.open == 0)

    asyncio.run(scenario())


# Making connections


def test_an_unknown_name_is_an_error() -> None:
    async def scenario() -> None:
        pool = ConnectionPool(Address("http", "nobody.invalid", 80, "/"))
        with pytest.raises(HttpError, match="its name is not known") as caught:
            await ask(pool)
        assert not caught.value.sent
        await pool.close()

    asyncio.run(scenario())


def test_a_connection_that_takes_too_long_times_out() -> None:
    async def scenario() -> None:
        async with speaking(lambda talk: talk.ended()) as server:
            pool = ConnectionPool(Address("https", "127.0.0.1", server.port, "/"), connect_timeout=0.2)
            with pytest.raises(HttpError, match=r"no connection within 0\.2 s") as caught:
                await ask(pool)
            assert not caught.value.sent
            await pool.close()

    asyncio.run(scenario())


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        return probe.connect_ex(("::1", 1)) != errno.EADDRNOTAVAIL


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6_addresses_are_connected() -> None:
    async def scenario() -> None:
        async with speaking(always(OK), host="::1") as server:
            pool = ConnectionPool(parse_address(f"http://[::1]:{server.port}/"))
            assert (await ask(pool)).body == b"ok"
            await pool.close()

    asyncio.run(scenario())


def certificate(folder: Path, *names: str) -> Path:
    """A file with a key and a self-signed certificate for this machine and for names."""
    owners = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *map(x509.DNSName, names)]
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(owners), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "own.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.mark.parametrize("is_trusted", [True, False])
def test_tls_needs_a_trusted_certificate(is_trusted: bool, tmp_path: Path) -> None:
    own = certificate(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(own)
    ours = ssl.create_default_context(cafile=str(own)) if is_trusted else None

    async def scenario() -> None:
        async with speaking(always(OK), theirs) as server:
            pool = ConnectionPool(Address("https", "127.0.0.1", server.port, "/"), tls=ours)
            if is_trusted:
                for _ in range(3):
                    assert (await ask(pool)).body == b"ok"
                assert server.connections == 1
            else:
                with pytest.raises(HttpError, match="its certificate is not trusted: self-signed") as caught:
                    await ask(pool)
                assert not caught.value.sent
            await pool.close()

    asyncio.run(scenario())


def test_a_server_without_tls_is_an_error_that_says_so() -> None:
    async def scenario() -> None:
        async with speaking(lambda talk: talk.say(b"220 ready\r\n")) as server:
            pool = ConnectionPool(Address("https", "127.0.0.1", server.port, "/"))
            with pytest.raises(HttpError, match="does not speak TLS"):
                await ask(pool)
            await pool.close()

    asyncio.run(scenario())
