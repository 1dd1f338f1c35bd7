"""Channels of workers: bytes and texts that go past the messages of the hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import pydantic
import pytest
from websockets.asyncio.client import connect as dial

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import failure, scripted, settled, threaded, working
from tests.workers.wire import address, at_work, hub_for_workers, rows
from waypost import Hub
from waypost.worker import ChannelReader, ChannelWriter, InvocationFailed, Worker, register_worker

BIG = bytes(range(256)) * 4 * 256


@asynccontextmanager
async def two(**options: Any) -> AsyncIterator[tuple[Hub, Worker, Worker]]:
    """A hub with two workers."""
    hub = hub_for_workers(**options)
    async with at_work(hub), working(hub, "one") as one, working(hub, "other") as other:
        yield hub, one, other


@asynchronous
async def test_a_function_reads_from_a_channel_of_its_caller() -> None:
    async with two() as (hub, one, other):

        @other.register_function("other::count")
        async def count(payload: dict[str, Any]) -> dict[str, Any]:
            assert isinstance(payload["nested"][0]["reader"], ChannelReader)
            data = await payload["nested"][0]["reader"].read_all()
            return {"same": data == BIG, "beside": payload["beside"]}

        await settled(other)
        channel = await one.create_channel()
        payload = {"nested": [{"reader": channel.reader_ref}], "beside": 1}
        answer = one.trigger("other::count", payload)
        await channel.writer.write(BIG)
        await channel.writer.close()
        assert await answer == {"same": True, "beside": 1}
        await until(lambda: rows(hub)["channels"] == 0)


@asynchronous
async def test_a_function_writes_pieces_to_a_channel_of_its_caller() -> None:
    async with two() as (_, one, other):

        @other.register_function("other::tell")
        async def tell(payload: dict[str, Any]) -> None:
            writer = payload["writer"]
            assert isinstance(writer, ChannelWriter)
            writer.send_message("begin")  # what is begun first is written first, awaited or not
            for piece in (b"a", b"b", b"c"):
                writer.write(piece)
            await writer.send_message("end")
            await writer.close()

        await settled(other)
        channel = await one.create_channel(8)
        texts: list[str] = []
        channel.reader.on_message(texts.append)
        answer = one.trigger("other::tell", {"writer": channel.writer_ref})
        assert [piece async for piece in channel.reader] == [b"a", b"b", b"c"]
        assert texts == ["begin", "end"]
        assert [piece async for piece in channel.reader] == []
        await answer


@dataclass
class Given:
    reader: ChannelReader
    times: int = 1


class Typed(TypedDict):
    reader: ChannelReader
    times: int


class Modelled(pydantic.BaseModel):
    reader: ChannelReader
    times: int = 1


@pytest.mark.parametrize("kind", [Given, Typed, Modelled])
@asynchronous
async def test_a_payload_with_a_type_may_hold_ends_of_channels(kind: Any) -> None:
    async with two() as (_, one, other):

        async def repeat(payload: Any) -> str:
            reader, times = (payload["reader"], payload["times"]) if kind is Typed else (payload.reader, payload.times)
            return str((await reader.read_all()).decode() * times)

        repeat.__annotations__["payload"] = kind
        other.register_function("other::repeat", repeat)
        await settled(other)
        channel = await one.create_channel()
        answer = one.trigger("other::repeat", {"reader": channel.reader_ref, "times": 2})
        await channel.writer.write(b"ab")
        await channel.writer.close()
        assert await answer == "abab"
        wrong = await failure(one.trigger("other::repeat", {"reader": channel.writer_ref, "times": 2}))
        assert (wrong.code, wrong.message.partition(":")[0]) == ("invocation_failed", "The payload does not fit")


@asynchronous
async def test_plain_handlers_use_channels_too() -> None:
    async with two() as (_, one, other):

        @other.register_function("other::upper")
        def upper(payload: dict[str, Any]) -> int:
            pieces = list(payload["from"])
            for piece in pieces:
                payload["to"].write(piece.upper()).result(60)
            payload["to"].close().result(60)
            return len(pieces)

        await settled(other)
        there, back = await one.create_channel(), await one.create_channel()
        answer = one.trigger("other::upper", {"from": there.reader_ref, "to": back.writer_ref})
        for piece in (b"ab", b"cd"):
            await there.writer.write(piece)
        await there.writer.close()
        assert await back.reader.read_all() == b"ABCD"
        assert await answer == 2


def test_a_program_without_a_loop_uses_channels_too() -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub):
            await asyncio.to_thread(plainly, address(hub))

    def plainly(url: str) -> None:
        with threaded(url) as worker:
            channel = worker.create_channel().result(60)
            channel.writer.write(b"one")
            channel.writer.write(b"two")
            channel.writer.close()
            assert list(channel.reader) == [b"one", b"two"]

    scenario()


@asynchronous
async def test_a_worker_in_one_loop_is_read_in_another() -> None:
    async with two() as (_, one, _other):
        channel = await one.create_channel()
        channel.writer.write(b"x")
        channel.writer.close()

        async def elsewhere() -> list[bytes]:
            return [piece async for piece in channel.reader]

        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == [b"x"]


@asynchronous
async def test_a_writer_that_is_too_fast_waits_and_nothing_is_lost() -> None:
    async with two() as (_, one, _other):
        channel = await one.create_channel(2)
        writes = [channel.writer.write(bytes([number]) * 60_000) for number in range(200)]
        closing = channel.writer.close()
        pieces = [piece async for piece in channel.reader]
        assert [(piece[0], len(piece)) for piece in pieces] == [(number, 60_000) for number in range(200)]
        await asyncio.gather(*writes, closing)


@asynchronous
async def test_a_writer_fails_when_its_reader_is_gone_or_it_was_closed() -> None:
    async with two() as (_, one, _other):
        channel = await one.create_channel()
        await channel.writer.write(b"1")
        assert await anext(aiter(channel.reader)) == b"1"
        await channel.reader.close()
        assert [piece async for piece in channel.reader] == []
        codes = set()
        for _ in range(100):
            try:
                await channel.writer.write(b"2")
            except InvocationFailed as error:
                codes.add((error.code, error.message))
                break
        assert codes == {("channel_closed", "The reader has closed the channel.")}
        await channel.writer.close()
        assert (await failure(channel.writer.write(b"3"))).message == "The channel was closed."


@asynchronous
async def test_closing_an_unused_end_closes_the_channel_for_the_other_side() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as one:
        nothing = await one.create_channel()
        await nothing.writer.close()
        assert await nothing.reader.read_all() == b""

        unread = await one.create_channel()
        await unread.reader.close()
        with pytest.raises(InvocationFailed) as refused:
            for _ in range(200):
                await unread.writer.write(b"x" * 65536)
        assert refused.value.code == "channel_closed"
        await unread.writer.close()
        await unread.writer.close()


@asynchronous
async def test_an_end_that_is_taken_or_gone_cannot_be_opened() -> None:
    async with two() as (_, one, other):
        seen: list[Any] = []

        @other.register_function("other::keep")
        async def keep(payload: dict[str, Any]) -> None:
            seen.append(payload["reader"])

        await settled(other)
        channel = await one.create_channel()
        await channel.writer.write(b"1")
        assert await anext(aiter(channel.reader)) == b"1"
        await one.trigger("other::keep", {"reader": channel.reader_ref})
        taken = await failure(seen[0].read_all())
        assert taken.code == "channel_closed"
        assert "that end is in use already" in taken.message
        await channel.reader.close()
        gone = {"channel_id": "gone", "access_key": "k", "direction": "read"}
        await one.trigger("other::keep", {"reader": gone})
        assert "there is no such channel any more" in (await failure(seen[1].read_all())).message


@asynchronous
async def test_a_reader_fails_when_the_hub_stops_before_the_end() -> None:
    hub = hub_for_workers()
    async with working_at(hub) as worker:
        channel = await worker.create_channel()
        await channel.writer.write(b"1")
        assert await anext(aiter(channel.reader)) == b"1"
        reading = channel.reader.read_all()
        await hub.stop()
        assert (await failure(reading)).message == "The channel was lost before its end."


@asynchronous
async def test_a_reader_fails_when_the_writer_is_killed_before_the_end() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as worker:
        channel = await worker.create_channel()
        ref = channel.writer_ref
        url = f"{address(hub)}/ws/channels/{ref.channel_id}?key={ref.access_key}&dir=write"
        async with dial(url) as writer:
            await writer.send(b"1")
            assert await anext(aiter(channel.reader)) == b"1"
            reading = channel.reader.read_all()
            writer.transport.abort()
            assert (await failure(reading)).message == "The channel was lost before its end."


@asynccontextmanager
async def working_at(hub: Hub) -> AsyncIterator[Worker]:
    """A worker of a hub that may stop before it."""
    async with at_work(hub), working(hub) as worker:
        yield worker


@asynchronous
async def test_channels_end_with_the_worker_and_are_not_opened_after_it() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as other:
        async with working(hub, "short") as worker:
            channel = await worker.create_channel()
            late = await worker.create_channel()
            await channel.writer.write(b"1")
            assert await anext(aiter(channel.reader)) == b"1"
        await until(lambda: rows(hub)["channels"] == 0)
        assert (await failure(late.writer.write(b"2"))).code == "SHUTDOWN"
        await settled(other)


@pytest.mark.parametrize("query", ["", "?token=s%33cret"])
@asynchronous
async def test_channels_are_opened_where_the_worker_is_connected(query: str) -> None:
    hub = hub_for_workers(workers={"port": 0, "token": "s3cret"})
    async with at_work(hub):
        url = f"{address(hub)}/{query}"
        options = {} if query else {"token": "s3cret"}
        async with worker_at(url, **options) as worker:
            channel = await worker.create_channel()
            channel.writer.write(b"x")
            channel.writer.close()
            assert await channel.reader.read_all() == b"x"


@asynccontextmanager
async def worker_at(url: str, **options: Any) -> AsyncIterator[Worker]:
    """A worker that is connected to an address."""
    async with register_worker(url, name="one", **options) as worker:
        yield worker


@asynchronous
async def test_an_engine_without_channels_is_an_error() -> None:
    async with scripted() as engine, worker_at(engine.url) as worker:
        visit = await engine.visits.get()
        await visit.greeted()
        making = worker.create_channel()
        call = await visit.next("invokefunction")
        assert (call["function_id"], call["data"]) == ("engine::channels::create", {"buffer_size": None})
        error = {"code": "function_not_found", "message": "no"}
        await visit.send("invocationresult", invocation_id=call["invocation_id"], error=error)
        assert (await failure(making)).code == "function_not_found"
