"""Sessions with real servers: started on demand, shared, and closed without leftovers."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.conftest import answering, response, until
from tests.upstreams.pools import Recorded, add, failure, listening, official_app, pooled
from tests.upstreams.programs import Rough, is_running, nothing_left, program
from waypost import RemoteError
from waypost.config.models import CliConnection, Connection, McpConnection
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.transport import UpstreamUnavailable

SLOW_START_S = 35.0
"""Servers of other projects take seconds of processor time to start, on a machine that does other work too."""

# Servers of other projects, and our own


@pytest.mark.parametrize("server", ["official", "fast"])
def test_a_server_of_another_project_is_called_over_standard_streams(server: str) -> None:
    async def scenario() -> None:
        async with pooled(program(server), start=SLOW_START_S) as pool:
            assert await add(pool) == 3
            assert "add" in [tool["name"] for tool in await pool.list_tools("up")]

    asyncio.run(scenario())


@pytest.mark.parametrize("sessions_only", [False, True])
def test_the_official_server_is_called_over_http_in_the_era_it_supports(sessions_only: bool) -> None:
    async def scenario() -> None:
        app = Recorded(official_app(), sessions_only=sessions_only)
        async with listening(app) as url, pooled(McpConnection(url=url)) as pool:
            assert await add(pool) == 3
            assert await add(pool, 3, 4) == 7
            assert app.versions[-1] == ("2025-11-25" if sessions_only else "2026-07-28")

    asyncio.run(scenario())


def test_a_hub_is_called_over_standard_streams(tmp_path: Path) -> None:
    (tmp_path / "hub.py").write_text(
        "from waypost import Hub\n\nhub = Hub('inner', version='1')\n\n\n"
        "@hub.tool\ndef add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
    )
    arguments = ["-m", "waypost", "serve", f"{tmp_path / 'hub.py'}:hub", "--stdio", "--data", str(tmp_path / "data")]

    async def scenario() -> None:
        async with pooled(McpConnection(command=sys.executable, args=arguments), start=SLOW_START_S) as pool:
            assert await add(pool) == 3

    asyncio.run(scenario())


def test_headers_of_the_connection_go_with_every_request() -> None:
    seen: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]).get(b"x-key", b""))
        await inner(scope, receive, send)

    inner = official_app()

    async def scenario() -> None:
        async with listening(app) as url, pooled(McpConnection(url=url, headers={"X-Key": "k"})) as pool:
            assert await add(pool) == 3
            assert set(seen) == {b"k"}

    asyncio.run(scenario())


def test_a_result_is_plain_json(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pooled(Rough(tmp_path).connection) as pool:
            result = await pool.call_tool("up", "pid", {}, {"key": "k"})
            assert result.keys() == {"content", "structuredContent", "isError"}
            assert type(result["structuredContent"]) is dict
            assert result["isError"] is False

    asyncio.run(scenario())


def test_the_meta_of_a_call_reaches_the_server(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            await pool.call_tool("up", "pid", {}, {"waypost/key": "abc"})
            assert '"_meta": {"waypost/key": "abc"}' in rough.diary[-1]

    asyncio.run(scenario())


# Eras


def test_a_server_without_the_newest_era_gets_a_session(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            await pool.call_tool("up", "pid", {}, {})
            methods = ["started", "server/discover", "initialize", "notifications/initialized", "tools/call"]
            assert rough.methods() == methods

    asyncio.run(scenario())


def test_the_era_that_worked_is_remembered(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            with pytest.raises(UpstreamUnavailable):
                await pool.call_tool("up", "crash", {}, {})
            await pool.call_tool("up", "pid", {}, {})
            assert rough.methods().count("server/discover") == 1
            assert rough.methods().count("initialize") == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(("habit", "processes"), [("crash-at-discover", 2), ("ignore-discover", 1)])
def test_a_server_that_crashes_at_or_ignores_discover_gets_a_session(
    habit: str, processes: int, tmp_path: Path
) -> None:
    rough = Rough(tmp_path, habit)

    async def scenario() -> None:
        async with pooled(rough.connection, start=5.0) as pool:
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == processes

    asyncio.run(scenario())


# Starting


def test_a_server_is_not_started_before_the_first_call(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection):
            pass

    asyncio.run(scenario())
    assert rough.diary == []


def test_concurrent_first_calls_start_one_session(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            results = await asyncio.gather(*(pool.call_tool("up", "pid", {}, {}) for _ in range(50)))
            assert {result["structuredContent"]["pid"] for result in results} == set(rough.numbers())
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


def test_a_cancelled_caller_does_not_cancel_the_start_for_others(tmp_path: Path) -> None:
    rough = Rough(tmp_path, "ignore-discover")

    async def scenario() -> None:
        async with pooled(rough.connection, start=2.0) as pool:
            first, second = (asyncio.ensure_future(pool.call_tool("up", "pid", {}, {})) for _ in range(2))
            await until(lambda: "server/discover" in rough.methods())
            first.cancel()
            await second
            assert first.cancelled()
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("habit", ["silent", "garbage"])
def test_a_server_that_does_not_initialise_times_out(habit: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pooled(Rough(tmp_path, habit).connection, start=0.5) as pool:
            with pytest.raises(UpstreamUnavailable, match=r'"up" did not answer within 0.5 s of its start'):
                await pool.call_tool("up", "pid", {}, {})

    asyncio.run(scenario())


def test_calls_during_the_pause_after_a_failed_start_fail_at_once(tmp_path: Path) -> None:
    rough = Rough(tmp_path, "crash")

    async def scenario() -> None:
        async with pooled(rough.connection, first_pause=60.0) as pool:
            with pytest.raises(UpstreamUnavailable, match='"up" ended with the exit code 7'):
                await pool.call_tool("up", "pid", {}, {})
            with pytest.raises(
                UpstreamUnavailable, match=r"exit code 7; .*MCP server\. It is tried again in [0-9.]+ s\."
            ) as caught:
                await pool.call_tool("up", "pid", {}, {})
            assert not caught.value.delivered

    asyncio.run(scenario())


def test_pauses_between_failed_starts_grow_to_a_limit_and_end_with_a_success(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    good = program("rough", str(diary))
    gate = tmp_path / "gate.py"
    gate.write_text(
        "import pathlib, runpy, sys\n"
        f"if not pathlib.Path({str(tmp_path / 'open')!r}).exists():\n    sys.exit(9)\n"
        f"sys.argv = [{good.args[0]!r}, {str(diary)!r}]\nrunpy.run_path(sys.argv[0])\n"
    )

    async def scenario() -> None:
        async with pooled(
            McpConnection(command=sys.executable, args=[str(gate)]), first_pause=0.05, longest_pause=0.2
        ) as pool:
            failed = 0
            while failed < 3:
                with pytest.raises(UpstreamUnavailable) as caught:
                    await pool.call_tool("up", "pid", {}, {})
                failed += "tried again" not in str(caught.value)
                await asyncio.sleep(0)
            (tmp_path / "open").touch()
            while True:
                try:
                    await pool.call_tool("up", "pid", {}, {})
                    break
                except UpstreamUnavailable as problem:
                    assert "tried again in 0." in str(problem)
                    await asyncio.sleep(0)

    asyncio.run(scenario())


def test_a_missing_program_is_an_error() -> None:
    async def scenario() -> None:
        async with pooled(McpConnection(command="no-such-program")) as pool:
            with pytest.raises(UpstreamUnavailable, match=r'^The connection "up" cannot start no-such-program: '):
                await pool.call_tool("up", "pid", {}, {})

    asyncio.run(scenario())


@pytest.mark.parametrize("connection", [CliConnection(command="ls"), McpConnection()])
def test_a_connection_that_is_not_to_an_mcp_server_is_refused(connection: Connection) -> None:
    async def scenario() -> None:
        async with pooled(connection) as pool:
            for name in ("up", "other"):
                with pytest.raises(UpstreamUnavailable, match=f'no connection "{name}" to an MCP server'):
                    await pool.list_tools(name)

    asyncio.run(scenario())


def test_a_web_server_that_is_not_mcp_is_a_remote_error() -> None:
    async def write(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"<html>Hello</html>", kind="text/html"))
        await writer.drain()

    async def scenario() -> None:
        async with answering(write) as url, pooled(McpConnection(url=url)) as pool:
            with pytest.raises(RemoteError, match='"up" answered 200 with text/html, which is not MCP'):
                await pool.list_tools("up")

    asyncio.run(scenario())


def test_a_bad_gateway_response_is_a_connection_error() -> None:
    async def write(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"Bad gateway", status="502 Bad Gateway", kind="text/plain"))
        await writer.drain()

    async def scenario() -> None:
        async with answering(write) as url, pooled(McpConnection(url=url)) as pool:
            with pytest.raises(UpstreamUnavailable, match='"up" answered 502: Bad Gateway'):
                await pool.list_tools("up")

    asyncio.run(scenario())


# Changing and ending


def test_a_changed_connection_gets_a_new_session_and_the_old_one_ends_with_its_calls(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = Rough(tmp_path / "old"), Rough(tmp_path / "new")
    configured: dict[str, Connection] = {"up": old.connection}

    async def scenario() -> None:
        with nothing_left():
            pool = Upstreams(configured)
            waiting = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await until(lambda: "tools/call" in old.methods())
            configured["up"] = new.connection
            result = await pool.call_tool("up", "pid", {}, {})
            assert [result["structuredContent"]["pid"]] == new.numbers()
            assert is_running(old.numbers()[0])
            waiting.cancel()
            await until(lambda: not is_running(old.numbers()[0]))
            del configured["up"]
            with pytest.raises(UpstreamUnavailable, match="no connection"):
                await pool.list_tools("up")
            await until(lambda: not is_running(new.numbers()[0]))
            await pool.stop()

    asyncio.run(scenario())


def test_an_idle_session_is_closed_and_started_again_on_demand(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection, idle=0.1) as pool:
            await pool.call_tool("up", "pid", {}, {})
            await until(lambda: not is_running(rough.numbers()[0]))
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 2

    asyncio.run(scenario())


def test_a_session_with_a_call_under_way_is_not_idle(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection, idle=0.05, call=0.5) as pool:
            with pytest.raises(TimeoutError):
                await pool.call_tool("up", "wait", {}, {})

    asyncio.run(scenario())


def test_stopping_fails_running_calls_and_refuses_later_ones(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            waiting = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await until(lambda: "tools/call" in rough.methods())
            await pool.stop()
            assert "was closed" in str(await failure(waiting))
            with pytest.raises(UpstreamUnavailable, match="was closed"):
                await pool.call_tool("up", "pid", {}, {})

    asyncio.run(scenario())


@pytest.mark.parametrize("habit", ["silent", "stubborn"])
def test_stopping_while_a_server_starts_leaves_no_process(habit: str, tmp_path: Path) -> None:
    rough = Rough(tmp_path, habit)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await until(lambda: rough.diary)
            await pool.stop()
            assert isinstance(await failure(call), UpstreamUnavailable)

    asyncio.run(scenario())


def test_a_hanging_server_does_not_delay_another(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    connections: dict[str, Connection] = {
        "bad": Rough(tmp_path / "bad", "silent").connection,
        "up": Rough(tmp_path).connection,
    }

    async def scenario() -> None:
        with nothing_left():
            pool = Upstreams(connections)
            hanging = asyncio.ensure_future(pool.call_tool("bad", "x", {}, {}))
            await pool.call_tool("up", "pid", {}, {})
            assert not hanging.done()
            await pool.stop()
            assert isinstance(await failure(hanging), UpstreamUnavailable)

    asyncio.run(scenario())
