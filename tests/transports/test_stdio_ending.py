from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.protocol.conftest import Json, asynchronous, initialization, notification, request, stateless, until
from tests.transports.children import PROMPTLY, call, child, finished, session, text
from waypost import Hub
from waypost.protocol.connection import Connection

LINES = [
    initialization(),
    notification("notifications/initialized"),
    call(1, "echo", text="one"),
    call(2, "slow", seconds=0.2),
    request(3, "tools/list"),
    call(4, "block", seconds=0.2),
]


def encoded(lines: list[Json]) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in lines)


@pytest.mark.parametrize("end", [b"\n", b"", b"\n\n  "])
@asynchronous
async def test_everything_in_a_file_is_answered_before_the_process_ends(end: bytes, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(encoded(LINES) + end)
    stdin = os.open(tmp_path / "in", os.O_RDONLY)
    stdout = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    try:
        assert await finished(stdin, stdout) == (0, b"")
    finally:
        os.close(stdin)
        os.close(stdout)
    answers = {message["id"]: message for message in map(json.loads, (tmp_path / "out").read_bytes().splitlines())}
    assert answers.keys() == {"init", 1, 2, 3, 4}
    assert [text(answers[number]) for number in (1, 2, 4)] == ["one", "slow", "blocked"]


@pytest.mark.parametrize("end", [b"\n", b""])
@asynchronous
async def test_everything_in_a_pipe_is_answered_before_the_process_ends(end: bytes) -> None:
    async with child() as hub:
        hub.write(encoded(LINES) + end)
        await hub.leave()
        assert {(await hub.read())["id"] for _ in range(5)} == {"init", 1, 2, 3, 4}


@asynchronous
async def test_answers_that_the_client_has_not_read_yet_are_not_lost() -> None:
    async with session() as hub:
        for number in range(4):
            hub.send(call(number, "echo", text="x" * 1_000_000))
        assert hub.process.stdin is not None
        hub.process.stdin.close()
        assert {len(text(await hub.read())) for _ in range(4)} == {1_000_000}
        await hub.leave()


@asynchronous
async def test_a_last_line_that_is_no_message_is_refused() -> None:
    async with session() as hub:
        hub.write(b'{"jsonrpc":"2.0",')
        await hub.leave()
        assert (await hub.read())["error"]["code"] == -32700


@asynchronous
async def test_a_client_that_only_listens_is_not_waited_for() -> None:
    hub = Hub("quiet", version="1")
    written: list[bytes] = []
    connection = Connection(hub.engine, written.append)
    connection.receive(encoded([stateless(7, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})]))
    await until(lambda: bool(written))
    async with asyncio.timeout(60):
        await connection.finish(within=60)
    assert await connection.close()


@asynchronous
async def test_a_line_that_is_too_long_is_refused_with_the_name_of_the_limit() -> None:
    async with session("1000") as hub:
        hub.write(b"x" * 2000 + b"\n")
        assert "(maxBodyBytes)" in (await hub.read())["error"]["message"]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@asynchronous
async def test_a_signal_stops_the_work_and_ends_the_process_in_order(stop: signal.Signals, tmp_path: Path) -> None:
    async with session() as hub:
        hub.send(call(1, "watched", folder=str(tmp_path)))
        await until((tmp_path / "began").exists)
        hub.process.send_signal(stop)
        async with asyncio.timeout(PROMPTLY):
            assert await hub.process.wait() == 0
        assert (tmp_path / "stopped").exists()


@asynchronous
async def test_sigterm_ends_a_process_whose_tools_ignore_cancellation(tmp_path: Path) -> None:
    async with session() as hub:
        hub.send(call(1, "stubborn", folder=str(tmp_path)), call(2, "block", seconds=300))
        await until((tmp_path / "began").exists)
        hub.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PROMPTLY):
            assert await hub.process.wait() == 0
