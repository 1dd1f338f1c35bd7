"""Handlers that raise a `BaseException`: the caller gets an error, and no other call is affected."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.errors import RemoteError
from waypost.testing import connect

VERSIONS = ["2025-11-25", "2026-07-28"]


class Panic(BaseException):
    """A `BaseException` as an extension module may raise it."""


class Mute(Exception):
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def panicking() -> Hub:
    hub = Hub("h", version="1", breakers=True, audit="none")

    @hub.tool
    def panic() -> None:
        """Panic in a thread."""
        raise Panic("out of luck")

    @hub.tool
    async def panic_here() -> None:
        """Panic on the loop."""
        raise Panic("out of luck")

    @hub.tool
    async def mute() -> None:
        """Fail without a word."""
        raise Mute

    @hub.resource("sea://storm")
    def storm() -> str:
        """Panic while being read."""
        raise Panic("out of luck")

    @hub.prompt
    def alarm() -> str:
        """Panic while being written."""
        raise Panic("out of luck")

    return hub


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("tool", "answer"),
    [("panic", "Panic: out of luck"), ("panic_here", "Panic: out of luck"), ("mute", "Mute: ")],
)
@asynchronous
async def test_a_tool_that_panics_is_reported_as_crashed(tool: str, answer: str, version: str) -> None:
    async with connect(panicking(), version, patience=60) as client:
        result = await client.call_tool(tool)

    assert result["isError"]
    assert result["content"][0]["text"] == f"Tool crashed: {answer}"


@pytest.mark.parametrize("version", VERSIONS)
@asynchronous
async def test_resources_and_prompts_that_panic_are_reported_as_failed(version: str) -> None:
    async with connect(panicking(), version, patience=60) as client:
        with pytest.raises(RemoteError, match="Internal error"):
            await client.read_resource("sea://storm")
        with pytest.raises(RemoteError, match="Internal error"):
            await client.get_prompt("alarm")


@asynchronous
async def test_panics_open_circuits_as_crashes_do() -> None:
    async with connect(panicking(), patience=60) as client:
        for _ in range(3):
            await client.call_tool("panic_here")
        result = await client.call_tool("panic_here")

    assert result["content"][0]["text"].startswith("Circuit open for panic_here")
