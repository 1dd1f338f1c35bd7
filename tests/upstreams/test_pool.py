"""Sessions with real servers: started when needed, shared, healed, and gone without a trace."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.upstreams.conftest import DEADLINE, Uvicorn, answering, response, served, until
from tests.upstreams.programs import Rough, is_running, nothing_left, program
from tests.upstreams.servers import official
from waypost import Hub, RemoteError
from waypost.config.executors import CliConnection, Connection, McpConnection
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.unavailable import UpstreamUnavailable
from waypost.upstreams.upstream import Limits

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def pooled(connection: Connection, **limits: float) -> AsyncIterator[Upstreams]:
    """A pool with one connection, `up`, which leaves nothing behind."""
    with nothing_left():
        async with asyncio.timeout(DEADLINE * 2):
            pool = Upstreams(lambda: {"up": connection}, Limits(**limits))
            try:
                yield pool
            finally:
                await pool.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert [task for task in others if "Upstream" in repr(task) or "Client" in repr(task)] == []


@asynccontextmanager
async def listening(app: Asgi, port: int = 0) -> AsyncIterator[str]:
    """The URL at which an ASGI app is served."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.bind(("127.0.0.1", port))
    server = Uvicorn(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, ws="none"))
    running = asyncio.get_running_loop().create_task(server.serve([own]))
    try:
        await server.is_up.wait()
        yield f"http://127.0.0.1:{own.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await running
        own.close()


class Recorded:
    """An app in front of another one that writes down what is asked, and may know sessions only."""

    def __init__(self, app: Asgi, *, sessions_only: bool = False) -> None:
        self.versions: list[str] = []
        self.inner = app
        self._sessions_only = sessions_only

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
            self.versions.append(version)
            if self._sessions_only and version == "2026-07-28":
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"Bad Request: Unsupported protocol version"})
                return
        await self.inner(scope, receive, send)


def official_app() -> Asgi:
    app: Asgi = official.build().streamable_http_app()
    return app


async def add(pool: Upstreams, a: int = 1, b: int = 2) -> Any:
    return (await pool.call_tool("up", "add", {"a": a, "b": b}, {}))["structuredContent"]["result"]


# Servers of other projects, and our own


@pytest.mark.parametrize("server", ["official", "fast"])
def test_a_server_of_another_project_is_called_over_standard_streams(server: str) -> None:
    async def scenario() -> None:
        async with pooled(program(server), start=DEADLINE) as pool:
            assert await add(pool) == 3
            assert "add" in [tool["name"] for tool in await pool.list_tools("up")]

    asyncio.run(scenario())


@pytest.mark.parametrize("sessions_only", [False, True])
def test_the_official_server_is_called_over_http_in_the_era_it_knows(sessions_only: bool) -> None:
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
        async with pooled(McpConnection(command=sys.executable, args=arguments), start=DEADLINE) as pool:
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


def test_a_result_is_plain_json_with_what_every_result_has(tmp_path: Path) -> None:
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


def test_a_server_that_does_not_know_the_newest_era_gets_a_session(tmp_path: Path) -> None:
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
def test_a_server_that_the_first_question_upsets_gets_a_session_all_the_same(
    habit: str, processes: int, tmp_path: Path
) -> None:
    rough = Rough(tmp_path, habit)

    async def scenario() -> None:
        async with pooled(rough.connection, start=5.0) as pool:
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == processes

    asyncio.run(scenario())


# Starting


def test_nothing_is_started_before_it_is_needed(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection):
            pass

    asyncio.run(scenario())
    assert rough.diary == []


def test_first_calls_that_come_together_start_one_session(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            results = await asyncio.gather(*(pool.call_tool("up", "pid", {}, {}) for _ in range(50)))
            assert {result["structuredContent"]["pid"] for result in results} == set(rough.numbers())
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


def test_whoever_is_cancelled_while_it_starts_leaves_the_start_to_the_others(tmp_path: Path) -> None:
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
def test_a_server_that_never_introduces_itself_is_given_up(habit: str, tmp_path: Path) -> None:
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
            with pytest.raises(UpstreamUnavailable, match=r"exit code 7\. It is tried again in [0-9.]+ s\.") as caught:
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


def test_a_program_that_is_not_there_is_one_sentence() -> None:
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
            with pytest.raises(RemoteError, match=r'^The connection "up" answered: .*text/html, which is not MCP'):
                await pool.list_tools("up")

    asyncio.run(scenario())


def test_a_gateway_in_front_that_fails_is_a_connection_error() -> None:
    async def write(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"Bad gateway", status="502 Bad Gateway", kind="text/plain"))
        await writer.drain()

    async def scenario() -> None:
        async with answering(write) as url, pooled(McpConnection(url=url)) as pool:
            with pytest.raises(UpstreamUnavailable, match='"up" answered 502: Bad Gateway'):
                await pool.list_tools("up")

    asyncio.run(scenario())


