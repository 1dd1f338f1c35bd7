"""One lifecycle: components, lifespan, hooks and toolkits start in order and stop in reverse, on every transport."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import served
from waypost import DefinitionError, Hub, Session, Toolkit, WaypostError, tool
from waypost.runtime.component import Component
from waypost.runtime.core import Core, Launch
from waypost.settings import Settings
from waypost.testing import MemoryLink, TestClient, connect
from waypost.wire.versions import LATEST_LEGACY


class Recorded(Component):
    """A component that records its starts and stops."""

    def __init__(self, name: str, events: list[str], fails: str = "") -> None:
        self.name = name
        self._events = events
        self._fails = fails

    async def start(self, core: Core) -> None:
        self._events.append(f"{self.name} starts")
        if self._fails == "start":
            raise OSError("no disk")

    async def stop(self) -> None:
        self._events.append(f"{self.name} stops")
        if self._fails == "stop":
            raise OSError("no disk")


def declared(events: list[str]) -> Hub:
    @contextlib.asynccontextmanager
    async def lifespan(hub: Hub) -> AsyncIterator[None]:
        events.append(f"lifespan of {hub.info.name} begins")
        yield
        events.append("lifespan ends")

    hub = Hub("house", version="1", lifespan=lifespan)
    hub.add(Recorded("first", events)).add(Recorded("second", events))
    hub.on("start")(lambda: events.append("start hook"))

    @hub.on("stop")
    async def stopped() -> None:
        events.append("stop hook")

    return hub


ORDER = [
    "lifespan of house begins",
    "first starts",
    "second starts",
    "start hook",
    "stop hook",
    "second stops",
    "first stops",
    "lifespan ends",
]


@asynchronous
async def test_memory_starts_in_order_and_stops_in_reverse() -> None:
    events: list[str] = []
    hub = declared(events)
    async with connect(hub) as client:
        assert await client.list_tools() == []
    await hub.stop()

    assert events == ORDER


@asynchronous
async def test_asgi_starts_the_same() -> None:
    events: list[str] = []
    app = declared(events).asgi()
    sent: list[Any] = []
    received = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)

    assert events == ORDER
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_an_asgi_server_does_not_serve_a_hub_that_fails_to_start(caplog: pytest.LogCaptureFixture) -> None:
    app = Hub("house", version="1").add(Recorded("broken", [], fails="start")).asgi()
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        with contextlib.suppress(SystemExit):  # uvicorn exits, or returns, depending on its version
            asyncio.run(server.serve([listening]))

    assert not server.started
    assert "no disk" in caplog.text


def test_requests_do_not_reach_a_hub_that_fails_to_start_under_a_server_without_lifespan() -> None:
    app = Hub("house", version="1").add(Recorded("broken", [], fails="start")).asgi()
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))

    async def scenario(url: str) -> list[int]:
        async with aiohttp.ClientSession() as browser:
            answers = [(await browser.get(f"{url}/health")).status for _ in range(2)]
        server.should_exit = True
        return answers

    async def serve(listening: socket.socket) -> list[int]:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(server.serve([listening]))
            answers = group.create_task(scenario(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        return answers.result()

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        assert asyncio.run(serve(listening)) == [500, 500]


class Plain:
    """A component that is no subclass of `Component`."""

    name = "plain"

    async def start(self, core: Core) -> None: ...
    async def stop(self) -> None: ...
    async def refresh(self) -> None: ...
    async def prepare(self, settings: Settings) -> None: ...


@asynchronous
async def test_the_console_works_beside_a_component_with_the_four_methods_only() -> None:
    hub = Hub("house", version="1").add(Plain())
    async with served(hub) as url, aiohttp.ClientSession() as browser:
        assert (await browser.get(url.replace("/mcp", "/console/sign-in"))).status == 200


def test_the_attributes_of_a_component_that_inherits_nothing_are_used() -> None:
    class Reader(Plain):
        reads = ("notes",)
        sections = ("search",)

    plain, reader = (
        Hub("house", version="1").add(Plain()).components,
        Hub("house", version="1").add(Reader()).components,
    )

    assert [(one.name, one.reads, one.sections, one.pages) for one in (*plain, *reader)] == [
        ("plain", (), None, ()),
        ("plain", ("notes",), ("search",), ()),
    ]


def test_a_component_without_a_name_is_refused() -> None:
    class Nameless(Plain):
        name = ""

    with pytest.raises(DefinitionError, match="The component Nameless needs a name"):
        Hub("house", version="1").add(Nameless())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_toolkit_that_is_added_to_a_running_hub_is_opened_before_its_tools_are_there(is_async: bool) -> None:
    events: list[str] = []

    async def open_later() -> None:
        events.append("open")

    class Late(Toolkit):
        def open(self) -> Any:
            return open_later() if is_async else events.append("open")

        def close(self) -> None:
            events.append("close")

        @tool
        def state(self) -> str:
            return events[-1]

    async def scenario() -> None:
        hub = Hub("house", version="1", capabilities={"tools": {"listChanged": True}})
        async with connect(hub, LATEST_LEGACY) as client:
            hub.add(Late)
            await client.assert_notification("tools/list_changed", within=60)
            assert (await client.call_tool("state")).text == "open"
        await hub.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert events == ["open", "close"]


def test_a_name_in_use_is_refused_before_a_toolkit_is_opened() -> None:
    events: list[str] = []

    class Late(Toolkit):
        async def open(self) -> None:
            events.append("open")

        @tool
        def taken(self) -> str:
            return "late"

    async def scenario() -> None:
        hub = Hub("house", version="1")
        hub.tool(name="taken")(lambda: "first")
        async with connect(hub) as client:
            with pytest.raises(DefinitionError, match="There is a tool 'taken' already"):
                hub.add(Late)
            assert (await client.call_tool("taken")).text == "first"
        await hub.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert events == []


def test_a_toolkit_that_the_lifespan_adds_is_opened_once() -> None:
    events: list[str] = []

    class Late(Toolkit):
        def open(self) -> None:
            events.append("open")

        @tool
        def state(self) -> str:
            return events[-1]

    @contextlib.asynccontextmanager
    async def lifespan(hub: Hub) -> AsyncIterator[None]:
        hub.add(Late)
        yield

    async def scenario() -> None:
        hub = Hub("house", version="1", lifespan=lifespan)
        async with connect(hub) as client:
            assert (await client.call_tool("state")).text == "open"
        await hub.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert events == ["open"]


SERVED = """
import sys
sys.path.insert(0, {root!r})
from tests.runtime.test_lifecycle import declared
class Printed(list):
    def append(self, event):
        sys.stderr.write(event + "\\n")
