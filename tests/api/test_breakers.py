"""Circuit breakers through the API: listed and reset, with an audit record."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.conftest import AGENT, operated_hub, operating
from tests.protocol.conftest import asynchronous
from waypost.settings import Breakers, Settings


@asynchronous
async def test_an_open_breaker_is_listed_and_reset() -> None:
    hub = operated_hub((), breakers=True)
    broken = True

    @hub.tool(name="flaky")
    async def flaky() -> str:
        if broken:
            raise OSError("no route to host")
        return "well"

    async with operating(hub) as operator:
        for _ in range(3):
            await operator.use("flaky")
        (breaker,) = (await operator.fetch("GET", "/api/v1/breakers"))["breakers"]
        assert (breaker["capability"], breaker["state"], breaker["failureCount"]) == ("flaky", "open", 3)
        assert "no route to host" in breaker["lastError"]

        broken = False
        assert b"Circuit open" in (await operator.use("flaky")).body
        reset = await operator.fetch("POST", "/api/v1/breakers/flaky/reset")
        assert reset == {"capability": "flaky", "state": "closed"}
        assert b"well" in (await operator.use("flaky")).body
        assert (await operator.fetch("GET", "/api/v1/breakers"))["breakers"] == []

        entries = (await operator.fetch("GET", "/api/v1/audit"))["entries"]
        assert [(one["capability"], one["principal"]) for one in entries if one.get("action") == "breaker.reset"] == [
            ("flaky", "root")
        ]


@pytest.mark.parametrize(("failures", "text"), [(1, "flaky failed once"), (2, "flaky failed 2 times in a row")])
@asynchronous
async def test_the_overview_says_how_often_a_tool_failed(failures: int, text: str) -> None:
    hub = operated_hub((), breakers=True, settings=Settings(breakers=Breakers(failures=failures)))

    @hub.tool(name="flaky")
    async def flaky() -> str:
        raise OSError("no route to host")

    async with operating(hub) as operator:
        for _ in range(failures):
            await operator.use("flaky")
        attention = (await operator.fetch("GET", "/api/v1/overview"))["attention"]
        assert [(one["need"], one["text"]) for one in attention] == [("open_breaker", text)]


@asynchronous
async def test_a_caller_whose_calls_always_time_out_stops_the_tool_for_itself_alone() -> None:
    hub = operated_hub((), breakers=True, tool_timeout=0.05)

    @hub.tool(name="render")
    async def render(pages: int) -> str:
        if pages > 1:
            await asyncio.Event().wait()
        return "rendered"

    async with operating(hub) as operator:
        for _ in range(4):
            refused = await operator.use("render", {"pages": 1000}, AGENT)
        assert b"Circuit open for render, retry in " in refused.body
        assert b"rendered" in (await operator.use("render", {"pages": 1})).body
        (breaker,) = (await operator.fetch("GET", "/api/v1/breakers"))["breakers"]
        assert (breaker["state"], breaker["callers"]) == ("open", ["agent"])
