"""Servers that hang, or crash again and again: replaced, but not at once for ever."""

from __future__ import annotations

import asyncio
import gc
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
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.upstreams.upstream import Limits, RestartBackoff

LONG = 60.0


async def crash(pool: Upstreams) -> str:
    """What somebody is told who makes the server crash."""
    with pytest.raises(UpstreamUnavailable) as caught:
        await pool.call_tool("up", "crash", {}, {})
    return str(caught.value)


# Hanging


@asynchronous
async def test_a_process_that_hangs_is_replaced_and_whoever_waits_for_it_is_told(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, call=0.5, probe=0.2) as pool:
        await pool.call_tool("up", "stop-reading", {}, {})
        first = asyncio.ensure_future(pool.call_tool("up", "pid", {}, {}))
        await until(lambda: pool.status("up").calls == 1)
        with pytest.raises(TimeoutError):
            await pool.call_tool("up", "pid", {}, {})
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
    async with pooled(rough.connection, call=0.2) as pool:
        other = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
        with pytest.raises(TimeoutError):
            await pool.call_tool("up", "wait", {}, {})
        await until(lambda: "ping" in rough.methods())
        await pool.call_tool("up", "pid", {}, {})
        assert len(rough.numbers()) == 1
        assert isinstance(await failure(other), TimeoutError)


@asynchronous
async def test_whoever_gives_up_soon_raises_no_doubts(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, suspect=LONG) as pool:
        call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
        await until(lambda: "tools/call" in rough.methods())
        call.cancel()
        await until(lambda: "notifications/cancelled" in rough.methods())
        await pool.call_tool("up", "pid", {}, {})
        assert "ping" not in rough.methods()


class Hanging:
    """An app in front of another one that may stop answering."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._app = official_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.goes_on.wait()
        await self._app(scope, receive, send)


@pytest.mark.parametrize("sessions_only", [False, True])
def test_a_server_that_hangs_over_http_is_asked_anew_in_either_era(sessions_only: bool) -> None:
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


# Crashing again and again


@asynchronous
async def test_a_server_that_crashes_twice_in_a_short_time_is_left_alone_for_a_while(tmp_path: Path) -> None:
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
async def test_a_listing_in_between_does_not_make_a_crashing_server_a_good_one(tmp_path: Path) -> None:
    rough = Rough(tmp_path)
    async with pooled(rough.connection, first_pause=LONG) as pool:
        for _ in range(2):
            await pool.list_tools("up")
            await crash(pool)
        with pytest.raises(UpstreamUnavailable, match="tried again"):
            await pool.list_tools("up")


@asynchronous
async def test_a_server_whose_sessions_last_is_started_again_at_once(tmp_path: Path) -> None:
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
async def test_a_session_that_lasted_ends_the_growth_of_pauses() -> None:
    backoff = RestartBackoff(Limits(first_pause=100, longest_pause=350, steady=0))
    for _ in range(3):
        backoff.start_failed("no")
    assert round(backoff.seconds_left) == 350
    backoff.session_started()
    backoff.start_failed("no")
    assert round(backoff.seconds_left) == 100


@asynchronous
async def test_a_start_that_fails_when_no_caller_waits_any_more_is_no_error_of_the_hub(
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
async def test_a_long_time_for_a_start_is_not_spent_on_an_era_that_the_server_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_FIRST_ERA_MAX_S", 0.2)
    async with pooled(Rough(tmp_path, "ignore-discover").connection, start=1000.0) as pool:
        result = await pool.call_tool("up", "pid", {}, {})
    assert result["structuredContent"]["pid"] == Rough(tmp_path).numbers()[0]


def test_a_server_that_takes_long_to_start_has_until_shortly_before_the_deadline_of_a_call() -> None:
    deadline_s = Server().tool_timeout_ms / 1000
    assert 20 <= Limits().start < deadline_s
