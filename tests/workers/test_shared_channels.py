"""A channel whose ends are opened at different replicas."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed

from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.workers.replicas import replicas, run, until
from tests.workers.replicas import settings as settings
from tests.workers.wire import Json, address, wired
from waypost import Hub
from waypost.settings import Settings


def url(hub: Hub, ref: Json, direction: Literal["read", "write"]) -> str:
    """The URL of an end of a channel at a hub."""
    return f"{address(hub)}/ws/channels/{ref['channel_id']}?key={ref['access_key']}&dir={direction}"


@pytest.mark.parametrize("is_reader_remote", [True, False])
def test_messages_written_at_one_replica_are_read_at_the_other(
    postgres_url: str, settings: Settings, is_reader_remote: bool
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as maker:
            await maker.introduce("maker")
            await until(lambda: len(b.hub.workers.everywhere) == 1)
            ref = (await maker.result("engine::channels::create", {"buffer_size": 8}))["writer"]
            reading, writing = (b, a) if is_reader_remote else (a, b)
            async with (
                dial(url(reading.hub, ref, "read"), max_size=None) as reader,
                dial(url(writing.hub, ref, "write")) as writer,
            ):
                sent: list[str | bytes] = ["hello", b"\x00\xff", "", "x" * 1_500_000, *[b"y" * 60_000] * 60]

                async def write() -> None:
                    for message in sent:
                        await writer.send(message)
                    await writer.close()

                task = asyncio.create_task(write())
                assert [message async for message in reader] == sent
                await task
            await until(lambda: len(a.hub.workers.channels) == 0)

    run(scenario())


@pytest.mark.parametrize("is_reader_remote", [True, False])
def test_a_writer_that_is_killed_at_one_replica_is_lost_at_the_other(
    postgres_url: str, settings: Settings, is_reader_remote: bool
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as maker:
            await maker.introduce("maker")
            await until(lambda: len(b.hub.workers.everywhere) == 1)
            ref = (await maker.result("engine::channels::create", {}))["writer"]
            reading, writing = (b, a) if is_reader_remote else (a, b)
            async with (
                dial(url(reading.hub, ref, "read")) as reader,
                dial(url(writing.hub, ref, "write")) as writer,
            ):
                await writer.send("a part")
                assert await reader.recv() == "a part"
                writer.transport.abort()
                await reader.wait_closed()
                assert reader.close_code == 1001

    run(scenario())


def test_a_reader_that_leaves_ends_the_writer_at_the_other_replica(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as maker:
            await maker.introduce("maker")
            await until(lambda: len(b.hub.workers.everywhere) == 1)
            ref = (await maker.result("engine::channels::create", {}))["writer"]
            async with dial(url(a.hub, ref, "read")) as reader, dial(url(b.hub, ref, "write")) as writer:
                await writer.send("one")
                assert await reader.recv() == "one"
                await reader.close()
                await writer.wait_closed()

    run(scenario())


def test_an_end_with_a_wrong_key_is_refused_and_a_slow_reader_slows_the_writer(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with replicas(postgres_url, settings) as (a, b), wired(a.hub) as maker:
            await maker.introduce("maker")
            await until(lambda: len(b.hub.workers.everywhere) == 1)
            ref = (await maker.result("engine::channels::create", {"buffer_size": 1}))["writer"]
            async with dial(url(b.hub, {**ref, "access_key": "wrong"}, "read")) as refused:
                with pytest.raises(ConnectionClosed, match="no such channel"):
                    await refused.recv()
            async with dial(url(b.hub, ref, "write")) as writer:
                chunk, written = b"z" * 100_000, 0
                # No one reads, so the writer is stopped long before a hundred megabytes.
                while written < 1_000:
                    try:
                        await asyncio.wait_for(writer.send(chunk), 0.3)
                    except TimeoutError:
                        break
                    written += 1
                assert written < 1_000
                async with dial(url(a.hub, ref, "read")) as reader:
                    assert await reader.recv() == chunk

    run(scenario())
