"""Schemas and arguments that are small and would stop a hub: it answers, and goes on with its other work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from tests.capabilities.schemas.hostile import (
    EXPRESSION,
    MUTUAL_EXPRESSION,
    doubling,
    expression,
    many_patterns,
    unevaluated,
)
from tests.gateway.importers import Turncoat, imports_of, names, running, tool, write
from tests.protocol.conftest import asynchronous
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost import Hub
from waypost.testing import connect

CEILING = 5.0
"""Seconds that no step may take, on a busy machine; without limits, these attacks take minutes or all memory."""


@asynccontextmanager
async def ticking() -> AsyncIterator[None]:
    """Fail if the event loop stood still for long."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, perf_counter() - before)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        yield
        await asyncio.sleep(0.02)
    finally:
        ticker.cancel()
    assert longest < CEILING


@pytest.mark.parametrize("schema", [EXPRESSION, MUTUAL_EXPRESSION], ids=["one union", "a union at each operand"])
@pytest.mark.parametrize("levels", [12, 16, 55])
@asynchronous
async def test_a_wrong_leaf_deep_in_a_recursive_union_is_answered_at_once(
    schema: dict[str, Any], levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A garbage collection of a large test process counts as processor time of the search.
    monkeypatch.setattr("waypost.capabilities.schemas.problems.MAX_PROBLEM_SECONDS", CEILING)
    hub = Hub("hub", version="1.0.0")

    @hub.tool(input_schema=schema)
    async def evaluate(args: dict[str, Any]) -> str:
        return "evaluated"

    async with connect(hub) as client, ticking():
        wrong = await client.call_tool("evaluate", expression(levels))
        right = await client.call_tool("evaluate", expression(levels, 1))
    await hub.stop()

    assert wrong.is_error
    assert wrong.text == (
        f'Invalid arguments for tool evaluate: expression{".left" * levels}.value: must be of type integer, got "wrong"'
    )
    assert right.text == "evaluated"


@pytest.mark.parametrize(
    ("schema", "limit"),
    [
        (doubling(24), "more than 500000 checks"),
        (doubling(18, "allOf"), "more than 500000 checks"),
        (unevaluated(25), "more than 500000 checks"),
        (many_patterns(2000), "more than 40000 positions"),
    ],
    ids=["references", "all references", "unevaluated", "patterns"],
)
@asynchronous
async def test_the_schema_of_a_worker_that_multiplies_is_not_used_and_the_limit_is_named(
    schema: dict[str, Any], limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker, ticking():
        await worker.offer("a::b", request_format=schema, response_format=schema)
        called = asyncio.create_task(client.call_tool("a__b", {"a": 1}))
        await worker.serve("a::b", {"a": 1})
        answer = await called
        [offered] = [one for one in await client.list_tools() if one["name"] == "a__b"]

    assert not answer.is_error
    assert offered["inputSchema"] == {"type": "object"}
    assert "outputSchema" not in offered
    [warning] = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
    assert "a::b" in warning
    assert limit in warning


@asynchronous
async def test_a_tool_of_another_server_whose_schema_multiplies_is_left_out(tmp_path: Path) -> None:
    bombs: dict[str, Any] = {"bomb": {"inputSchema": doubling(24)}, "late_bomb": {"outputSchema": unevaluated(25)}}
    server = Turncoat(tmp_path, tool("fine"), *(tool(name, **more) for name, more in bombs.items()))
    file = write(tmp_path, {"t": server.connection}, [{"connection": "t", "trust": "off"}])
    async with running(file) as (hub, client), ticking():
        seen = await names(client)
        left = {row.tool: row.why for row in imports_of(hub).get_row("t").left_out}

    assert "t.fine" in seen
    assert not {f"t.{name}" for name in bombs} & set(seen)
    assert all("more than 500000 checks" in left[name] for name in bombs)


@asynchronous
async def test_arguments_that_would_take_too_long_to_check_are_refused() -> None:
    hub = Hub("hub", version="1.0.0")

    @hub.tool(input_schema={"type": "object", "properties": {"text": {"pattern": "^[01]*1[01]{1000}x$"}}})
    async def match(args: dict[str, Any]) -> str:
        return "matched"

    async with connect(hub) as client, ticking():
        answer = await client.call_tool("match", {"text": "01" * 500_000})
    await hub.stop()

    assert answer.is_error
    assert answer.text.startswith("Invalid arguments for tool match: is too large to be checked: ")


@asynchronous
async def test_a_wrong_argument_is_not_repeated_at_length() -> None:
    hub = Hub("hub", version="1.0.0")
    choices = [f"choice {number}" for number in range(10_000)]

    @hub.tool(input_schema={"type": "object", "properties": {"names": {"items": {"enum": choices}}}})
    async def choose(args: dict[str, Any]) -> str:
        return "chosen"

    async with connect(hub) as client, ticking():
        answer = await client.call_tool("choose", {"names": ["x" * 1000] * 3000})
    await hub.stop()

    assert answer.is_error
    assert answer.text.startswith('Invalid arguments for tool choose: names[0]: must be one of "choice 0", "choice 1"')
    assert len(answer.text) < 20_000
