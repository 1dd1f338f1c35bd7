import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.protocol.conftest import Json, asynchronous, cancelled, connected, idle, stateless, until
from waypost import Context, Hub, InvalidParams, RemoteError, ToolError
from waypost.capabilities.asking import Question
from waypost.errors import CapabilityNotSupported
from waypost.protocol import tasks
from waypost.protocol.task_calls import TaskAsker
from waypost.protocol.task_views import RELATED_TASK, TASKS_EXTENSION
from waypost.testing import TestClient, connect
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import ALL, V2025_11_25, is_modern

ABLE: Json = {"extensions": {TASKS_EXTENSION: {}}, "elicitation": {}}
FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}}
QUICKLY = 0.1
WITHOUT_TASKS = [version for version in ALL if not is_modern(version) and version != V2025_11_25]


def accepted(**content: Any) -> Json:
    return {"action": "accept", "content": content}


class Work:
    """What the tools of a hub did."""

    def __init__(self) -> None:
        self.started = 0
        self.stopped = 0
        self.gate = asyncio.Event()


def busy_hub(**options: Any) -> tuple[Hub, Work]:
    hub = Hub("busy", version="1", **{"task_after": QUICKLY, **options})
    work = Work()

    @hub.tool(task="optional")
    async def wait() -> str:
        """Wait until the gate opens."""
        work.started += 1
        try:
            await work.gate.wait()
        except asyncio.CancelledError:
            work.stopped += 1
            raise
        return "through"

    @hub.tool(task="optional")
    async def quick() -> str:
        """Be done at once."""
        return "quick"

    @hub.tool(task="required")
    async def job() -> str:
        """Be a task, however quick."""
        return "done"

    @hub.tool(task="required")
    async def broken() -> str:
        """Fail as a tool does."""
        raise ToolError("no")

    @hub.tool(task="required")
    async def refused() -> str:
        """Fail as a request does."""
        raise InvalidParams("bad", {"why": "because"})

    @hub.tool
    async def plain() -> str:
        """Never be a task."""
        return "plain"

    @hub.tool(task="required")
    async def pair(ctx: Context) -> str:
        """Ask two things at once."""
        both = await asyncio.gather(ctx.elicit("A?", FORM, key="a"), ctx.elicit("B?", FORM, key="b"))
        return " ".join(str(answer.content) for answer in both)

    @hub.tool(task="optional")
    async def ask_then_wait(ctx: Context) -> str:
        """Ask, then take long."""
        answer = await ctx.elicit("Who?", FORM, key="who")
        await work.gate.wait()
        return f"through with {answer.content}"

    return hub, work


@asynccontextmanager
async def served(hub: Hub, version: str | None = None, **options: Any) -> AsyncIterator[TestClient]:
    """A client of a hub that is stopped at the end; without a version, one that knows what tasks are."""
    given: Json = {"capabilities": ABLE, **options} if version is None else {"version": version, **options}
    try:
        async with connect(hub, **given) as client:
            yield client
    finally:
        await hub.stop()


async def reached(client: TestClient, task_id: str, *states: str) -> Json:
    """The task once it is in one of these states."""
    async with asyncio.timeout(5):
        while True:
            task = await client.request("tasks/get", {"taskId": task_id})
            if task["status"] in states:
                return task
            await asyncio.sleep(0.01)


async def refusal(request: Awaitable[Any]) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await request
    return caught.value


@asynchronous
async def test_a_quick_call_of_an_optional_task_is_answered_as_ever() -> None:
    hub, _ = busy_hub(task_after=5)
    async with served(hub) as client:
        result = await client.call_tool("quick")
        assert (result["resultType"], result.text) == ("complete", "quick")
        assert "taskId" not in result


@asynchronous
async def test_a_long_call_of_an_optional_task_goes_on_as_a_task() -> None:
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
async def test_a_required_task_is_one_however_quick() -> None:
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


@asynchronous
async def test_a_stateless_client_cannot_ask_for_a_task() -> None:
    hub, _ = busy_hub()
    async with served(hub) as client:
        result = await client.request("tools/call", {"name": "plain", "task": {"ttl": 1000, "pollInterval": 5}})
        assert (result["resultType"], result.text) == ("complete", "plain")


@asynchronous
async def test_questions_inside_a_task_are_answered_one_by_one() -> None:
    hub, _ = busy_hub()
    async with served(hub) as client:
        task_id = (await client.call_tool("pair"))["taskId"]
        await until(lambda: len(hub.engine.tasks._live[task_id].record.input_requests) == 2)
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
async def test_what_is_asked_before_there_is_a_task_is_asked_in_rounds() -> None:
    hub, work = busy_hub()
    async with served(hub) as client:
        first = await client.call_tool("ask_then_wait")
        assert first["resultType"] == "input_required"
        assert "taskId" not in first
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
async def test_a_client_that_gives_up_before_there_is_a_task_stops_the_work() -> None:
    hub, work = busy_hub(task_after=60)
    async with connected(hub) as peer:
        peer.send(stateless(1, "tools/call", {"name": "wait", "arguments": {}}, **{CLIENT_CAPABILITIES: ABLE}))
        await until(lambda: work.started == 1)
        peer.send(cancelled(1))
        await until(lambda: work.stopped == 1)
        assert not hub.engine.tasks._live


@asynchronous
async def test_a_client_that_disconnects_before_there_is_a_task_stops_the_work() -> None:
    hub, work = busy_hub(task_after=60)
    async with connected(hub) as peer:
        peer.send(stateless(1, "tools/call", {"name": "wait", "arguments": {}}, **{CLIENT_CAPABILITIES: ABLE}))
        await until(lambda: work.started == 1)
        await peer.connection.close()
        await until(lambda: work.stopped == 1)


