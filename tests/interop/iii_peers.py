"""Workers with the SDKs of the iii project, each in its own process and controlled by a test."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.cli.shell import environment
from tests.interop.npm import HERE, install, node

Json: TypeAlias = dict[str, Any]
Language: TypeAlias = Literal["python", "node"]

LANGUAGES: tuple[Language, ...] = ("python", "node")
LONGEST_LINE = 256 * 1024 * 1024


class Failed(Exception):
    """A command to a worker did not work; carries the SDK's code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Peer:
    """A worker, and its events so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[Json] = []
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(lambda _: self._news.set())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            if "event" in message:
                self.events.append(message)
                self._news.set()
                continue
            future = self._answers.pop(message["number"])
            if future.done():
                continue
            if "error" in message:
                future.set_exception(Failed(**message["error"]))
            else:
                future.set_result(message["ok"])
        for future in self._answers.values():
            if not future.done():
                future.set_exception(Failed("gone", "the worker ended"))

    async def send_command(self, op: str, **given: Any) -> Any:
        """Send a command and return its result, or raise `Failed`."""
        assert self.process.stdin is not None
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"number": number, "op": op, **given}).encode() + b"\n")
        return await future

    async def offer(self, function: str, behaviour: str = "echo", **more: Any) -> None:
        """Register a function of the worker."""
        await self.send_command("function", id=function, behaviour=behaviour, **more)

    async def call(self, function: str, payload: Any = None, **more: Any) -> Any:
        """Call a function from the worker."""
        return await self.send_command("trigger", request={"function_id": function, "payload": payload, **more})

    async def call_until_found(self, function: str, payload: Any = None, **more: Any) -> Any:
        """Call a function from the worker, and retry until it exists."""
        while True:
            try:
                return await self.call(function, payload, **more)
            except Failed as failed:
                if failed.code != "function_not_found":
                    raise
            await asyncio.sleep(0.02)

    async def bind(self, binding: str, kind: str, function: str, config: Any = None, **more: Any) -> None:
        """Bind a function to a trigger."""
        request = {"type": kind, "function_id": function, "config": config or {}, **more}
        await self.send_command("bind", id=binding, request=request)

    async def wait_for_event(self, event: str, **fields: Any) -> Json:
        """Wait for the first event with these fields and remove it."""
        while True:
            for message in self.events:
                if message["event"] == event and all(message.get(key) == value for key, value in fields.items()):
                    self.events.remove(message)
                    return message
            assert not self._reading.done(), f"the worker ended and did not say {event}: {self.events}"
            self._news.clear()
            await self._news.wait()

    async def logged_errors(self) -> list[str]:
        """The errors that its SDK logged."""
        return [line for line in await self.send_command("logs") if line.startswith("ERROR")]

    async def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        """Close its input and wait for its end."""
        assert self.process.stdin is not None
        if self.process.returncode is None:
            self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), 60)
            except TimeoutError:
                await self.kill()
        await self._reading


def command(language: Language) -> list[str]:
    """The command line of a worker; skips the test if the SDK is not available."""
    if language == "python":
        return [sys.executable, str(HERE / "iii_python.py")]
    install()
    return [node(), str(HERE / "iii_node.mjs")]


@asynccontextmanager
async def peer(
    language: Language, address: str, home: Path, options: Json | None = None, *, is_accepted: bool = True, **env: str
) -> AsyncIterator[Peer]:
    """A worker that is connected, unless the hub refuses it."""
    given = [] if options is None else [json.dumps(options)]
    process = await asyncio.create_subprocess_exec(
        *command(language),
        address,
        *given,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE,
        env=environment(HOME=str(home), **env),
    )
    worker = Peer(process)
    try:
        if is_accepted:
            await worker.wait_for_event("ready")
        yield worker
    finally:
        await worker.end()
