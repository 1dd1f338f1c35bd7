from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.protocol.conftest import (
    asynchronous,
    cancelled,
    initialization,
    request,
    stateless,
    until,
)
from tests.transports.children import call, child, finished, session, text


@asynchronous
async def test_requests_are_answered_as_they_finish() -> None:
    async with session() as hub:
        hub.send(call(1, "slow", seconds=3000), call(2, "block", seconds=0.5), call(3, "echo", text="x"))
        answered = [(await hub.read())["id"] for _ in range(2)]
        assert answered == [3, 2]
        await hub.leave()


@asynchronous
async def test_slow_tools_do_not_delay_a_ping() -> None:
    async with session() as hub:
        for number in range(20):
            hub.send(call(f"slow{number}", "slow", seconds=300), call(f"block{number}", "block", seconds=300))
        assert (await hub.ask(request("ping", "ping")))["result"] == {}  # the answer that comes first
        await hub.leave()


@asynchronous
async def test_output_of_a_tool_goes_to_stderr() -> None:
    async with session() as hub:
        assert text(await hub.ask(call(1, "noise"))) == "quiet"
        assert [line for line in hub.lines if line.get("id") not in ("init", 1)] == []
        await hub.leave()
        assert hub.process.stdout is not None
        assert hub.process.stderr is not None
        assert await hub.process.stdout.read() == b""
        errors = (await hub.process.stderr.read()).decode()
        for source in ("print", "stdout", "the descriptor", "a child"):
            assert f"noise from {source}" in errors


@pytest.mark.parametrize("tool", ["watched", "stubborn"])
@asynchronous
async def test_the_end_of_input_stops_the_work_and_ends_the_process(tool: str, tmp_path: Path) -> None:
    async with session() as hub:
        hub.send(call(1, tool, folder=str(tmp_path)))
        await until((tmp_path / "began").exists)
        await hub.leave()
        assert hub.process.returncode == 0
        assert (tmp_path / "stopped").exists() == (tool == "watched")
        assert hub.process.stdout is not None
        assert await hub.process.stdout.read() == b""


@asynchronous
async def test_the_end_of_input_does_not_wait_for_a_blocked_thread() -> None:
    async with session() as hub:
        hub.send(call(1, "block", seconds=3000))
        assert (await hub.ask(request(2, "ping")))["result"] == {}
        await hub.leave()
        assert hub.process.returncode == 0


@asynchronous
async def test_the_end_of_input_ends_a_process_that_was_never_asked_anything() -> None:
    async with child() as hub:
        await hub.leave()
        assert hub.process.returncode == 0


@pytest.mark.parametrize(
    "garbage",
    [b"garbage", b"{", b'{"jsonrpc":"2.0",', b"\xff\xfe\xfd", b"\x00", b"[[[", b'{"a":' * 70 + b"1" + b"}" * 70],
)
@asynchronous
async def test_garbage_is_refused_and_service_goes_on(garbage: bytes) -> None:
    async with session() as hub:
        hub.write(garbage + b"\n")
        hub.send(call(1, "echo", text="still here"))
        refusal, answer = await hub.read(), await hub.read()
        assert (refusal["id"], refusal["error"]["code"]) == (None, -32700)
        assert text(answer) == "still here"


@asynchronous
async def test_bytes_that_are_not_utf_8_are_refused_and_service_goes_on() -> None:
    async with session() as hub:
        hub.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\xff"}}\n')
        hub.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\xff"}}\n')
        hub.send(request(2, "ping"))
        refusal = await hub.read()
        assert refusal["error"]["code"] in (-32700, -32602)
        assert (await hub.response(2))["result"] == {}


@pytest.mark.parametrize("length", [1001, 2000, 70_000, 1_000_000])
@asynchronous
async def test_a_line_over_the_limit_is_refused_and_the_next_one_served(length: int) -> None:
    async with session("1000") as hub:
        message = json.dumps(call(1, "echo", text="")).encode()
        head, tail = message[:-4], message[-4:]
        assert head.endswith(b'"text": "')
        hub.write(head + b"x" * (length - len(message)) + tail + b"\n")
        hub.send(call(2, "echo", text="next"))
        refusal, answer = await hub.read(), await hub.read()
        assert refusal["id"] is None
        assert "1000 bytes" in refusal["error"]["message"]
        assert (answer["id"], text(answer)) == (2, "next")


