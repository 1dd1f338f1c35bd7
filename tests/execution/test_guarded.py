"""The pipeline with a guard, in whole hubs: breakers, slots and a full audit, as clients see them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.policy.issuer import Clock
from tests.protocol.conftest import Peer, asynchronous, cancelled, idle, in_session, request, until
from waypost import Context, Hub, ToolError
from waypost.errors import StoreUnavailable
from waypost.execution.breakers import Breakers
from waypost.policy import audit as audits
from waypost.policy.rules import Rule
from waypost.settings import Breakers as Settings
from waypost.testing import connect

OPEN = "Circuit open for fragile, retry in 300 s"


class Fragile:
    """A hub with a tool that fails as the test says, and breakers with a clock of the test."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.runs = 0
        self.hub = Hub("h", version="1", breakers=True, tool_timeout=0.05, **options)
        self.hub.guard.breakers = Breakers(Settings(pause_ms=300_000), clock=self.clock)
        self.hub.tool(self.fragile)

    async def fragile(self, how: str, ctx: Context) -> str:
        """Break in one way or another."""
        self.runs += 1
        match how:
            case "crash":
                raise OSError("no route")
            case "trip":
                raise KeyError("no such order")
            case "exit":
                raise SystemExit(1)
            case "hang":
                await asyncio.Event().wait()
            case "tell":
                raise ToolError("not today")
            case "want":
                ctx.require("web_read")
            case "ask":
                await ctx.elicit("Sure?", {"sure": "boolean"})
            case "call":
                await ctx.invoke("nobody")
            case "keep":
                raise StoreUnavailable("The store is locked; try again later.")
        return "well"

    def state(self) -> object:
        assert self.hub.guard.breakers is not None
        states = self.hub.guard.breakers.states()
        return states["fragile"].state if states else None


def call(number: int, how: Any = "work") -> dict[str, Any]:
    return request(number, "tools/call", {"name": "fragile", "arguments": {"how": how}})


async def texts(peer: Peer, *hows: Any) -> list[str]:
    """The text of each call in turn."""
    said = []
    for how in hows:
        response = await peer.ask(call(len(peer.received) + 100, how))
        said.append(response["error"]["message"] if "error" in response else response["result"]["content"][0]["text"])
    return said


def shares(hub: Hub) -> Mapping[str, object]:
    return hub.core.pipeline.slots._running


@asynchronous
async def test_a_tool_that_crashed_three_times_is_not_called_for_five_minutes() -> None:
    it = Fragile()
    async with in_session(it.hub) as peer:
        await texts(peer, "crash", "crash", "crash")
        result = await peer.result(call(1))
        it.clock.now += 299.5
        almost = await peer.result(call(2))

    assert result == {"content": [{"type": "text", "text": OPEN}], "isError": True}
    assert almost["content"][0]["text"] == "Circuit open for fragile, retry in 1 s"
    assert it.runs == 3


@pytest.mark.parametrize("how", ["crash", "exit", "hang"])
@asynchronous
async def test_crashes_exits_and_timeouts_count(how: str) -> None:
    it = Fragile()
    async with in_session(it.hub) as peer:
        await texts(peer, how, how, how)
        assert await texts(peer, "work") == [OPEN]


@pytest.mark.parametrize("how", ["tell", 5, "call", "keep"])
@asynchronous
async def test_errors_reported_by_a_tool_and_invalid_arguments_do_not_count(how: Any) -> None:
    it = Fragile()
    async with in_session(it.hub) as peer:
        await texts(peer, *[how] * 5)
        assert await texts(peer, "work") == ["well"]
    assert it.state() is None


@asynchronous
async def test_denials_do_not_count() -> None:
    it = Fragile()
    async with in_session(it.hub) as peer:
        it.hub.guard.policy.replace([Rule(name="no", type="allow_list", config={"allow": []})])
        await texts(peer, *["work"] * 5)
        it.hub.guard.policy.replace([])
        assert await texts(peer, "work") == ["well"]
    assert it.state() is None


