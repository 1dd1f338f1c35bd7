"""Servers that hang or crash repeatedly are replaced, with growing pauses."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.pools import Recorded, add, failure, listening, official_app, pooled
from tests.upstreams.programs import Rough, is_running
from waypost.config.models import McpConnection
from waypost.settings import Server
from waypost.upstreams import upstream
from waypost.upstreams.client import Client
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.upstreams.upstream import Limits, RestartBackoff

LONG = 60.0


async def crash(pool: Upstreams) -> str:
    """The error of a call that makes the server crash."""
    with pytest.raises(UpstreamUnavailable) as caught:
        await pool.call_tool("up", "crash", {}, {})
    return str(caught.value)


async def impatiently(pool: Upstreams, tool: str) -> None:
    """Call a tool that does not answer; calls that have to succeed have the usual limit."""
    await pool.request("up", "tools/call", {"name": tool, "arguments": {}}, {}, within=0.3)


# Hanging


@asynchronous
async def test_a_hanging_process_is_replaced_and_its_calls_time_out(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, probe=1.0) as pool:
        await pool.call_tool("up", "stop-reading", {}, {})
        first = asyncio.ensure_future(impatiently(pool, "pid"))
        await until(lambda: pool.status("up").calls == 1)
        with pytest.raises(TimeoutError):
            await impatiently(pool, "pid")
        assert isinstance(await failure(first), TimeoutError)
        await until(lambda: pool.status("up").state == "not started")
        result = await pool.call_tool("up", "pid", {}, {})
        assert rough.numbers()[1:] == [result["structuredContent"]["pid"]]
        await until(lambda: not is_running(rough.numbers()[0]))


@asynchronous
async def test_calls_in_a_session_that_is_replaced_fail_rather_than_hang(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, suspect=0.1, probe=0.2) as pool:
        await pool.call_tool("up", "stop-reading", {}, {})
        others = [asyncio.ensure_future(pool.call_tool("up", "pid", {}, {})) for _ in range(3)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await pool.call_tool("up", "pid", {}, {})
        for call in others:
            problem = await failure(call)
            assert isinstance(problem, UpstreamUnavailable) and problem.delivered
            assert str(problem) == 'The connection "up" no longer answers, so it is started anew.'


@asynchronous
async def test_a_server_that_is_only_slow_keeps_its_session(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, probe=LONG) as pool:
        other = asyncio.ensure_future(impatiently(pool, "wait"))
        with pytest.raises(TimeoutError):
            await impatiently(pool, "wait")
        await until(lambda: "ping" in rough.methods())
        await pool.call_tool("up", "pid", {}, {})
        assert len(rough.numbers()) == 1
        assert isinstance(await failure(other), TimeoutError)


@asynchronous
async def test_an_early_cancellation_does_not_make_the_connection_suspect(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, suspect=LONG) as pool:
        call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
        await until(lambda: "tools/call" in rough.methods())
        call.cancel()
        await until(lambda: "notifications/cancelled" in rough.methods())
        await pool.call_tool("up", "pid", {}, {})
        assert "ping" not in rough.methods()


class Hanging:
    """A proxy app that may stop answering."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._app = official_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.goes_on.wait()
        await self._app(scope, receive, send)


@pytest.mark.parametrize("sessions_only", [False, True])
def test_a_server_that_hangs_over_http_is_connected_again_in_both_eras(sessions_only: bool) -> None:
    @asynchronous
    async def scenario() -> None:
        app = Hanging()
        recorded = Recorded(app, sessions_only=sessions_only)
        async with listening(recorded) as url, pooled(McpConnection(url=url), suspect=0.1, probe=0.2) as pool:
            assert await add(pool) == 3
            app.goes_on.clear()
            other = asyncio.ensure_future(add(pool))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await add(pool)
            assert isinstance(await failure(other), UpstreamUnavailable)
            app.goes_on.set()
            assert await add(pool, 3, 4) == 7

    scenario()


# Repeated crashes


