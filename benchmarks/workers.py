"""Workers that do as little as possible: one that answers every call, and one that keeps calls in flight."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvloop

from benchmarks.websocket import FastSocket, connect

FUNCTION = "bench::echo"
TOOL = "bench__echo"
ANSWER = b'{"sum":3}'
_ID = re.compile(rb'"invocation_id":"([^"]+)"')
_CALL = b'{"type":"invokefunction","function_id":"bench::echo","data":{"a":1,"b":2},"invocation_id":"%d"}'
_INTRODUCTION = (
    b'{"type":"invokefunction","function_id":"engine::workers::register","data":{"name":"%s"},"action":{"type":"void"}}'
)


def introduced(name: bytes) -> bytes:
    """The message in which a worker says its name."""
    return _INTRODUCTION % name


@dataclass(frozen=True)
class Seen:
    """What came of calls that were kept in flight."""

    answered: int
    elapsed: float

    @property
    def rate(self) -> float:
        return self.answered / self.elapsed


async def offer(port: int, function: str = FUNCTION, name: bytes = b"owner") -> FastSocket:
    """A worker that answers every call of its function."""
    holder: list[FastSocket] = []

    def answer(message: bytes) -> None:
        if message.startswith(b'{"type":"invokefunction"'):
            found = _ID.search(message)
            assert found is not None
            holder[0].send(
                b'{"type":"invocationresult","invocation_id":"' + found[1] + b'","function_id":"'
                + function.encode() + b'","result":' + ANSWER + b"}"
            )  # fmt: skip

    socket = await connect(port, answer)
    holder.append(socket)
    socket.send(b'{"type":"registerfunction","id":"' + function.encode() + b'"}')
    socket.send(introduced(name))
    return socket


def calls(port: int, in_flight: int, seconds: float, warmup: float) -> Seen:
    """Call a worker from another one, so many at once."""
    return uvloop.run(_calls(port, in_flight, seconds, warmup))


async def _calls(port: int, in_flight: int, seconds: float, warmup: float) -> Seen:
    await offer(port)
    return await _keep(port, in_flight, seconds, warmup, b'"type":"invocationresult"', ANSWER)


def make_calls(port: int, in_flight: int, number: int) -> None:
    """Call a worker from another one so many times, as soon as the hub listens."""
    uvloop.run(_make_calls(port, in_flight, number))


async def _make_calls(port: int, in_flight: int, number: int) -> None:
    answered = sent = 0
    done = asyncio.Event()
    holder: list[FastSocket] = []

    def send(count: int) -> None:
        nonlocal sent
        for _ in range(min(count, number - sent)):
            sent += 1
            holder[0].send(_CALL % sent)

    def again(message: bytes) -> None:
        nonlocal answered
        if b'"type":"invocationresult"' in message and ANSWER in message:
            answered += 1
            send(1)
            if answered == number:
                done.set()

    async with asyncio.timeout(300):
        await _offer_when_open(port)
        holder.append(await connect(port, again))
        holder[0].send(introduced(b"caller"))
        await asyncio.sleep(2)
        send(in_flight)
        if number:
            await done.wait()


async def _offer_when_open(port: int) -> None:
    while True:
        try:
            await offer(port)
        except OSError:
            await asyncio.sleep(0.5)
        else:
            return


def echoes(port: int, in_flight: int, seconds: float, warmup: float) -> Seen:
    """Have messages sent back over one connection, so many at once."""
    return uvloop.run(_keep(port, in_flight, seconds, warmup, b'"data":', b'{"a":1,"b":2}'))


def separate_echoes(port: int, connections: int, seconds: float, warmup: float) -> Seen:
    """Have messages sent back over so many connections, one at once on each."""
    return uvloop.run(_separate(port, connections, seconds, warmup))


async def _separate(port: int, connections: int, seconds: float, warmup: float) -> Seen:
    each = [_keep(port, 1, seconds, warmup, b'"data":', b'{"a":1,"b":2}') for _ in range(connections)]
    seen = await asyncio.gather(*each)
    return Seen(sum(one.answered for one in seen), max(one.elapsed for one in seen))


async def _keep(port: int, in_flight: int, seconds: float, warmup: float, kind: bytes, expected: bytes) -> Seen:
    count = 0
    holder: list[FastSocket] = []

    def again(message: bytes) -> None:
        nonlocal count
        if kind in message:
            if expected not in message:
                raise ValueError(f"unexpected: {message[:200]!r}")
            count += 1
            holder[0].send(_CALL % count)

    socket = await connect(port, again)
    holder.append(socket)
    if kind != b'"data":':
        socket.send(introduced(b"caller"))
    await asyncio.sleep(0.3)
    for number in range(in_flight):
        socket.send(_CALL % -(number + 1))
    await asyncio.sleep(warmup)
    before, began = count, time.perf_counter()
    await asyncio.sleep(seconds)
    return Seen(count - before, time.perf_counter() - began)


@contextmanager
def serving(port: int) -> Iterator[None]:
    """A worker in a process of its own, which connects as soon as the hub listens."""
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join(5)


def _serve(port: int) -> None:
    async def forever() -> None:
        await _offer_when_open(port)
        await asyncio.get_running_loop().create_future()

    uvloop.run(forever())
