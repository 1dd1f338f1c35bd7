"""Calls of stateless clients that become tasks."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.protocol.busy import ABLE, QUICKLY, accepted, busy_hub, reached, refusal, served
from tests.protocol.conftest import asynchronous, cancelled, connected, stateless, until
from waypost import Context
from waypost.capabilities.questions import Question
from waypost.errors import CapabilityNotSupported
from waypost.protocol.task_methods import TaskAsker
from waypost.protocol.tasks import RELATED_TASK, TASKS_EXTENSION
from waypost.testing import connect
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import V2025_11_25


@asynchronous
async def test_a_quick_call_of_an_optional_task_is_answered_directly() -> None:
    hub, _ = busy_hub(task_after=60)
    async with served(hub) as client:
        result = await client.call_tool("quick")
        assert (result["resultType"], result.text) == ("complete", "quick")
        assert "taskId" not in result


@asynchronous
async def test_a_long_call_of_an_optional_task_becomes_a_task() -> None:
    hub, work = busy_hub()
    async with served(hub) as client:
        created = await client.call_tool("wait")
        assert (created["resultType"], created["status"]) == ("task", "working")
        assert not {"content", "result", "error", "inputRequests", "requestState", "task"} & set(created)
        assert (await client.request("tasks/get", {"taskId": created["taskId"]}))["status"] == "working"
        work.gate.set()
        task = await reached(client, created["taskId"], "completed")
        assert task["resultType"] == "complete"
        assert task["result"]["content"] == [{"type": "text", "text": "through"}]
        assert RELATED_TASK not in task["result"].get("_meta", {})
        assert work.started == 1


@asynchronous
async def test_a_quick_call_of_a_required_task_is_a_task() -> None:
    hub, _ = busy_hub()
    async with served(hub) as client:
        created = await client.call_tool("job")
        assert created["resultType"] == "task"
        task = await reached(client, created["taskId"], "completed")
        assert task["result"]["content"][0]["text"] == "done"


@asynchronous
async def test_a_failing_tool_completes_its_task_and_a_failing_request_fails_it() -> None:
    hub, _ = busy_hub()
    async with served(hub) as client:
        task = await reached(client, (await client.call_tool("broken"))["taskId"], "completed", "failed")
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        task = await reached(client, (await client.call_tool("refused"))["taskId"], "completed", "failed")
        assert (task["status"], task["statusMessage"]) == ("failed", "bad")
        assert task["error"] == {"code": -32602, "message": "bad", "data": {"why": "because"}}
        assert "result" not in task


@asynchronous
async def test_without_the_extension_an_optional_task_is_a_plain_call_and_a_required_one_is_refused() -> None:
    hub, work = busy_hub()
    async with served(hub, capabilities={}) as client:
        asyncio.get_running_loop().call_later(3 * QUICKLY, work.gate.set)
        result = await client.call_tool("wait")
        assert (result["resultType"], result.text) == ("complete", "through")
        error = await refusal(client.call_tool("job"))
        assert error.code == -32021
        assert error.data == {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}


@pytest.mark.parametrize("task", [{"ttl": 1000, "pollInterval": 5}, {"ttl": "long"}, "task", None])
@asynchronous
async def test_a_stateless_client_cannot_ask_for_a_task(task: Any) -> None:
    hub, _ = busy_hub()
    async with served(hub) as client:
        result = await client.request("tools/call", {"name": "plain", "task": task})
        assert (result["resultType"], result.text) == ("complete", "plain")


@pytest.mark.parametrize(
    "declared", [None, 5, True, [], [TASKS_EXTENSION], TASKS_EXTENSION, {}, {TASKS_EXTENSION: None}], ids=str
)
@asynchronous
async def test_only_an_object_with_the_extension_declares_tasks(declared: Any) -> None:
    hub, _ = busy_hub(task_after=0)
    meta = {CLIENT_CAPABILITIES: {"extensions": declared}}
    async with served(hub) as client:
        result = await client.request("tools/call", {"name": "quick"}, meta=meta)
        assert (result["resultType"], result.text) == ("complete", "quick")
        for method, given in (("tools/call", {"name": "job"}), ("tasks/get", {"taskId": "x"})):
            error = await refusal(client.request(method, given, meta=meta))
            assert (error.code, error.data) == (-32021, {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}})


@asynchronous
async def test_questions_inside_a_task_are_answered_one_by_one() -> None:
    hub, _ = busy_hub()
    async with served(hub) as client:
        task_id = (await client.call_tool("pair"))["taskId"]
        await until(lambda: len(hub.engine.tasks._running[task_id].record.input_requests) == 2)
        asked = (await reached(client, task_id, "input_required"))["inputRequests"]
        assert list(asked) == ["a-1", "b-2"]
        assert {one["method"] for one in asked.values()} == {"elicitation/create"}
        assert asked["b-2"]["params"]["message"] == "B?"

        async def update(**responses: Any) -> None:
            keyed = {key.replace("_", "-"): value for key, value in responses.items()}
            ack = await client.request("tasks/update", {"taskId": task_id, "inputResponses": keyed})
            assert set(ack) <= {"resultType", "_meta"}

        await update(unknown={"ignored": True})
        await update(b_2=accepted(name="B"), c_3=17)
        rest = await client.request("tasks/get", {"taskId": task_id})
        assert (rest["status"], list(rest["inputRequests"])) == ("input_required", ["a-1"])
        await update(b_2=accepted(name="again"))
        await update(a_1=accepted(name="A"))
        result = (await reached(client, task_id, "completed"))["result"]
        assert result["content"][0]["text"] == "{'name': 'A'} {'name': 'B'}"
        await update(a_1=accepted(name="late"))


@asynchronous
async def test_questions_before_there_is_a_task_are_asked_in_rounds() -> None:
    hub, work = busy_hub(task_after=60)
    async with served(hub) as client:
        first = await client.call_tool("ask_then_wait")
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
        # Only now, because a call that is slow to ask becomes a task first.
        settings = hub.engine.settings
        hub.engine.settings = replace(settings, server=replace(settings.server, task_after_ms=int(1000 * QUICKLY)))
        again = {"name": "ask_then_wait", "arguments": {}, "inputResponses": {"who": accepted(name="Ada")}}
        created = await client.request("tools/call", {**again, "requestState": first["requestState"]})
        assert created["resultType"] == "task"
        assert not {"requestState", "inputRequests"} & set(created)
        work.gate.set()
        result = (await reached(client, created["taskId"], "completed"))["result"]
        assert result["content"][0]["text"] == "through with {'name': 'Ada'}"


@asynchronous
async def test_a_task_of_a_client_that_cannot_be_asked_does_not_wait_for_an_answer() -> None:
    hub, _ = busy_hub()
    async with served(hub, capabilities={"extensions": {TASKS_EXTENSION: {}}}) as client:
        task = await reached(client, (await client.call_tool("pair"))["taskId"], "completed", "failed")
        assert task["status"] == "failed"
        assert task["error"]["code"] == -32021


@asynchronous
async def test_cancelling_a_task_stops_its_work() -> None:
    hub, work = busy_hub()
    async with served(hub) as client:
        task_id = (await client.call_tool("wait"))["taskId"]
        await client.request("tasks/cancel", {"taskId": task_id})
        assert "result" not in await reached(client, task_id, "cancelled")
        await until(lambda: work.stopped == 1)


@asynchronous
async def test_cancelling_a_call_before_there_is_a_task_stops_the_work() -> None:
    hub, work = busy_hub(task_after=60)
    async with connected(hub) as peer:
        peer.send(stateless(1, "tools/call", {"name": "wait", "arguments": {}}, **{CLIENT_CAPABILITIES: ABLE}))
        await until(lambda: work.started == 1)
        peer.send(cancelled(1))
        await until(lambda: work.stopped == 1)
        assert not hub.engine.tasks._running


@asynchronous
async def test_a_client_that_disconnects_before_there_is_a_task_stops_the_work() -> None:
    hub, work = busy_hub(task_after=60)
    async with connected(hub) as peer:
        peer.send(stateless(1, "tools/call", {"name": "wait", "arguments": {}}, **{CLIENT_CAPABILITIES: ABLE}))
        await until(lambda: work.started == 1)
        await peer.connection.close()
        await until(lambda: work.stopped == 1)


@asynchronous
async def test_a_task_continues_when_its_client_disconnects() -> None:
    hub, work = busy_hub()
    async with served(hub) as other:
        async with connect(hub, capabilities=ABLE) as client:
            task_id = (await client.call_tool("wait"))["taskId"]
        assert work.stopped == 0
        work.gate.set()
        assert (await reached(other, task_id, "completed"))["result"]["content"][0]["text"] == "through"


@asynchronous
async def test_the_timeout_of_the_tool_applies_to_a_task_and_that_of_the_hub_does_not() -> None:
    # A task at once, so that the timeout of the hub does not end the call before.
    hub, work = busy_hub(task_after=0, tool_timeout=2 * QUICKLY)

    @hub.tool(task="required", timeout=QUICKLY)
    async def short() -> str:
        """Take too long."""
        await work.gate.wait()
        return "through"

    async with served(hub) as client:
        patient = (await client.call_tool("wait"))["taskId"]
        task = await reached(client, (await client.call_tool("short"))["taskId"], "completed")
        assert (task["result"]["isError"], task["result"]["content"][0]["text"]) == (True, "Tool execution timed out")
        await asyncio.sleep(3 * QUICKLY)
        work.gate.set()
        assert "isError" not in (await reached(client, patient, "completed"))["result"]


@asynchronous
async def test_progress_of_a_task_is_sent_to_a_session_and_not_to_a_stateless_client() -> None:
    hub, work = busy_hub()

    @hub.tool(task="optional")
    async def chatty(ctx: Context) -> str:
        """Say how far it is before and after it became a task."""
        await ctx.progress(1, 2)
        await work.gate.wait()
        await ctx.progress(2, 2)
        return "said"

    async with served(hub) as client:
        task_id = (await client.call_with_progress("chatty"))["taskId"]
        work.gate.set()
        await reached(client, task_id, "completed")
        await client.assert_progress(1)
    work.gate.clear()
    async with served(hub, V2025_11_25) as client:
        await client.request("tools/call", {"name": "chatty", "task": {}}, meta={"progressToken": "far"})
        work.gate.set()
        await client.assert_progress(1, 2)


@asynchronous
async def test_stopping_the_hub_stops_its_tasks() -> None:
    hub, work = busy_hub()
    async with served(hub) as client:
        await client.call_tool("wait")
    assert work.stopped == 1


@asynchronous
async def test_too_many_tasks_are_refused_and_the_work_of_the_refused_is_stopped() -> None:
    hub, work = busy_hub(max_tasks=1)
    async with served(hub) as client:
        await client.call_tool("wait")
        for tool in ("job", "wait"):
            error = await refusal(client.call_tool(tool))
            assert "1 tasks are running already (maxTasks)" in str(error)
        await until(lambda: work.stopped == 1)
    assert (work.started, work.stopped) == (2, 2)


@asynchronous
async def test_a_question_in_a_task_without_a_client_is_refused() -> None:
    asker = TaskAsker(None)
    with pytest.raises(CapabilityNotSupported):
        await asker.ask(Question("elicitation/create", {}, {"elicitation": {}}, None, 300.0))

    async def two() -> int:
        return 2

    assert [await asker.once("a", lambda: 1), await asker.once("b", two)] == [1, 2]
