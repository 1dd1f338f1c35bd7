"""Channels carry bytes and texts from one worker to another."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Json, Wire, address, at_work, hub_for_workers, wired
from waypost import Hub
from waypost.workers.sockets import Socket


async def made(worker: Wire, **asked: Any) -> Json:
    """A channel: the references to its two ends."""
    ends: Json = await worker.result("engine::channels::create", asked)
    return ends


def end(hub: Hub, ref: Json, **options: Any) -> dial:
    """A socket for one end."""
    query = f"key={ref['access_key']}&dir={ref['direction']}"
    return dial(f"{address(hub)}/ws/channels/{ref['channel_id']}?{query}", max_size=None, **options)


async def rest(reader: ClientConnection) -> list[str | bytes]:
    """Everything that is read until the channel ends."""
    read: list[str | bytes] = []
    try:
        while True:
            read.append(await reader.recv())
    except ConnectionClosedOK:
        return read


@pytest.mark.parametrize("first", ["reader", "writer"])
def test_messages_of_a_channel_are_read_in_either_order_of_opening(first: str) -> None:
    written: list[str | bytes] = [b"\x00" * 65_536, "text", b"", "ü", b"\xff" * 65_536, b"end" * 23_000]

    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as worker:
            ends = await made(worker)
            assert ends["writer"]["direction"] == "write"
            if first == "reader":
                async with end(hub, ends["reader"]) as reader:
                    reading = asyncio.create_task(rest(reader))
                    async with end(hub, ends["writer"]) as writer:
                        for item in written:
                            await writer.send(item)
                    assert await reading == written
            else:
                async with end(hub, ends["writer"]) as writer:
                    for item in written:
                        await writer.send(item)
                async with end(hub, ends["reader"]) as reader:
                    assert await rest(reader) == written
            await until(lambda: len(hub.workers.channels) == 0)

    scenario()


@pytest.mark.parametrize("first", ["reader", "writer"])
@asynchronous
async def test_a_writer_that_is_killed_does_not_look_like_one_that_has_written_everything(first: str) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        ends = await made(worker)
        async with contextlib.AsyncExitStack() as stack:
            if first == "reader":
                reader = await stack.enter_async_context(end(hub, ends["reader"]))
            writer = await stack.enter_async_context(end(hub, ends["writer"]))
            await writer.send(b"a part")
            await (await writer.ping())
            writer.transport.abort()
            if first == "writer":
                reader = await stack.enter_async_context(end(hub, ends["reader"]))
            assert await rest(reader) == [b"a part"]
            assert reader.close_code == 1001
            assert reader.close_reason == "the other end disconnected without closing the channel"


@pytest.mark.parametrize("code", [1000, 1005])
@asynchronous
async def test_a_writer_may_close_a_channel_with_or_without_a_code(code: int) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        ends = await made(worker)
        async with end(hub, ends["reader"]) as reader, end(hub, ends["writer"]) as writer:
            await writer.send(b"everything")
            # Without a code, as browsers and some libraries close; the library here always sends one.
            await writer.close() if code == 1000 else writer.transport.write(b"\x88\x80\x00\x00\x00\x00")
            assert await rest(reader) == [b"everything"]
            assert reader.close_code == 1000


@asynchronous
async def test_a_wrong_key_and_a_second_taker_are_refused() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        ends = await made(worker)
        wrong = [
            {**ends["reader"], "access_key": "guessed"},
            {**ends["reader"], "access_key": ""},
            {**ends["reader"], "channel_id": "nowhere"},
            {**ends["reader"], "direction": "both"},
        ]
        for ref in wrong:
            with pytest.raises(InvalidStatus) as refused:
                await end(hub, ref)
            assert refused.value.response.status_code == 404
        async with end(hub, ends["reader"]), end(hub, ends["writer"]):
            for ref in ends.values():
                with pytest.raises(InvalidStatus) as refused:
                    await end(hub, ref)
                assert refused.value.response.status_code == 409


@asynchronous
async def test_a_writer_is_closed_when_its_reader_is_gone() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        ends = await made(worker)
        async with end(hub, ends["writer"]) as writer:
            async with end(hub, ends["reader"]):
                pass
            await writer.wait_closed()
        assert len(hub.workers.channels) == 0


@asynchronous
async def test_messages_from_a_reader_are_discarded() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        ends = await made(worker)
        async with end(hub, ends["reader"]) as reader, end(hub, ends["writer"]) as writer:
            await reader.send("psst")
            await writer.send("aloud")
            assert await reader.recv() == "aloud"


@pytest.mark.parametrize("size", [100, 1024 * 1024])
def test_a_writer_that_is_too_fast_waits_for_its_reader(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.sockets._CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr("waypost.workers.sockets._SILENCE_TIMEOUT_S", 1.0)  # the writer has to begin within it
    number = 64 * 1024 * 1024 // size if size > 100 else 100_000

    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as worker:
            await worker.introduce()
            ends = await made(worker, buffer_size=5)
            async with end(hub, ends["writer"], ping_interval=None) as writer:
                channel = hub.workers.channels._channels[ends["writer"]["channel_id"]]

                async def write() -> None:
                    for _ in range(number):
                        await writer.send(b"x" * size)
                    await writer.close()

                writing = asyncio.create_task(write())
                socket = channel.ends["write"]
                assert isinstance(socket, Socket)
                await until(lambda: socket._queue.is_paused)
                await asyncio.sleep(1.2)
                assert not writing.done()
                assert channel._unread_bytes < 16 * 1024 * 1024
                monkeypatch.undo()
                async with end(hub, ends["reader"]) as reader:
                    assert sum(len(item) for item in await rest(reader)) == number * size
                await writing

    scenario()


@asynchronous
async def test_a_channel_that_is_never_opened_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.channels._UNUSED_TIMEOUT_S", 0.1)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await made(worker)
        one_end = await made(worker)
        async with end(hub, one_end["reader"]) as reader:
            await reader.wait_closed()
        assert len(hub.workers.channels) == 0


@asynchronous
async def test_unused_channels_are_closed_with_the_worker_that_made_them() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        async with wired(hub) as worker:
            await made(worker)
            used = await made(worker)
            reader = await end(hub, used["reader"])
        await until(lambda: len(hub.workers.channels) == 1)
        async with reader, end(hub, used["writer"]) as writer:
            await writer.send("still there")
            assert await reader.recv() == "still there"
        await until(lambda: len(hub.workers.channels) == 0)


@asynchronous
async def test_there_are_not_more_channels_than_a_number() -> None:
    hub = hub_for_workers(workers={"port": 0, "limits": {"channels": 2}})
    async with at_work(hub), wired(hub) as worker:
        for asked in ({}, {"buffer_size": -5}):
            await made(worker, **asked)
        assert "2 channels already" in (await worker.error("engine::channels::create"))["message"]


@asynchronous
async def test_a_slow_reader_gets_the_last_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.workers.sockets._CLOSE_TIMEOUT_S", 0.1)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        ends = await made(worker)
        async with end(hub, ends["reader"], max_queue=1) as reader:
            async with end(hub, ends["writer"]) as writer:
                writing = asyncio.create_task(_write(writer, 200, 64 * 1024))
                read = 0
                # The last bytes may have come, with the end behind them, before the channel is forgotten.
                with contextlib.suppress(ConnectionClosedOK):
                    while len(hub.workers.channels):
                        read += len(await reader.recv())
                await writing
            await asyncio.sleep(0.4)
            read += sum(len(item) for item in await rest(reader))
        assert read == 200 * 64 * 1024


async def _write(writer: ClientConnection, number: int, size: int) -> None:
    for _ in range(number):
        await writer.send(b"x" * size)
    await writer.close()
