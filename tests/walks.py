"""Counts the functions and files of `src/waypost` that one action walks through: `python -m tests.walks` prints them.

A walk is what a reader has to follow to understand an action. Comprehensions and lambdas count as part of the function
around them; what runs in other threads is not counted, nor what long-lived tasks of the hub do at the same time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from msgspec.structs import replace

from waypost import Hub
from waypost.capabilities.context import Context
from waypost.protocol.connection import Connection
from waypost.wire.definitions import ToolDefinition

SOURCE = str(Path(__file__).parents[1] / "src" / "waypost")
_INNER = ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
WALKING: ContextVar[bool] = ContextVar("WALKING", default=False)
"""Set for the action and for the tasks that it starts."""

ADDER = """
from waypost import Hub

hub = Hub("adder", version="1")


@hub.tool
async def add(a: int, b: int) -> int:
    return a + b


hub.run({arguments})
"""
FLOW = """
server: {name: walks, version: "1", surface: both}
workflows: {flow: {initialState: a, states: {a: {transitions: {go: {target: b}}}, b: {terminal: true}}}}
"""


class Walk:
    """The functions of the package that were called, in the order of their first call."""

    def __init__(self, *, everywhere: bool = False) -> None:
        self.codes: dict[CodeType, None] = {}
        self._everywhere = everywhere
        """Whether what runs in other contexts counts too, such as what a connection receives."""

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        is_part = self._everywhere or WALKING.get()
        if event == "call" and is_part and code.co_filename.startswith(SOURCE) and code.co_name not in _INNER:
            self.codes[code] = None

    @property
    def functions(self) -> int:
        return len(self.codes)

    @property
    def files(self) -> int:
        return len({code.co_filename for code in self.codes})

    def __str__(self) -> str:
        lines = [
            f"  {code.co_filename.removeprefix(SOURCE + '/')}:{code.co_firstlineno} {code.co_qualname}"
            for code in self.codes
        ]
        return "\n".join([f"{self.functions} functions in {self.files} files", *lines])


async def walk(action: Callable[[], Awaitable[Any]], *, everywhere: bool = False) -> Walk:
    """Trace an action; it should have run before, so that nothing is counted that happens once."""
    traced = Walk(everywhere=everywhere)
    gc.collect()
    gc.disable()  # a collection would count the finalizers of objects that other tests left behind
    token = WALKING.set(True)
    sys.setprofile(traced)
    try:
        await action()
    finally:
        sys.setprofile(None)
        WALKING.reset(token)
        gc.enable()
    return traced


class Peer:
    """A stateless client at the protocol's edge, so that a walk has nothing of a client or a socket in it."""

    def __init__(self, hub: Hub) -> None:
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._connection = Connection(hub.engine, self._answers.put_nowait)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "walks", "version": "1"},
        }
        params = {"name": name, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        self._connection.receive(json.dumps(message).encode())
        return json.loads(await self._answers.get())["result"]


async def walk_tool_call() -> Walk:
    """A `tools/call` of a plain tool."""
    hub = Hub("walks", version="1")

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    await hub.start()
    peer = Peer(hub)
    for _ in range(2):
        await peer.call("add", {"a": 1, "b": 2})
    traced = await walk(lambda: peer.call("add", {"a": 1, "b": 2}))
    await hub.stop()
    return traced


async def configured(folder: Path) -> Hub:
    (folder / "waypost.yaml").write_text(FLOW)
    return Hub.from_config(folder / "waypost.yaml")


async def walk_submit() -> Walk:
    """A `workflow.submit` without executor."""
    with tempfile.TemporaryDirectory() as folder:
        hub = await configured(Path(folder))
        await hub.start()
        peer = Peer(hub)

        async def start() -> dict[str, Any]:
            started: dict[str, Any] = (await peer.call("workflow.start", {"definitionId": "flow", "input": {}}))[
                "structuredContent"
            ]
            return {"workflowId": started["workflowId"], "expectedVersion": 1, "transition": "go", "arguments": {}}

        await peer.call("workflow.submit", await start())
        submitted = await start()
        traced = await walk(lambda: peer.call("workflow.submit", submitted))
        await hub.stop()
    return traced


async def walk_start() -> Walk:
    """The start of a configured hub."""
    with tempfile.TemporaryDirectory() as folder:
        hub = await configured(Path(folder))
        _ = hub.runtime
        await hub.start()
        await hub.stop()
        traced = await walk(hub.start)
        await hub.stop()
    return traced


async def walk_reload() -> Walk:
    """A reload in which nothing has changed."""
    with tempfile.TemporaryDirectory() as folder:
        hub = await configured(Path(folder))
        await hub.start()
        await hub.reload()
        traced = await walk(hub.reload)
        await hub.stop()
    return traced


TOOL = """
from waypost import tool


@tool
def {name}() -> str:
    \"\"\"Say hello.\"\"\"
    return "hello"
"""


async def walk_changed_tool() -> Walk:
    """A reload in which one tool of a toolkit file has another name."""
    with tempfile.TemporaryDirectory() as folder:

        def write(file: str, text: str) -> Path:
            path = Path(folder, file)
            path.write_text(text)
            return path

        write("tools.py", TOOL.format(name="hello"))
        hub = Hub.from_config(write("waypost.yaml", FLOW + "toolkits: [./tools.py]\n"))
        await hub.start()
        write("tools.py", TOOL.format(name="greet"))
        await hub.reload()
        for number in range(10):
            write("tools.py", TOOL.format(name=f"hello_{number}"))
            traced = await walk(hub.reload)
            assert f"hello_{number}" in hub.registry.tools
            if any(code.co_name == "_replace" for code in traced.codes):
                break  # otherwise the watcher of the file was faster, and this reload found nothing to do
        else:
            raise AssertionError("the watcher was faster each time")
        await hub.stop()
    return traced


async def walk_upstream_call(transport: str) -> Walk:
    """A call of an imported tool, from its handler, which the pipeline calls, to the server and back.

    The server is a process of its own. What it answers is read in the context of the connection, so everything counts
    that runs meanwhile: the shortest of several walks is the one in which nothing else ran.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "adder.py"
        program.write_text(ADDER.format(arguments="" if transport == "stdio" else '"http", port=0'))
        child: asyncio.subprocess.Process | None = None
        connection: dict[str, Any] = {"kind": "mcp", "command": sys.executable, "args": [str(program)]}
        connection["env"] = {"PYTHONPATH": str(Path(SOURCE).parent)}
        if transport == "http":
            environment = {**os.environ, **connection["env"]}
            child = await asyncio.create_subprocess_exec(
                sys.executable, str(program), stderr=asyncio.subprocess.PIPE, env=environment
            )
            assert child.stderr is not None
            line = ""
            while "http://" not in line:
                line = (await child.stderr.readline()).decode()
            connection = {"kind": "mcp", "url": re.findall(r"http://[^ ,;]+", line)[0]}
        settings = {
            "server": {"name": "walks", "version": "1", "surface": "full"},
            "connections": {"up": connection},
            "proxy": {"import": [{"connection": "up"}]},
            "audit": {"sink": "none"},
        }
        (Path(folder) / "waypost.yaml").write_text(json.dumps(settings))
        hub = Hub.from_config(Path(folder) / "waypost.yaml")
        await hub.start()
        try:
            assert hub.runtime.imports is not None
            await hub.runtime.imports.wait_until_listed()
            row = hub.registry.tool("up.add")
            contexts: list[Context] = []

            async def call(arguments: dict[str, Any], ctx: Context) -> Any:
                contexts.append(ctx)
                return await row.handler(arguments, ctx)

            hub.registry.add([replace(row, id="add", handler=call, definition=ToolDefinition("add"))])
            peer = Peer(hub)
            assert (await peer.call("add", {"a": 1, "b": 2}))["structuredContent"] == {"result": 3}
            walks = [await walk(lambda: row.handler({"a": 1, "b": 2}, contexts[0]), everywhere=True) for _ in range(5)]
        finally:
            await hub.stop()
            if child is not None:
                child.terminate()
                await child.communicate()
    return min(walks, key=lambda one: (one.functions, one.files))


WALKS: dict[str, Callable[[], Awaitable[Walk]]] = {
    "tools/call": walk_tool_call,
    "workflow.submit": walk_submit,
    "start": walk_start,
    "reload": walk_reload,
    "upstream call over stdio": partial(walk_upstream_call, "stdio"),
    "upstream call over http": partial(walk_upstream_call, "http"),
    "reload, one tool changed": walk_changed_tool,
}

if __name__ == "__main__":
    for name, measure in WALKS.items():
        sys.stdout.write(f"{name}: {asyncio.run(measure())}\n\n")  # type: ignore[arg-type]  # every walk is a coroutine