# Failing


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("refuse", 'The connection "up" answered: Not like this.'),
        ("nonsense", 'The connection "up" answered: The server\'s answer is not MCP.'),
        ("ask", '"ask" of the connection "up" asks for what nobody here can give.'),
    ],
)
def test_an_answer_that_is_no_result_is_a_remote_error_and_the_session_goes_on(
    tool: str, message: str, tmp_path: Path
) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            with pytest.raises(RemoteError) as caught:
                await pool.call_tool("up", tool, {}, {})
            assert caught.value.message == message
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


def test_a_server_that_asks_whether_we_are_there_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pooled(Rough(tmp_path).connection) as pool:
            result = await pool.call_tool("up", "ping-me", {}, {})
            assert result["structuredContent"] == {"jsonrpc": "2.0", "id": "p", "result": {}}

    asyncio.run(scenario())


def test_a_crash_fails_every_call_under_way_and_the_next_one_starts_anew(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            waiting = [asyncio.ensure_future(pool.call_tool("up", "wait", {}, {})) for _ in range(5)]
            await until(lambda: rough.methods().count("tools/call") == 5)
            with pytest.raises(UpstreamUnavailable, match='"up" ended with the exit code 3') as caught:
                await pool.call_tool("up", "crash", {}, {})
            assert caught.value.delivered
            assert {type(await failure(call)) for call in waiting} == {UpstreamUnavailable}
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 2
            assert rough.methods().count("tools/call") == 7

    asyncio.run(scenario())


async def failure(call: asyncio.Future[Any]) -> BaseException | None:
    await asyncio.wait({call})
    return call.exception()


def test_a_call_that_takes_too_long_is_a_timeout_and_is_cancelled_at_the_server(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection, call=0.5) as pool:
            with pytest.raises(TimeoutError, match=r'The connection "up" did not answer within 0.5 s'):
                await pool.call_tool("up", "wait", {}, {})
            await until(lambda: "notifications/cancelled" in rough.methods())
            await pool.call_tool("up", "pid", {}, {})

    asyncio.run(scenario())


def test_whoever_is_cancelled_cancels_the_request_at_the_server(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await until(lambda: "tools/call" in rough.methods())
            call.cancel()
            await until(lambda: "notifications/cancelled" in rough.methods())
            assert call.cancelled()
            await pool.call_tool("up", "pid", {}, {})
            assert len(rough.numbers()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("sessions_only", [False, True])
def test_whoever_is_cancelled_does_not_wait_for_a_server_over_http(sessions_only: bool) -> None:
    hub = Hub("slow", version="1")
    started, stopped = asyncio.Event(), asyncio.Event()

    @hub.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async def scenario() -> None:
        app = Recorded(hub.asgi(), sessions_only=sessions_only)
        async with listening(app) as url, pooled(McpConnection(url=url)) as pool:
            call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await started.wait()
            call.cancel()
            await stopped.wait()
            assert call.cancelled()

    asyncio.run(scenario())


def test_a_server_that_stops_reading_is_left_for_a_new_one_and_the_call_is_made_there(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            await pool.call_tool("up", "deafen", {}, {})
            first = rough.numbers()[0]
            while True:
                try:
                    async with asyncio.timeout(1):
                        result = await pool.call_tool("up", "pid", {}, {})
                    break
                except TimeoutError:
                    continue
            assert result["structuredContent"]["pid"] != first

    asyncio.run(scenario())


# Healing over HTTP


@pytest.mark.parametrize("status", [404, 400])
def test_a_session_that_expired_is_replaced_and_the_call_made_once(status: int) -> None:
    async def scenario() -> None:
        app = Recorded(official_app(), sessions_only=True)
        async with listening(app) as url, pooled(McpConnection(url=url)) as pool:
            assert await add(pool) == 3
            app.inner = Forgetful(app.inner, status)
            assert await asyncio.gather(*(add(pool, 1, number) for number in range(5))) == [1, 2, 3, 4, 5]

    asyncio.run(scenario())


class Forgetful:
    """An app that knows no session it has not opened since."""

    def __init__(self, app: Asgi, status: int) -> None:
        self._app = app
        self._status = status
        self._known: set[bytes] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        session = dict(scope["headers"]).get(b"mcp-session-id")

        async def sent(message: Any) -> None:
            self._known.update(value for name, value in message.get("headers", ()) if name == b"mcp-session-id")
            await send(message)

        if session is None or session in self._known:
            await self._app(scope, receive, sent)
            return
        await send({"type": "http.response.start", "status": self._status, "headers": []})
        await send({"type": "http.response.body", "body": b"Session not found"})


class Aged:
    """An app that has unlearnt the newest era."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if dict(scope["headers"]).get(b"mcp-protocol-version") != b"2026-07-28":
            await self._app(scope, receive, send)
            return
        asked = json.loads((await receive())["body"])["id"]
        error = {"code": -32022, "message": "Unsupported", "data": {"supported": ["2025-11-25"]}}
        body = json.dumps({"jsonrpc": "2.0", "id": asked, "error": error}).encode()
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})


def test_a_server_that_unlearnt_the_newest_era_gets_a_session_from_then_on() -> None:
    async def scenario() -> None:
        app = Recorded(official_app())
        async with listening(app) as url, pooled(McpConnection(url=url)) as pool:
            assert await add(pool) == 3
            app.inner = Aged(app.inner)
            assert await add(pool) == 3
            assert app.versions[-1] == "2025-11-25"

    asyncio.run(scenario())


def test_an_address_that_may_hold_a_key_is_not_told() -> None:
    async def refuse(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"no", status="403 Forbidden", kind="text/plain"))
        await writer.drain()

    async def scenario() -> None:
        async with answering(refuse) as url, pooled(McpConnection(url=f"{url}?key=hush")) as pool:
            with pytest.raises(RemoteError, match="the server answered 403") as caught:
                await add(pool)
            assert "hush" not in caught.value.message

    asyncio.run(scenario())


def test_a_server_that_comes_back_is_used_again() -> None:
    async def scenario() -> None:
        async with listening(official_app()) as url:
            pool = Upstreams(lambda: {"up": McpConnection(url=url)}, Limits(first_pause=0.01, longest_pause=0.01))
            assert await add(pool) == 3
        with pytest.raises(UpstreamUnavailable, match='"up" cannot be reached'):
            await add(pool)
        async with listening(official_app(), int(url.split(":")[2].split("/")[0])):
            async with asyncio.timeout(DEADLINE):
                while True:
                    try:
                        assert await add(pool) == 3
                        break
                    except UpstreamUnavailable:
                        await asyncio.sleep(0)
            await pool.close()

    asyncio.run(scenario())


def test_a_hub_over_http_is_called_in_the_newest_era() -> None:
    hub = Hub("inner", version="1")

    @hub.tool(name="add")
    def plus(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def scenario() -> None:
        async with served(hub) as url, pooled(McpConnection(url=url)) as pool:
            assert await asyncio.gather(*(add(pool, 1, number) for number in range(50))) == list(range(1, 51))

    asyncio.run(scenario())


# Changing and ending


def test_a_changed_connection_gets_a_new_session_and_the_old_one_ends_with_its_calls(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = Rough(tmp_path / "old"), Rough(tmp_path / "new")
    configured: dict[str, Connection] = {"up": old.connection}

    async def scenario() -> None:
        with nothing_left():
            pool = Upstreams(lambda: configured)
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
            await pool.close()

    asyncio.run(scenario())


def test_a_session_that_nobody_uses_is_closed_and_started_again_when_needed(tmp_path: Path) -> None:
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


def test_closing_fails_what_is_under_way_and_refuses_what_comes_later(tmp_path: Path) -> None:
    rough = Rough(tmp_path)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            waiting = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await until(lambda: "tools/call" in rough.methods())
            await pool.close()
            assert "was closed" in str(await failure(waiting))
            with pytest.raises(UpstreamUnavailable, match="was closed"):
                await pool.call_tool("up", "pid", {}, {})

    asyncio.run(scenario())


@pytest.mark.parametrize("habit", ["silent", "stubborn"])
def test_closing_while_a_server_starts_leaves_nothing(habit: str, tmp_path: Path) -> None:
    rough = Rough(tmp_path, habit)

    async def scenario() -> None:
        async with pooled(rough.connection) as pool:
            call = asyncio.ensure_future(pool.call_tool("up", "wait", {}, {}))
            await until(lambda: rough.diary)
            await pool.close()
            assert isinstance(await failure(call), UpstreamUnavailable)

    asyncio.run(scenario())


def test_one_server_that_hangs_does_not_hold_up_another(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    connections: dict[str, Connection] = {
        "bad": Rough(tmp_path / "bad", "silent").connection,
        "up": Rough(tmp_path).connection,
    }

    async def scenario() -> None:
        with nothing_left():
            pool = Upstreams(lambda: connections)
            hanging = asyncio.ensure_future(pool.call_tool("bad", "x", {}, {}))
            await pool.call_tool("up", "pid", {}, {})
            assert not hanging.done()
            await pool.close()
            assert isinstance(await failure(hanging), UpstreamUnavailable)

    asyncio.run(scenario())
