"""What agents see of the functions of workers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, idle, in_session
from tests.workers.wire import at_work, hub_for_workers, rows, wired
from waypost.capabilities.capability import disambiguate
from waypost.errors import WaypostError
from waypost.kinds import convert
from waypost.testing import TestClient
from waypost.workers.functions import is_internal
from waypost.workers.tools import find_function_tool
from waypost.workflows import Workflow

INTERNAL = ["engine::x", "state::x", "stream::x", "iii.x", "iii::x", "mcp::x", "a2a::x", "skills::x", "prompts::x"]
ORDINARY = ["mem::observe", "skill::x", "my-worker::my-fn", "states::x", "iiix"]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def names(client: TestClient) -> set[str]:
    """The tools an agent sees."""
    return {tool["name"] for tool in await client.list_tools()}


@asynchronous
async def test_a_function_is_a_tool_with_its_schema_and_its_id_as_title() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer(
            "math::add::two", description="Adds", request_format=SCHEMA, response_format={"type": "object"}
        )
        (tool,) = [tool for tool in await client.list_tools() if tool["name"] == "math__add__two"]
        assert (tool["title"], tool["description"]) == ("math::add::two", "Adds")
        assert (tool["inputSchema"], tool["outputSchema"]) == (SCHEMA, {"type": "object"})
        called = asyncio.create_task(client.call_tool("math__add__two", {"n": 1}))
        call = await worker.serve("math::add::two", {"sum": 3})
        assert call["data"] == {"n": 1}
        assert (await called)["structuredContent"] == {"sum": 3}


@pytest.mark.parametrize("result", [None, "text", 5])
@asynchronous
async def test_a_result_that_does_not_fit_its_schema_is_a_failure(result: Any) -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer("a::b", response_format=SCHEMA)
        called = asyncio.create_task(client.call_tool("a__b"))
        await worker.serve("a::b", result)
        answer = await called
        assert answer.is_error
        assert answer.text.startswith("Tool a__b returned a result that does not fit its output schema: ")


@pytest.mark.parametrize("result", [None, "text", 5, True, [1, 2], {"a": 1}, []])
def test_a_result_of_any_type_reaches_the_agent(result: Any) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, wired(hub) as worker:
            await worker.offer("a::b")
            called = asyncio.create_task(client.call_tool("a__b"))
            await worker.serve("a::b", result)
            answer = await called
            assert not answer.is_error
            if isinstance(result, str):
                assert answer.text == result
            elif result is not None:
                assert json.loads(answer.text) == result

    scenario()


@asynchronous
async def test_invalid_arguments_and_errors_reach_the_agent() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer("a::b", request_format=SCHEMA)
        wrong = await client.call_tool("a__b", {"n": "x"})
        assert wrong.is_error
        assert "Invalid arguments for tool a__b" in wrong.text
        assert not any(message["type"] == "invokefunction" for message in worker.seen)
        called = asyncio.create_task(client.call_tool("a__b", {"n": 1}))
        call = await worker.next("invokefunction")
        error = {"code": "invocation_failed", "message": "no such account"}
        await worker.send("invocationresult", invocation_id=call["invocation_id"], function_id="a::b", error=error)
        answer = await called
        assert answer.is_error
        assert "no such account" in answer.text


@asynchronous
async def test_a_worker_that_never_answers_costs_an_agent_only_the_usual_time() -> None:
    hub = hub_for_workers(tool_timeout=0.1)
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer("a::b")
        answer = await client.call_tool("a__b")
        assert answer.is_error
        assert "timed out" in answer.text
        assert rows(hub)["unanswered"] == 0


@asynchronous
async def test_the_list_changes_once_when_a_worker_comes_and_once_when_it_goes() -> None:
    hub = hub_for_workers()
    try:
        async with in_session(hub) as peer:
            async with wired(hub) as worker:
                await worker.offer(*(f"a::f{number}" for number in range(50)))
                await peer.hears("notifications/tools/list_changed")
                await worker.settled()
                await idle()
                assert len(peer.notifications("notifications/tools/list_changed")) == 1
                await worker.introduce("another name")
                await worker.settled()
                await idle()
                assert len(peer.notifications("notifications/tools/list_changed")) == 1
                await worker.offer("a::inside", metadata={"internal": True})
                await worker.settled()
                await idle()
                assert len(peer.notifications("notifications/tools/list_changed")) == 1
            await peer.hears("notifications/tools/list_changed", 2)
            await idle()
            assert len(peer.notifications("notifications/tools/list_changed")) == 2
    finally:
        await hub.stop()


@asynchronous
async def test_plumbing_is_neither_listed_nor_callable_by_agents_but_by_workers() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker, wired(hub) as caller:
        await worker.offer(*INTERNAL, *ORDINARY)
        listed = await names(client)
        assert {name.replace("::", "__") for name in ORDINARY} <= listed
        assert not any(is_internal(name) or is_internal(name.replace("__", "::")) for name in listed)
        for name in [*INTERNAL, "engine::functions::list", "state::get", "engine::channels::create"]:
            for spelled in (name, name.replace("::", "__")):
                with pytest.raises(WaypostError, match="Unknown tool"):
                    await client.call_tool(spelled, {})
        for name in INTERNAL:
            asked = await caller.ask(name)
            await worker.serve(name, "for workers")
            assert (await caller.next("invocationresult", invocation_id=asked))["result"] == "for workers"


@asynchronous
async def test_names_that_clash_get_suffixes_and_lead_to_their_own_functions() -> None:
    hub = hub_for_workers()

    @hub.tool(name="c__d")
    async def mine() -> str:
        """A tool of the hub."""
        return "the hub's"

    async with at_work(hub) as client, wired(hub) as worker:
        ids = ["a__b::c", "a::b::c", "a::b__c", "c::d"]
        await worker.offer(*ids)
        tools = {tool.get("title", tool["name"]): tool["name"] for tool in await client.list_tools()}
        assert len({tools[one] for one in ids}) == len(ids)
        assert tools["a::b::c"] == "a__b__c"
        assert tools["c::d"] == disambiguate("default/c::d", "c__d")
        for one in ids:
            called = asyncio.create_task(client.call_tool(tools[one]))
            await worker.serve(one, one)
            assert (await called).text == one
            tool = find_function_tool(hub.registry, one)
            assert tool is not None
            assert tool.id == tools[one]
        assert (await client.call_tool("c__d")).text == "the hub's"
        assert find_function_tool(hub.registry, "c__d") is None
        assert find_function_tool(hub.registry, "no::such") is None


@asynchronous
async def test_an_id_with_unusual_characters_becomes_a_valid_tool_name() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker:
        ids = ["with space::x", "ünïcode::é", "slash/es::x", "a" * 300, "::", "x::y(z)"]
        await worker.offer(*ids, "")
        listed = {tool.get("title", tool["name"]): tool["name"] for tool in await client.list_tools()}
        for one in ids:
            called = asyncio.create_task(client.call_tool(listed[one]))
            await worker.serve(one, "found")
            assert (await called).text == "found"
        assert rows(hub)["functions"] == len(ids)


@asynchronous
async def test_a_function_that_calls_itself_internal_is_not_listed() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer("a::inside", metadata={"internal": True})
        await worker.offer("a::outside", metadata={"internal": "yes"})
        listed = await names(client)
        assert "a__inside" not in listed
        assert "a__outside" in listed


@asynchronous
async def test_a_workflow_calls_a_function_by_its_id_under_any_tool_name() -> None:
    hub = hub_for_workers()

    @hub.tool(name="mail__send")
    async def mine() -> str:
        """A tool that has the name already."""
        return "not this one"

    executor = {"kind": "worker", "function": "mail::send", "arguments": {"to": "a"}}
    states = {"ready": {"transitions": {"send": {"target": "sent", "executor": executor}}}, "sent": {"terminal": True}}
    hub.workflow("sending", convert({"initialState": "ready", "states": states}, Workflow))
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer("mail::send")
        started = await client.call_tool("workflow.start", {"definitionId": "sending", "input": {}})
        (link,) = started["structuredContent"]["links"]
        submitted = asyncio.create_task(client.call_tool(link["method"], link["args"]))
        call = await worker.serve("mail::send", {"sent": True})
        assert call["data"] == {"to": "a"}
        assert call["metadata"]["idempotencyKey"]
        assert (await submitted)["structuredContent"]["state"] == "sent"


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": "none"}, {"type": "nonsense"}, {"$ref": "#/nowhere"}, [], 5, True]
)
def test_a_function_with_an_unusable_schema_can_be_called(schema: Any) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, wired(hub) as worker:
            await worker.offer("a::b", request_format=schema, response_format=schema)
            (tool,) = [tool for tool in await client.list_tools() if tool["name"] == "a__b"]
            assert tool["inputSchema"]["type"] == "object"
            assert isinstance(tool["inputSchema"].get("properties", {}), dict)
            called = asyncio.create_task(client.call_tool("a__b", {"anything": 1}))
            await worker.serve("a::b", {"x": 1})
            assert not (await called).is_error

    scenario()
