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


async def offer(port: int, function: str = FUNCTION, name: bytes = b"owner", batch: int = 1) -> FastSocket:
    """A worker that answers the calls of its function, always so many together."""
    holder: list[FastSocket] = []
    answers: list[bytes] = []

    def answer(message: bytes) -> None:
        if message.startswith(b'{"type":"invokefunction"'):
            found = _ID.search(message)
            assert found is not None
            answers.append(
                b'{"type":"invocationresult","invocation_id":"' + found[1] + b'","function_id":"'
                + function.encode() + b'","result":' + ANSWER + b"}"
            )  # fmt: skip
            if len(answers) == batch:
                holder[0].send_together(answers)
                answers.clear()

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


def make_calls(port: int, batch: int, batches: int) -> None:
    """Call a worker from another one, so many times together, as soon as the hub listens."""
    uvloop.run(_make_calls(port, batch, batches))


async def _make_calls(port: int, batch: int, batches: int) -> None:
    answered = 0
    is_answered = asyncio.Event()

    def count(message: bytes) -> None:
        nonlocal answered
        if b'"type":"invocationresult"' in message and ANSWER in message:
            answered += 1
            if answered % batch == 0:
                is_answered.set()

    async with asyncio.timeout(300):
        await _offer_when_open(port, batch)
        caller = await connect(port, count)
        caller.send(introduced(b"caller"))
        await asyncio.sleep(2)
        for number in range(batches):
            caller.send_together([_CALL % (number * batch + one) for one in range(batch)])
            await is_answered.wait()
            is_answered.clear()


async def _offer_when_open(port: int, batch: int) -> None:
    while True:
        try:
            await offer(port, batch=batch)
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
def serving(port: int, batch: int = 1) -> Iterator[None]:
    """A worker in a process of its own, which connects when the hub listens and answers so many calls together."""
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port, batch), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join(5)


def _serve(port: int, batch: int) -> None:
    async def forever() -> None:
        await _offer_when_open(port, batch)
        await asyncio.get_running_loop().create_future()

    uvloop.run(forever())