@asynchronous
async def test_a_line_of_exactly_the_limit_is_served() -> None:
    async with session("1000") as hub:
        hub.write(json.dumps(request(1, "ping")).encode().ljust(1000) + b"\n")
        assert (await hub.response(1))["result"] == {}


@asynchronous
async def test_a_line_over_the_limit_that_never_ends_is_refused_at_once() -> None:
    async with session("1000") as hub:
        hub.write(b"x" * 500_000)
        assert "1000 bytes" in (await hub.read())["error"]["message"]
        hub.write(b"x" * 500_000 + b"\n")
        hub.send(request(1, "ping"))
        assert (await hub.read())["id"] == 1


@asynchronous
async def test_carriage_returns_and_blank_lines_are_tolerated() -> None:
    async with child() as hub:
        hub.write(b"\n\r\n   \n\t\r\n")
        hub.write(json.dumps(initialization()).encode() + b"\r\n\r\n")
        hub.write(b"  " + json.dumps(request(1, "ping")).encode() + b"  \r\n")
        assert [(await hub.read())["id"] for _ in range(2)] == ["init", 1]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\r"])
@asynchronous
async def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    message = call(1, "echo", text=f"before{separator}after")
    raw = json.dumps(message, ensure_ascii=separator < " ").encode()
    async with session() as hub:
        hub.write(raw + b"\n")
        assert text(await hub.response(1)) == f"before{separator}after"


@asynchronous
async def test_a_line_feed_in_text_stays_inside_one_line() -> None:
    async with session() as hub:
        assert text(await hub.ask(call(1, "echo", text="a\nb\r\nc"))) == "a\nb\r\nc"


@asynchronous
async def test_a_line_may_arrive_in_pieces() -> None:
    raw = json.dumps(call(1, "echo", text="ü" * 50), ensure_ascii=False).encode() + b"\n"
    async with session() as hub:
        assert hub.process.stdin is not None
        for start in range(0, len(raw), 7):
            hub.write(raw[start : start + 7])
            await hub.process.stdin.drain()
        assert text(await hub.response(1)) == "ü" * 50


@asynchronous
async def test_two_hundred_requests_at_once_are_all_answered() -> None:
    async with session() as hub:
        hub.send(*(call(number, "echo", text=str(number)) for number in range(200)))
        answers = {}
        for _ in range(200):
            answer = await hub.read()
            answers[answer["id"]] = text(answer)
        assert answers == {number: str(number) for number in range(200)}


@asynchronous
async def test_a_long_answer_is_one_line() -> None:
    async with session() as hub:
        assert text(await hub.ask(call(1, "echo", text="x" * 1_000_000))) == "x" * 1_000_000


@asynchronous
async def test_a_cancelled_request_is_not_answered(tmp_path: Path) -> None:
    async with session() as hub:
        hub.send(call(1, "watched", folder=str(tmp_path)))
        await until((tmp_path / "began").exists)
        hub.send(cancelled(1), request(2, "ping"))
        await hub.response(2)
        await until((tmp_path / "stopped").exists)
        assert (await hub.ask(request(3, "ping")))["result"] == {}
        assert [line["id"] for line in hub.lines] == ["init", 2, 3]


@asynchronous
async def test_both_eras_share_the_channel() -> None:
    async with child() as hub:
        discovered = await hub.ask(stateless("d", "server/discover"))
        assert "2026-07-28" in discovered["result"]["supportedVersions"]
        hub.send(stateless(7, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        acknowledged = await hub.read()
        assert acknowledged["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 7}
        assert "result" in await hub.ask(initialization())
        assert (await hub.ask(request(1, "ping")))["result"] == {}
        await hub.leave()


@asynchronous
async def test_a_process_without_input_exits_with_status_0() -> None:
    assert await finished(asyncio.subprocess.DEVNULL, asyncio.subprocess.DEVNULL) == (0, b"")


@asynchronous
async def test_input_and_output_may_be_files(tmp_path: Path) -> None:
    lines = [initialization(), request(1, "ping")]
    (tmp_path / "in").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    stdin = os.open(tmp_path / "in", os.O_RDONLY)
    stdout = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    try:
        assert await finished(stdin, stdout) == (0, b"")
    finally:
        os.close(stdin)
        os.close(stdout)
    assert json.loads((tmp_path / "out").read_bytes().splitlines()[0])["id"] == "init"
