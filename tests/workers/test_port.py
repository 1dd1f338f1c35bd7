"""Which connections the port for workers accepts, and at which addresses it may be."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import InvalidStatus

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.errors import DefinitionError, WaypostError

TOKEN = "s3cret"


async def status(hub: Hub, path: str = "", **options: Any) -> int:
    """How the port answers a handshake."""
    try:
        async with dial(address(hub) + path, **options):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def guarded() -> Hub:
    """A hub whose workers need a token."""
    return hub_for_workers(workers={"port": 0, "token": TOKEN})


@pytest.mark.parametrize("path", ["", "/", "/otel", "/base/path", "/base/otel"])
def test_a_token_is_asked_for_on_every_kind_of_socket(path: str) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = guarded()
        async with at_work(hub):
            assert await status(hub, path) == 401
            assert await status(hub, path, additional_headers={"Authorization": "Bearer wrong"}) == 401
            assert await status(hub, path, additional_headers={"Authorization": f"Basic {TOKEN}"}) == 401
            assert await status(hub, f"{path}?token=wrong") == 401
            for scheme in ("Bearer", "bearer", "BEARER"):
                assert await status(hub, path, additional_headers={"Authorization": f"{scheme} {TOKEN}"}) == 101
            assert await status(hub, path, additional_headers={"Authorization": f"Bearer{TOKEN}"}) == 401
            assert await status(hub, f"{path}?token={TOKEN}") == 101
            await until(lambda: rows(hub)["workers"] == 0)

    scenario()


@asynchronous
async def test_the_key_of_a_channel_is_enough_for_it() -> None:
    hub = guarded()
    async with at_work(hub), wired(hub, f"?token={TOKEN}") as worker:
        made = await worker.result("engine::channels::create", {})
        reader = f"/ws/channels/{made['reader']['channel_id']}?key={made['reader']['access_key']}&dir=read"
        assert await status(hub, reader) == 101


@asynchronous
async def test_web_pages_of_other_hosts_are_refused() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        assert await status(hub, origin="https://evil.example") == 403
        assert await status(hub, origin="null") == 403
        assert await status(hub, "/otel", origin="https://evil.example") == 403
        assert await status(hub, origin="http://localhost:3000") == 101
        assert await status(hub, origin="http://127.0.0.1:3000") == 101


@asynchronous
async def test_telemetry_of_workers_is_accepted_and_discarded() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        async with dial(f"{address(hub)}/otel") as telemetry:
            for frame in (
                b"OTLP{}",
                b"MTRC\x00",
                b"LOGS[]",
                "text",
                json.dumps({"type": "registerfunction", "id": "a"}),
            ):
                await telemetry.send(frame)
            await (await telemetry.ping())
        assert set(rows(hub).values()) == {0}


@asynchronous
async def test_a_port_that_is_taken_is_an_error_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        hub = hub_for_workers(workers={"port": port})
        with pytest.raises(WaypostError) as refused:
            await hub.start()
        await hub.stop()
    assert str(refused.value) == f"Cannot listen for workers on 127.0.0.1:{port}: Address already in use."


def test_a_port_that_can_be_reached_from_outside_needs_a_token() -> None:
    with pytest.raises(
        WaypostError, match=r"Workers can reach 0\.0\.0\.0 from outside and need no token; set workers\.token"
    ):
        _ = hub_for_workers(workers={"host": "0.0.0.0", "port": 0}).workers
    assert hub_for_workers(workers={"host": "0.0.0.0", "port": 0, "token": TOKEN}).workers.address is None


@pytest.mark.parametrize("host", ["127.0.0.2", "LOCALHOST", "0:0:0:0:0:0:0:1", "[::1]"])
def test_a_port_on_loopback_needs_no_token_in_any_notation(host: str) -> None:
    assert hub_for_workers(workers={"host": host, "port": 0}).workers.address is None


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no setting 'prot' for workers; there are host, port, token"):
        _ = hub_for_workers(workers={"prot": 1}).workers


@asynchronous
async def test_without_workers_there_is_no_port() -> None:
    hub = hub_for_workers(workers=False)
    async with at_work(hub):
        assert hub.runtime.worker_address is None


@asynchronous
async def test_a_stopping_hub_closes_the_connections_of_workers_and_frees_the_port() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        where = address(hub)
        async with wired(hub) as worker:
            await worker.offer("a::b")
            await hub.workers.stop()
            await worker.socket.wait_closed()
            assert worker.socket.close_code == 1001
        assert rows(hub)["workers"] == rows(hub)["functions"] == 0
        assert hub.workers.address is None
        again = hub_for_workers(workers={"port": int(where.rpartition(":")[2])})
        async with at_work(again):
            assert address(again) == where


@asynchronous
async def test_connections_beyond_a_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.sockets._MAX_SOCKETS", 1)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub):
        assert await status(hub) == 503


async def raw(hub: Hub, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a part of a handshake was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address(hub).rpartition(":")[2]))
    writer.write(data)
    return reader, writer


@asynchronous
async def test_a_handshake_with_headers_over_the_limit_is_answered_431() -> None:
    hub = hub_for_workers(max_header_bytes=10_000)
    async with at_work(hub):
        reader, writer = await raw(hub, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"x-a: bbbbbbbbbbbbbbbb\r\n" * 1000)
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"maxHeaderBytes" in answer
        async with wired(hub) as worker:
            await worker.offer("a::b")


@asynchronous
async def test_half_a_handshake_is_closed_after_a_while() -> None:
    hub = hub_for_workers(header_timeout_ms=100)
    async with at_work(hub):
        reader, writer = await raw(hub, b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


@asynchronous
async def test_connections_without_a_handshake_make_room_for_workers() -> None:
    hub = hub_for_workers(max_pending_connections=5)
    async with at_work(hub):
        writers = [(await raw(hub, b"GET / HTTP/1.1\r\n"))[1] for _ in range(40)]
        async with wired(hub) as worker:
            await worker.offer("a::b")
            await until(lambda: len(hub.workers._port._sockets) <= 6)
        for writer in writers:
            writer.close()


def test_refused_tokens_are_logged_at_most_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = guarded()
        async with at_work(hub):
            for _ in range(3):
                assert await status(hub, "/", additional_headers={"Authorization": "Bearer wrong"}) == 401

    scenario()
    first, rest = [one.getMessage() for one in caplog.records if "refused for their token" in one.getMessage()]
    assert "count=1, last had a wrong token" in first
    assert "count=2" in rest  # those that were only counted, when the hub stops


@asynchronous
async def test_refused_tokens_are_recorded_in_the_audit_with_their_number() -> None:
    hub = hub_for_workers(workers={"port": 0, "token": TOKEN}, audit="store")
    async with at_work(hub):
        for _ in range(3):
            assert await status(hub, "/", additional_headers={"Authorization": "Bearer wrong"}) == 401
        assert await status(hub, "/") == 401
        hub.workers._port.refused_tokens.flush()  # as after ten seconds, or when the hub stops
        audit = hub.runtime.core.guard.audit
        assert audit is not None
        await audit.written()
        entries = reversed(await hub.store.audit.latest())
        found = [one.value for one in entries if one.value.get("action") == "worker.refused"]
    assert [(one["decision"], one["caller"], one["reason"]) for one in found] == [
        ("deny", "127.0.0.1", "a wrong token"),
        ("deny", "127.0.0.1", "no token; 3 since the last record"),
    ]