@asynchronous
async def test_a_task_goes_on_when_its_client_disconnects() -> None:
    hub, work = busy_hub()
    async with connect(hub, capabilities=ABLE) as client:
        task_id = (await client.call_tool("wait"))["taskId"]
    async with served(hub) as other:
        assert work.stopped == 0
        work.gate.set()
        assert (await reached(other, task_id, "completed"))["result"]["content"][0]["text"] == "through"


@asynchronous
async def test_the_deadline_of_the_tool_holds_for_a_task_and_that_of_the_hub_does_not() -> None:
    hub, work = busy_hub(tool_timeout=2 * QUICKLY)

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
async def test_what_a_task_says_on_its_way_reaches_a_session_and_not_a_stateless_client() -> None:
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


def test_too_many_tasks_are_refused_and_the_work_of_the_refused_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_MOST_RUNNING", 1)

    async def run() -> None:
        hub, work = busy_hub()
        async with served(hub) as client:
            await client.call_tool("wait")
            for tool in ("job", "wait"):
                error = await refusal(client.call_tool(tool))
                assert "1 tasks are running already" in str(error)
            await until(lambda: work.stopped == 1)
        assert (work.started, work.stopped) == (2, 2)

    asyncio.run(run())


@asynchronous
async def test_a_session_gets_a_task_when_it_asks_for_one() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        created = await client.request("tools/call", {"name": "wait", "task": {"ttl": 5000}})
        task = created["task"]
        assert (task["status"], task["ttl"], set(created) - {"_meta"}) == ("working", 5000, {"task"})
        assert "ttlMs" not in task
        work.gate.set()
        assert (await reached(client, task["taskId"], "completed"))["taskId"] == task["taskId"]


@asynchronous
async def test_a_session_that_asks_for_none_gets_none_however_long_it_takes() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        asyncio.get_running_loop().call_later(3 * QUICKLY, work.gate.set)
        assert (await client.call_tool("wait")).text == "through"


@asynchronous
async def test_a_session_must_ask_for_a_required_task_and_must_not_for_a_forbidden_one() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        error = await refusal(client.call_tool("job"))
        assert (error.code, str(error)) == (-32601, "Tool job only runs as a task; call it with params.task.")
        error = await refusal(client.request("tools/call", {"name": "plain", "task": {}}))
        assert (error.code, str(error)) == (
            -32601,
            "Tool plain does not run as a task; call it without params.task.",
        )
        error = await refusal(client.request("tools/call", {"name": "nothing", "task": {}}))
        assert error.code == -32602


@asynchronous
async def test_a_hub_without_task_tools_ignores_the_wish_for_a_task() -> None:
    hub = Hub("plain", version="1")

    @hub.tool
    async def plain() -> str:
        """Never be a task."""
        return "plain"

    async with served(hub, V2025_11_25) as client:
        assert (await client.request("tools/call", {"name": "plain", "task": {"ttl": 5}})).text == "plain"
        assert (await refusal(client.request("tasks/list"))).code == -32601


@pytest.mark.parametrize("version", WITHOUT_TASKS)
def test_versions_without_tasks_just_call(version: str) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, version) as client:
            assert (await client.call_tool("job")).text == "done"
            assert (await client.request("tools/call", {"name": "quick", "task": {}})).text == "quick"
            assert "execution" not in str(await client.list_tools())

    asyncio.run(run())


@asynchronous
async def test_only_the_version_with_task_support_lists_it() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        listed = {tool["name"]: tool.get("execution") for tool in await client.list_tools()}
    assert listed["wait"] == {"taskSupport": "optional"}
    assert listed["job"] == {"taskSupport": "required"}
    assert listed["plain"] in (None, {"taskSupport": "forbidden"})
    async with served(hub) as client:
        assert not any("execution" in tool for tool in await client.list_tools())


@asynchronous
async def test_a_task_of_a_session_asks_with_requests_that_name_it() -> None:
    asked: list[Json] = []

    def answer(params: Json) -> Json:
        asked.append(params)
        return accepted(name=params["message"])

    hub, _ = busy_hub()
    async with served(hub, V2025_11_25, elicitation=answer) as client:
        task_id = (await client.request("tools/call", {"name": "pair", "task": {}}))["task"]["taskId"]
        result = await client.request("tasks/result", {"taskId": task_id})
        assert result.text == "{'name': 'A?'} {'name': 'B?'}"
    assert [params["_meta"] for params in asked] == 2 * [{RELATED_TASK: {"taskId": task_id}}]


@asynchronous
async def test_a_session_is_told_how_its_task_stands() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        task_id = (await client.request("tools/call", {"name": "wait", "task": {}}))["task"]["taskId"]
        work.gate.set()
        note = await client.assert_notification("tasks/status", taskId=task_id, status="completed")
        assert {"createdAt", "lastUpdatedAt", "ttl", "pollInterval"} <= set(note["params"])
        await client.request("tools/call", {"name": "broken", "task": {}})
        await client.assert_notification("tasks/status", status="failed")
        await idle()
        assert not hub.engine.tasks._watchers


@asynchronous
async def test_nobody_else_is_told_how_a_task_stands() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client, connect(hub, V2025_11_25) as other:
        await client.request("tools/call", {"name": "wait", "task": {}})
        work.gate.set()
        await client.assert_notification("tasks/status", status="completed")
        await other.refute_notification("tasks/status")


@asynchronous
async def test_a_call_that_nobody_can_be_asked_in_says_what_it_needs() -> None:
    asker = TaskAsker(None)
    with pytest.raises(CapabilityNotSupported):
        await asker.ask(Question("elicitation/create", {}, {"elicitation": {}}, None, 300.0))

    async def two() -> int:
        return 2

    assert [await asker.once("a", lambda: 1), await asker.once("b", two)] == [1, 2]