@asynchronous
async def test_a_server_that_crashes_twice_in_a_short_time_is_paused(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, first_pause=LONG) as pool:
        assert "exit code 3" in await crash(pool)
        assert pool.status("up").state == "not started"
        assert "exit code 3" in await crash(pool)
        assert pool.status("up").state == "failed"
        for _ in range(20):
            assert "It is tried again in" in await crash(pool)
        assert len(rough.numbers()) == 2
        assert 0 < pool.status("up").retry_in <= LONG


@asynchronous
async def test_a_listing_between_two_crashes_does_not_reset_the_pause(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, first_pause=LONG) as pool:
        for _ in range(2):
            await pool.list_tools("up")
            await crash(pool)
        with pytest.raises(UpstreamUnavailable, match="tried again"):
            await pool.list_tools("up")


@asynchronous
async def test_a_server_with_long_sessions_is_restarted_at_once(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, first_pause=LONG, steady=0.0) as pool:
        for _ in range(3):
            assert "exit code 3" in await crash(pool)
        await pool.call_tool("up", "pid", {}, {})
        assert len(rough.numbers()) == 4


@asynchronous
async def test_pauses_double_up_to_the_longest_one() -> None:
    backoff = RestartBackoff(Limits(first_pause=100, longest_pause=350, steady=1000))
    backoff.session_started()
    backoff.session_lost("once")
    assert (backoff.seconds_left, backoff.problem) == (0, "")
    lengths = []
    for _ in range(4):
        backoff.session_started()
        backoff.session_lost("again")
        lengths.append(round(backoff.seconds_left))
    assert lengths == [100, 200, 350, 350]
    assert backoff.problem == "again"


@asynchronous
async def test_a_long_session_resets_the_pause() -> None:
    backoff = RestartBackoff(Limits(first_pause=100, longest_pause=350, steady=0))
    for _ in range(3):
        backoff.start_failed("no")
    assert round(backoff.seconds_left) == 350
    backoff.session_started()
    backoff.start_failed("no")
    assert round(backoff.seconds_left) == 100


@asynchronous
async def test_a_failed_start_without_a_waiting_caller_is_not_logged_as_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pooled(Rough(tmp_path, "silent").connection, start=LONG) as pool:
        call = asyncio.ensure_future(pool.call_tool("up", "pid", {}, {}))
        await until(lambda: pool.status("up").state == "starting")
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
    gc.collect()
    await asyncio.sleep(0)
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@asynchronous
async def test_an_ignored_era_does_not_use_up_the_start_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_FIRST_ERA_MAX_S", 0.2)
    async with pooled(Rough(tmp_path, "ignore-discover").connection, start=1000.0) as pool:
        result = await pool.call_tool("up", "pid", {}, {})
    assert result["structuredContent"]["pid"] == Rough(tmp_path).numbers()[0]


@asynchronous
async def test_a_program_that_starts_slower_than_an_era_may_take_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, starts = subprocess.Popen, 0

    def start_slowly(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        nonlocal starts
        starts += 1
        time.sleep(0.3)
        return start(*args, **options)

    monkeypatch.setattr(upstream, "_FIRST_ERA_MAX_S", 0.1)
    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    async with pooled(Rough(tmp_path).connection, start=1000.0) as pool:
        await pool.call_tool("up", "pid", {}, {})
    assert starts == 1


@asynchronous
async def test_a_server_that_is_lost_when_its_time_to_start_is_over_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def lose(client: Client, *_: object) -> None:
        nonlocal tries
        tries += 1
        try:
            await asyncio.Event().wait()
        finally:
            client._transport._child._fail("was killed")  # type: ignore[attr-defined]  # of a process

    monkeypatch.setattr(upstream, "negotiate_version", lose)
    async with pooled(Rough(tmp_path).connection, start=0.3) as pool:
        with pytest.raises(UpstreamUnavailable, match=r"did not answer within 0\.3 s of its start"):
            await pool.list_tools("up")
        assert (tries, pool.status("up").state) == (1, "failed")


def test_the_start_timeout_is_shorter_than_the_deadline_of_a_call() -> None:
    deadline_s = Server().tool_timeout_ms / 1000
    assert 20 <= Limits().start < deadline_s