hub = declared(Printed())
hub.serve({transport!r}, **{options!r})
"""


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_stdio_and_http_start_the_same(transport: str, tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    options: dict[str, Any] = {"data_dir": str(tmp_path / "data")}
    if transport == "http":
        options["port"] = 0
    program = SERVED.format(root=root, transport=transport, options=options)
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None and process.stdin is not None
        for line in process.stderr:
            lines.append(line.decode().strip())
            if transport == "stdio" and lines[-1] == "start hook":
                process.stdin.close()
            elif "is ready at" in lines[-1]:
                process.terminate()
        assert process.wait(60) == 0

    assert [line for line in lines if line in ORDER] == ORDER


@asynchronous
async def test_a_failed_start_stops_the_started_components_and_raises() -> None:
    events: list[str] = []
    hub = Hub("house", version="1")
    hub.add(Recorded("first", events)).add(Recorded("second", events, "start")).add(Recorded("third", events))

    with pytest.raises(OSError, match="no disk"):
        await hub.start()

    assert events == ["first starts", "second starts", "second stops", "first stops"]


@asynchronous
async def test_a_component_that_fails_to_stop_does_not_keep_others_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[str] = []
    hub = Hub("house", version="1")
    hub.add(Recorded("first", events)).add(Recorded("second", events, "stop"))
    await hub.start()
    await hub.stop()

    assert events[-2:] == ["second stops", "first stops"]
    assert "stop failed: component second" in caplog.text


@asynchronous
async def test_a_component_that_does_not_stop_in_time_does_not_keep_others_from_stopping(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    events: list[str] = []

    class Stuck(Component):
        name = "stuck"

        async def stop(self) -> None:
            await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def lifespan(hub: Hub) -> AsyncIterator[None]:
        yield
        events.append("lifespan ends")

    monkeypatch.setattr("waypost.runtime.runtime.STOP_TIMEOUT_S", 0.05)
    monkeypatch.setattr("waypost.runtime.runtime.MIN_STOP_S", 0.05)
    hub = Hub("house", version="1", data_dir=tmp_path, lifespan=lifespan)
    hub.add(Recorded("first", events)).add(Stuck())

    @hub.on("stop")
    async def never() -> None:
        await asyncio.Event().wait()

    await hub.start()
    await hub.store.open()
    await hub.stop()

    assert events == ["first starts", "first stops", "lifespan ends"]
    assert not hub.store.is_open
    assert "stop timed out, left behind: component stuck" in caplog.text
    assert "stop timed out, left behind: stop hook" in caplog.text


@asynchronous
async def test_sessions_and_tasks_end_before_the_components_that_they_use() -> None:
    events: list[str] = []
    hub = declared(events)
    began = asyncio.Event()

    @hub.on("terminate")
    async def ended(reason: str, session: Session) -> None:
        await asyncio.sleep(0)  # a hook that waits, as for a database, is waited for
        events.append(f"session {reason}")

    @hub.tool(task="required")
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            events.append("task ends")

    client = TestClient(MemoryLink(hub.engine), version=LATEST_LEGACY)
    await hub.start()
    await client.open()
    await client.request("tools/call", {"name": "work", "task": {}})
    await began.wait()
    await hub.stop()
    await client.close()

    assert sorted(events[5:7]) == ["session shutdown", "task ends"]
    assert events[:5] + events[7:] == ORDER


@asynchronous
async def test_a_hook_that_never_returns_does_not_keep_the_hub_from_stopping(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []
    hub = declared(events)

    @hub.on("terminate")
    async def never(reason: str, session: Session) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    monkeypatch.setattr("waypost.runtime.runtime.STOP_TIMEOUT_S", 0.05)
    monkeypatch.setattr("waypost.runtime.runtime.MIN_STOP_S", 0.05)
    client = TestClient(MemoryLink(hub.engine), version=LATEST_LEGACY)
    await hub.start()
    await client.open()
    await hub.stop()
    await client.close()

    assert [event for event in events if event != "cancelled"] == ORDER
    assert "cancelled" in events
    assert "stop timed out, left behind: sessions and tasks" in caplog.text


@asynchronous
async def test_a_toolkit_that_fails_to_close_does_not_keep_others_open(caplog: pytest.LogCaptureFixture) -> None:
    events: list[str] = []

    class First(Toolkit):
        def close(self) -> None:
            events.append("first closed")

    class Second(Toolkit):
        async def close(self) -> None:
            raise OSError("no disk")

    hub = Hub("house", version="1").add(First).add(Second)
    await hub.start()
    await hub.stop()

    assert events == ["first closed"]
    assert "stop failed: toolkit Second" in caplog.text


def test_a_hub_can_start_again_on_another_loop() -> None:
    events: list[str] = []
    hub = declared(events)

    async def once() -> None:
        await hub.start()
        await hub.stop()

    asyncio.run(once())
    asyncio.run(once())

    assert events == ORDER * 2


def test_a_hub_can_be_stopped_on_another_loop_after_its_own_has_closed() -> None:
    events: list[str] = []
    hub = declared(events)

    asyncio.run(hub.start())
    asyncio.run(hub.stop())

    assert events == ORDER[:-1]  # the lifespan is an async generator, which ends with the loop


def test_a_hub_that_is_stopped_from_another_loop_stops_on_its_own() -> None:
    hub, seen = Hub("two", version="1"), []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    hub.on("stop")(lambda: seen.append(asyncio.get_running_loop()))
    try:
        asyncio.run_coroutine_threadsafe(hub.start(), loop).result(60)
        asyncio.run(hub.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()

    assert seen == [loop]


@asynchronous
async def test_a_component_added_to_a_running_hub_is_started_and_stopped() -> None:
    events: list[str] = []
    hub = Hub("house", version="1")
    await hub.start()
    hub.add(Recorded("late", events))
    await asyncio.sleep(0)  # one turn of the loop, in which it starts
    await hub.stop()

    assert events == ["late starts", "late stops"]


@asynchronous
async def test_a_late_component_that_fails_to_start_is_logged_and_the_hub_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[str] = []
    hub = Hub("house", version="1")
    await hub.start()
    hub.add(Recorded("late", events, "start"))
    await asyncio.sleep(0)  # one turn of the loop, in which it fails
    await hub.stop()

    assert events == ["late starts", "late stops"]
    assert "a component that was added to the running hub failed to start" in caplog.text


@asynchronous
async def test_a_reload_of_a_hub_that_does_not_run_starts_nothing(tmp_path: Path) -> None:
    events: list[str] = []
    file = tmp_path / "waypost.yaml"
    file.write_text("server: {name: house}\n")
    hub = Hub.from_config(file).add(Recorded("part", events))
    file.write_text("server: {name: house}\nprompts: {ask: {template: What?}}\n")

    assert await hub.reload()
    assert events == []


@asynchronous
async def test_two_components_of_one_name_are_refused() -> None:
    hub = Hub("house", version="1").add(Recorded("same", [])).add(Recorded("same", []))

    with pytest.raises(DefinitionError, match="There is a component 'same' already"):
        await hub.start()


@asynchronous
async def test_toolkits_are_opened_with_the_hub_and_closed_with_it() -> None:
    events: list[str] = []

    class Files(Toolkit):
        def open(self) -> None:
            events.append("files opened")

        async def close(self) -> None:
            events.append("files closed")

        @tool
        def look(self) -> str:
            """Say what happened so far."""
            return ", ".join(events)

    class Web(Toolkit):
        async def open(self) -> None:
            events.append("web opened")

        def close(self) -> None:
            events.append("web closed")

    hub = Hub("house", version="1").add(Files).add(Web())
    async with connect(hub) as client:
        assert (await client.call_tool("look")).text == "files opened, web opened"
    await hub.stop()

    assert events[2:] == ["web closed", "files closed"]


def test_where_data_is_kept_is_decided_once(tmp_path: Path) -> None:
    hub = Hub("house", version="1")
    assert not hub.store.database.is_durable

    with pytest.raises(WaypostError, match="used before it was served"):
        hub.launch(Launch(durable=True))

    kept = Hub("house", version="1", data_dir=tmp_path)
    assert kept.store.database.is_durable
    assert kept.launch(Launch(durable=True)).core.data_dir == tmp_path


def test_a_program_that_defines_an_app_can_be_served_otherwise(tmp_path: Path) -> None:
    hub = Hub("house", version="1")
    _ = hub.asgi()

    assert hub.launch(Launch(data_dir=tmp_path, durable=True)).core.data_dir == tmp_path


@asynchronous
async def test_an_app_whose_hub_cannot_be_built_reports_a_failed_startup() -> None:
    hub = Hub("house", version="1").add(Recorded("twin", [])).add(Recorded("twin", []))
    app = hub.asgi()
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, receive, send)

    assert [(one["type"], "'twin'" in one["message"]) for one in sent] == [("lifespan.startup.failed", True)]


@asynchronous
async def test_a_key_made_at_run_time_is_good_after_a_restart_under_asgi(tmp_path: Path) -> None:
    hub = Hub("house", version="1", data_dir=tmp_path)
    _ = hub.asgi()
    await hub.start()
    key = await hub.keys.create("ci")
    await hub.stop()

    again = Hub("house", version="1", data_dir=tmp_path)
    _ = again.asgi()
    await again.start()
    principal = again.runtime.authentication.known({b"authorization": f"Bearer {key}".encode()})
    await again.stop()

    assert principal is not None and principal.id == "ci"


def test_a_hub_with_one_tool_imports_no_component() -> None:
    program = """
import asyncio, sys
from waypost import Hub
from waypost.settings import Settings
from waypost.testing import MemoryLink, TestClient, connect
hub = Hub("small", version="1")
hub.tool(lambda: "x", name="x")
async def use():
    await hub.start()
    await hub.stop()
asyncio.run(use())
rooms = {"workflows", "gateway", "search", "imports", "workers", "skills", "documents", "api", "console"}
print(sorted(m for m in sys.modules if m.startswith("waypost.") and m.split(".")[1] in rooms))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_hub_with_skills_imports_no_http_client_before_the_first_request(tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text('server: {name: small, version: "1"}\nskills: {}\n')
    program = f"""
import asyncio, sys
from waypost import Hub
hub = Hub.from_config({str(tmp_path / "waypost.yaml")!r})
async def use():
    await hub.start()
    await hub.stop()
asyncio.run(use())
print("aiohttp" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
