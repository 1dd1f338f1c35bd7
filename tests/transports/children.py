"""A hub on the standard streams of another process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.protocol.conftest import Json, RequestId, assert_on_the_wire, initialization, notification, request

SERVED = Path(__file__).with_name("served.py")
PROMPTLY = 60.0


class Child:
    """A hub on the standard streams of another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[Any] = []

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send(self, *messages: Json) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def read(self) -> Json:
        """The next line, which is a message."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line.endswith(b"\n"), f"the process left: {line!r}"
        message: Json = json.loads(line)
        assert_on_the_wire(message)
        self.lines.append(message)
        return message

    async def response(self, request_id: RequestId | None) -> Json:
        """Read messages until the response to a request."""
        while True:
            message = await self.read()
            if "method" not in message and message["id"] == request_id:
                return message

    async def ask(self, message: Json) -> Json:
        self.send(message)
        return await self.response(message["id"])

    async def leave(self) -> None:
        """Close the input, and check that the process ends promptly."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(PROMPTLY):
            await self.process.wait()


@asynccontextmanager
async def child(*options: str) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SERVED),
        "stdio",
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=16 * 1024 * 1024,
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.communicate()


@asynccontextmanager
async def session(*options: str) -> AsyncIterator[Child]:
    async with child(*options) as hub:
        assert "result" in await hub.ask(initialization())
        hub.send(notification("notifications/initialized"))
        yield hub


def call(request_id: RequestId, tool: str, **arguments: Any) -> Json:
    return request(request_id, "tools/call", {"name": tool, "arguments": arguments})


def text(response: Json) -> str:
    value: str = response["result"]["content"][0]["text"]
    return value


async def finished(stdin: int, stdout: int) -> tuple[int, bytes]:
    """The exit status and the standard error of a hub whose streams are not pipes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVED), "stdio", stdin=stdin, stdout=stdout, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PROMPTLY):
        _, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, errors