@asynchronous
async def test_a_permission_denied_to_a_running_tool_does_not_count() -> None:
    rule = Rule(name="no", type="permission_override", config={"permission": "web_read"})
    it = Fragile(policies=[rule])
    async with in_session(it.hub) as peer:
        said = await texts(peer, *["want"] * 4)
    assert len(set(said)) == 1, said
    assert "permission" in said[0]
    assert it.state() is None


@asynchronous
async def test_cancellations_do_not_count() -> None:
    it = Fragile()
    it.hub.core.pipeline.timeout = 30.0
    async with in_session(it.hub) as peer:
        for number in range(4):
            peer.send(call(number, "hang"))
            await until(lambda: it.runs == number + 1)  # noqa: B023
            peer.send(cancelled(number))
        await idle()
        assert await texts(peer, "work") == ["well"]
    assert it.state() is None


@asynchronous
async def test_questions_to_the_client_do_not_count_as_failures() -> None:
    it = Fragile(max_running=1)
    async with connect(it.hub, elicitation=lambda _: {"action": "accept", "content": {"sure": True}}) as client:
        for _ in range(4):
            result = await client.call_tool("fragile", {"how": "ask"})
            assert result["content"][0]["text"] == "well"
    assert it.state() is None
    assert shares(it.hub) == {}


@asynchronous
async def test_after_the_pause_one_call_probes_while_others_are_refused() -> None:
    it = Fragile()
    it.hub.core.pipeline.timeout = 30.0
    async with in_session(it.hub) as peer:
        await texts(peer, "crash", "crash", "crash")
        it.clock.now += 300
        peer.send(call(1, "hang"))
        await until(lambda: it.runs == 4)
        assert await texts(peer, "work", "work") == ["Circuit open for fragile, retry in 1 s"] * 2
        peer.send(cancelled(1))
        await idle()
        assert await texts(peer, "work", "work") == ["well", "well"]
    assert it.state() is None


@asynchronous
async def test_a_failed_probe_opens_the_circuit_again() -> None:
    it = Fragile()
    async with in_session(it.hub) as peer:
        await texts(peer, "crash", "crash", "crash")
        it.clock.now += 300
        said = await texts(peer, "crash", "work")
    assert said == ["Tool crashed: OSError: no route", OPEN]


@asynchronous
async def test_a_prompt_with_the_name_of_a_tool_does_not_use_its_circuit() -> None:
    it = Fragile()

    async def warn() -> str:  # on the loop: starting a thread may take longer than the timeout of this hub
        return "Be careful."

    it.hub.prompt(warn, name="fragile")
    async with in_session(it.hub) as peer:
        await texts(peer, "crash", "crash", "crash")
        await peer.result(request(1, "prompts/get", {"name": "fragile"}))
        it.clock.now += 300
        await peer.result(request(2, "prompts/get", {"name": "fragile"}))
        assert await texts(peer, "work") == ["well"], "the prompt was not the one who tries"


@asynchronous
async def test_without_breakers_a_tool_is_called_after_any_number_of_crashes() -> None:
    it = Fragile()
    it.hub.guard.breakers = None
    async with in_session(it.hub) as peer:
        await texts(peer, "crash", "crash", "crash")
        assert await texts(peer, "work") == ["well"]


class Crowd:
    """A hub with a limit of concurrent calls, and a tool that waits for an event."""

    def __init__(self, most: int = 1, hub: Hub | None = None, **options: Any) -> None:
        self.hub = hub or Hub("h", version="1", max_running=most, **options)
        self.running: list[int] = []
        self.order: list[int] = []
        self.go = asyncio.Event()

        @self.hub.tool
        async def hold(number: int) -> int:
            """Wait to be let go."""
            self.running.append(number)
            self.order.append(number)
            try:
                await self.go.wait()
            finally:
                self.running.remove(number)
            return number

        @self.hub.tool
        async def outer(ctx: Context) -> str:
            """Call another tool."""
            return (await ctx.invoke("inner")).text

        @self.hub.tool
        async def inner() -> str:
            """Be called."""
            return "inside"


