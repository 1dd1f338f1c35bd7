"""The link to a child process: lines in both directions, limits, and termination."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.upstreams.conftest import DEADLINE, until
from tests.upstreams.programs import Rough, is_running, nothing_left
from waypost.config.models import McpConnection
from waypost.upstreams.stdio import MAX_SLICE_BYTES, StdioTransport
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.wire.versions import LATEST_LEGACY

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a scenario on either kind of loop, whose processes differ."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


class Talk:
    """A link, the received messages, and the errors of its loss."""

    def __init__(self, connection: McpConnection, **options: Any) -> None:
        self.received: list[Any] = []
        self.lost: list[UpstreamUnavailable] = []
        self.link = StdioTransport("rough", connection, self.lost.append, **options)

    async def open(self) -> None:
        await self.link.open(lambda line: self.received.append(json.loads(line)))

    async def send(self, method: str, params: dict[str, Any] | None = None) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        await self.link.send(json.dumps(message).encode(), LATEST_LEGACY, method, None)

    async def call(self, name: str, **arguments: Any) -> None:
        await self.send("tools/call", {"name": name, "arguments": arguments})

    async def answer(self) -> Any:
        await until(lambda: self.received)
        return self.received.pop(0)


@asynccontextmanager
async def talking(connection: McpConnection, **options: Any) -> AsyncIterator[Talk]:
    with nothing_left():
        async with asyncio.timeout(DEADLINE):
            talk = Talk(connection, **options)
            await talk.open()
            try:
                yield talk
            finally:
                await talk.link.close()


# Talking


def test_messages_are_lines_in_both_directions(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection) as talk:
            await talk.send("initialize")
            assert (await talk.answer())["result"]["serverInfo"]["name"] == "rough"

    run(scenario())


def test_a_message_larger_than_the_pipe_buffer_arrives_complete(run: Run, tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with talking(rough.connection) as talk:
            await talk.send("x", {"text": "y" * 3_000_000})
            await talk.send("initialize")
            await talk.answer()
            assert len(rough.diary[1]) > 3_000_000

    run(scenario())


def test_output_that_is_not_a_message_is_logged_in_short_lines(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path, "chatty").connection) as talk:
            await talk.send("initialize")
            await talk.answer()
            await until(lambda: "a remark" in caplog.text)

    with caplog.at_level(logging.DEBUG, "waypost.upstreams.stdio"):
        run(scenario())

    assert "rough: Welcome to the server!" in caplog.messages
    assert max(len(message) for message in caplog.messages) < 2100
    assert {record.levelno for record in caplog.records if record.name == "waypost.upstreams.stdio"} == {logging.DEBUG}


def test_a_server_gets_its_own_variables_but_no_secrets_of_the_hub(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYPOST_SECRET", "hush")
    monkeypatch.setenv("LC_TIME", "C")
    given = Rough(tmp_path).connection
    connection = McpConnection(command=given.command, args=given.args, env={"TOKEN": "mine"})

    async def scenario() -> None:
        async with talking(connection) as talk:
            await talk.call("environment")
            found = (await talk.answer())["result"]["structuredContent"]
            assert (found["TOKEN"], found["LC_TIME"]) == ("mine", "C")
            assert "PATH" in found
            assert "WAYPOST_SECRET" not in found

    run(scenario())


def test_a_server_runs_in_its_working_directory(run: Run, tmp_path: Path) -> None:
    given, directory = Rough(tmp_path).connection, str(tmp_path.resolve())
    connection = McpConnection(command=given.command, args=given.args, working_directory=directory)

    async def scenario() -> None:
        async with talking(connection) as talk:
            await talk.call("where")
            assert (await talk.answer())["result"]["structuredContent"] == {"directory": directory}

    run(scenario())


def test_sending_waits_while_the_server_does_not_read(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection, exit_timeout=0.1) as talk:
            await talk.call("stop-reading")
            await talk.answer()
            await talk.call("x", text="y" * 3_000_000)
            second = asyncio.ensure_future(talk.call("x", text="z"))
            done, _ = await asyncio.wait({second}, timeout=0.1)
            assert not done
            await talk.link.close()
            with pytest.raises(UpstreamUnavailable, match="was closed") as caught:
                await second
            assert not caught.value.delivered

    run(scenario())


# Losing


@pytest.mark.parametrize("command", ["no-such-program", "/"])
def test_a_program_that_cannot_be_started_is_an_error(run: Run, command: str) -> None:
    async def scenario() -> None:
        with nothing_left():
            talk = Talk(McpConnection(command=command))
            with pytest.raises(UpstreamUnavailable, match=f'The connection "rough" cannot start {command}: ') as caught:
                await talk.open()
            assert not caught.value.delivered
            await talk.link.close()

    run(scenario())


def test_the_end_of_a_server_is_reported_once_with_its_exit_code(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection) as talk:
            await talk.call("crash")
            await until(lambda: talk.lost)
            assert str(talk.lost[0]).startswith('The server of the connection "rough" ended with the exit code 3; ')
            with pytest.raises(UpstreamUnavailable, match="exit code 3") as caught:
                await talk.call("anything")
            assert not caught.value.delivered
            await talk.link.close()
            assert len(talk.lost) == 1

    run(scenario())


def test_the_last_message_of_a_server_arrives_before_its_end(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection) as talk:
            await talk.call("last-words")
            await until(lambda: talk.lost)
            assert talk.received[0]["result"]["content"][0]["text"] == "farewell"

    run(scenario())


def test_a_line_that_is_too_long_ends_the_session(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection, max_line=100_000, exit_timeout=0.1) as talk:
            await talk.call("flood", bytes=1_000_000)
            await until(lambda: talk.lost)
            assert "wrote a line of more than 100000 bytes" in str(talk.lost[0])
            assert talk.received == []

    run(scenario())


def test_a_flood_is_read_in_slices_so_that_other_tasks_run(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        turns = 0
        heard: Counter[int] = Counter()

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with talking(Rough(tmp_path).connection) as talk:
            others = asyncio.ensure_future(take_turns())
            await talk.link.open(lambda line: heard.update([turns]))
            await talk.call("babble", lines=30_000)
            await until(lambda: heard.total() == 30_001)
            assert max(heard.values()) <= 2 * MAX_SLICE_BYTES // len(
                '{"jsonrpc": "2.0", "method": "notifications/babble"}'
            )
            others.cancel()

    run(scenario())


def test_sending_to_a_server_that_closed_its_input_is_an_error(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection, exit_timeout=0.1) as talk:
            await talk.call("deafen")
            await talk.answer()
            with pytest.raises(UpstreamUnavailable, match="no longer reads its input"):
                while True:
                    await talk.call("x")
                    await asyncio.sleep(0)

    run(scenario())


# Closing


def test_a_server_may_exit_when_its_input_is_closed(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection, exit_timeout=DEADLINE) as talk:
            await talk.send("initialize")
            await talk.answer()

    run(scenario())


def test_a_server_that_does_not_exit_is_killed_with_its_children(run: Run, tmp_path: Path) -> None:
    rough = Rough(tmp_path, "stubborn", "with-child")

    async def scenario() -> None:
        async with talking(rough.connection, exit_timeout=0.1) as talk:
            await talk.send("initialize")
            await talk.answer()
            assert all(map(is_running, rough.numbers() + rough.numbers("child")))
        await until(lambda: not any(map(is_running, rough.numbers() + rough.numbers("child"))))

    run(scenario())


def test_the_children_of_a_crashed_server_are_killed(run: Run, tmp_path: Path) -> None:
    rough = Rough(tmp_path, "with-child")

    async def scenario() -> None:
        async with talking(rough.connection) as talk:
            await talk.call("crash")
            await until(lambda: talk.lost)
            await until(lambda: not is_running(rough.numbers("child")[0]))

    run(scenario())


@pytest.mark.parametrize("steps", range(6))
def test_a_start_that_is_cancelled_leaves_no_process(run: Run, steps: int, tmp_path: Path) -> None:
    rough = Rough(tmp_path, "stubborn")

    async def scenario() -> None:
        with nothing_left():
            talk = Talk(rough.connection, exit_timeout=0.1)
            opening = asyncio.ensure_future(talk.open())
            for _ in range(steps):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait({opening})
            await talk.link.close()

    run(scenario())


def test_a_cancelled_close_still_kills_the_server(run: Run, tmp_path: Path) -> None:
    rough = Rough(tmp_path, "stubborn")

    async def scenario() -> None:
        async with talking(rough.connection, exit_timeout=DEADLINE) as talk:
            await talk.send("initialize")
            await talk.answer()
            closing = asyncio.ensure_future(talk.link.close())
            await asyncio.wait({closing}, timeout=0.05)
            closing.cancel()
            await asyncio.wait({closing})
            await until(lambda: not is_running(rough.numbers()[0]))

    run(scenario())


def test_closing_twice_or_before_opening_is_allowed(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with talking(Rough(tmp_path).connection) as talk:
            await talk.link.close()
        await StdioTransport("rough", Rough(tmp_path).connection, talk.lost.append).close()

    run(scenario())
