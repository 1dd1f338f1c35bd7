"""Invalid data on a socket, which must not affect other connections."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Json, address, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.workers.frames import MAX_MESSAGE_BYTES

GARBAGE: list[str | bytes] = [
    "",
    "not json",
    "[]",
    "null",
    "{}",
    '{"type": 5}',
    '{"type": "nosuchthing"}',
    '{"type": "registerfunction"}',
    '{"type": "registerfunction", "id": 5}',
    '{"type": "invokefunction", "function_id": []}',
    '{"type": "invocationresult", "invocation_id": {}}',
    '{"type": "registertrigger", "id": "a"}',
    '{"type": "reattach", "previous_worker_id": 5}',
    '{"type": "ping"',
    '{"type": "invokefunction", "function_id": "a", "data": ' + "[" * 100_000,
    '{"type": "invokefunction", "function_id": "a", "data": ' + "[" * 50_000 + "]" * 50_000 + "}",
    '{"type": "registerfunction", "id": "a::deep", "metadata": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
    b"",
    b"\x00\xff\xfe",
    b"OTLP{}",
    b"MTRC\x00\x01",
    b"{\xff}",
    os.urandom(70_000),
]


def raw_socket(hub: Hub) -> socket.socket:
    """A connection without a handshake."""
    where = urlsplit(address(hub))
    assert where.hostname is not None
    assert where.port is not None
    return socket.create_connection((where.hostname, where.port), timeout=60)


@asynchronous
async def test_garbage_closes_nothing_and_is_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce("garbled")
        with caplog.at_level(logging.WARNING):
            for garbage in GARBAGE:
                await worker.raw(garbage)
            await worker.settled()
        assert await worker.result("engine::workers::list")
        received = [record.getMessage() for record in caplog.records]
        assert len(received) == 3
        assert all("garbled was ignored" in line for line in received)


@asynchronous
async def test_messages_may_come_as_bytes_too() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce()
        await worker.raw(json.dumps({"type": "ping"}).encode())
        await worker.next("pong")


@asynchronous
async def test_a_message_may_come_in_pieces() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as owner:
        await owner.offer("a::b")
        async with wired(hub) as caller:
            text = json.dumps(
                {"type": "invokefunction", "function_id": "a::b", "invocation_id": "i", "data": "x" * 10_000}
            )
            await caller.socket.send(text[start : start + 1000] for start in range(0, len(text), 1000))
            assert len((await owner.serve("a::b", 1))["data"]) == 10_000
            await caller.next("invocationresult", invocation_id="i")


@pytest.mark.parametrize("extra", [0, 1])
def test_the_longest_message_is_taken_and_a_longer_one_is_not(extra: int) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as other, wired(hub) as worker:
            await worker.introduce("big")
            await other.introduce("small")
            frame: Json = {"type": "invokefunction", "function_id": "no::such", "invocation_id": "i", "data": ""}
            padding = MAX_MESSAGE_BYTES - len(json.dumps(frame)) + extra
            message = json.dumps({**frame, "data": "x" * padding})
            if extra:
                with pytest.raises(ConnectionClosed):
                    await worker.raw(message)
                    await worker.next("invocationresult")
                assert worker.socket.close_code == 1009
                await until(lambda: rows(hub)["workers"] == 1)
            else:
                await worker.raw(message)
                answer = await worker.next("invocationresult", invocation_id="i")
                assert answer["error"]["code"] == "function_not_found"
            assert await other.result("engine::workers::list")

    scenario()


@asynchronous
async def test_an_answer_that_is_too_long_for_its_caller_is_an_error() -> None:
    hub = hub_for_workers()

    @hub.tool
    async def long() -> str:
        """A long text."""
        return "x" * (MAX_MESSAGE_BYTES + 1)

    async with at_work(hub), wired(hub) as caller:
        assert (await caller.error("long", {}))["code"] == "payload_too_large"


@asynchronous
async def test_half_a_handshake_and_half_a_frame_delay_no_other_connection() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce()
        with raw_socket(hub) as silent, raw_socket(hub) as half, raw_socket(hub) as nonsense:
            half.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
            nonsense.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            async with wired(hub) as stuck:
                stuck.socket.transport.write(b"\x81\xff")
                assert await worker.result("engine::workers::list")
                stuck.socket.transport.write(b"\x00\x00\x00\x00\x00")
                assert await worker.result("engine::workers::list")
                stuck.socket.transport.abort()
            silent.close()
        await until(lambda: rows(hub)["workers"] == 1)


@asynchronous
async def test_a_frame_against_the_rules_ends_only_its_own_connection() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker, wired(hub) as wrong:
        await worker.introduce()
        wrong.socket.transport.write(b"\x8f\x80\x00\x00\x00\x00")
        with pytest.raises(ConnectionClosed):
            await wrong.next("pong")
        assert wrong.socket.close_code == 1002
        assert await worker.result("engine::workers::list")
        await until(lambda: rows(hub)["workers"] == 1)


@asynchronous
async def test_a_worker_that_half_closes_its_connection_is_removed() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.offer("a::b")
        worker.socket.transport.write_eof()
        await until(lambda: rows(hub)["workers"] == 0)
        assert rows(hub)["functions"] == 0


@asynchronous
async def test_a_worker_with_too_much_unread_data_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.sockets._MAX_UNSENT_BYTES", 1024 * 1024)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as caller:
        async with dial(address(hub), max_size=None, max_queue=1) as deaf:
            await deaf.send(json.dumps({"type": "registerfunction", "id": "deaf::one"}))
            await until(lambda: rows(hub)["functions"] == 1)
            deaf.transport.pause_reading()
            asked = await caller.ask("deaf::one", "x")
            for _ in range(200):
                await caller.send(
                    "invokefunction", function_id="deaf::one", data="x" * 100_000, action={"type": "void"}
                )
            answer = await caller.next("invocationresult", invocation_id=asked)
            assert answer["error"]["code"] == "invocation_stopped"
            assert rows(hub)["workers"] == 1
            deaf.transport.abort()
        assert await caller.result("engine::workers::list")


@asynchronous
async def test_a_silent_worker_is_pinged_and_then_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.sockets._CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr("waypost.workers.sockets._PING_AFTER_S", 0.05)
    monkeypatch.setattr("waypost.workers.sockets._SILENCE_TIMEOUT_S", 3.0)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as alive, wired(hub) as dead:
        await alive.introduce()
        dead.socket.transport.pause_reading()
        await until(lambda: rows(hub)["workers"] == 1)
        await asyncio.wait_for(alive.settled(), 60)
        dead.socket.transport.abort()