def hold(number: int) -> dict[str, Any]:
    return request(number, "tools/call", {"name": "hold", "arguments": {"number": number}})


@asynchronous
async def test_calls_beyond_the_limit_run_in_order() -> None:
    crowd = Crowd(2)
    async with in_session(crowd.hub) as peer:
        for number in range(6):
            peer.send(hold(number))
        await until(lambda: len(crowd.running) == 2)
        await idle()
        assert crowd.running == [0, 1]
        crowd.go.set()
        for number in range(6):
            await peer.response(number)
    assert crowd.order == [0, 1, 2, 3, 4, 5]
    assert shares(crowd.hub) == {}


@asynchronous
async def test_a_hub_without_settings_has_the_documented_limits() -> None:
    crowd = Crowd(hub=Hub("h", version="1"))
    async with in_session(crowd.hub) as peer:
        for number in range(70):
            peer.send(hold(number))
        await until(lambda: len(crowd.running) == 64)
        await idle()
        assert len(crowd.running) == 64
        crowd.go.set()
        for number in range(70):
            await peer.response(number)
    assert crowd.order == list(range(70))
    assert crowd.hub.core.pipeline.slots._waiting.limit == 10_000


@asynchronous
async def test_a_call_cancelled_in_the_queue_never_runs_and_does_not_block_it() -> None:
    crowd = Crowd(1)
    async with in_session(crowd.hub) as peer:
        for number in range(3):
            peer.send(hold(number))
        await until(lambda: crowd.running == [0])
        await idle()
        peer.send(cancelled(1))
        await idle()
        crowd.go.set()
        await peer.response(2)
    assert crowd.order == [0, 2]
    assert shares(crowd.hub) == {}


@asynchronous
async def test_a_nested_call_does_not_wait_for_the_slot_of_its_caller() -> None:
    crowd = Crowd(1, tool_timeout=30.0)
    async with in_session(crowd.hub) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "outer", "arguments": {}}))
    assert result["content"][0]["text"] == "inside"
    assert shares(crowd.hub) == {}


@asynchronous
async def test_a_full_queue_refuses_a_call_with_the_name_of_the_limit() -> None:
    crowd = Crowd(1)
    crowd.hub.core.pipeline.slots._waiting.limit = 1
    async with in_session(crowd.hub) as peer:
        for number in range(2):
            peer.send(hold(number))
        await until(lambda: crowd.running == [0])
        await idle()
        result = await peer.result(hold(2))
        crowd.go.set()
        await peer.response(1)
    assert result["isError"]
    assert result["content"][0]["text"] == "Busy: 1 executions are waiting already (maxWaiting); try again later."
    assert shares(crowd.hub) == {}


@asynchronous
async def test_crashes_denials_and_open_circuits_release_their_slots() -> None:
    it = Fragile(max_running=1)
    async with in_session(it.hub) as peer:
        await texts(peer, "crash", "hang", 5, "tell", "exit", "crash", "work")
        it.hub.guard.policy.replace([Rule(name="no", type="allow_list", config={"allow": []})])
        await texts(peer, "work")
    assert shares(it.hub) == {}


@asynchronous
async def test_a_call_is_refused_when_it_cannot_be_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "MAX_WAITING_RECORDS", 0)
    it = Fragile(audit="store", max_running=1)
    it.hub.prompt(lambda: "Be careful.", name="careful")
    async with in_session(it.hub) as peer:
        result = await peer.result(call(1))
        error = await peer.error(request(2, "prompts/get", {"name": "careful"}))
    sentence = "The audit cannot be written, and no call runs without its record; try again later."
    assert result == {"content": [{"type": "text", "text": sentence}], "isError": True}
    assert (error["code"], error["message"]) == (-32000, sentence)
    assert it.runs == 0


@asynchronous
async def test_a_tool_that_fails_on_its_arguments_does_not_open_the_breaker() -> None:
    it = Fragile()
    async with in_session(it.hub) as peer:
        await texts(peer, "trip", "trip", "trip", "trip")
        assert await texts(peer, "work") == ["well"]
