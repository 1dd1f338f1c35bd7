import asyncio
from typing import Any

import msgspec
import pytest

from tests.protocol.busy import ABLE, WITHOUT_TASKS, accepted, busy_hub, reached, refusal, served
from tests.protocol.conftest import Json, asynchronous, until
from waypost import Hub
from waypost.capabilities.principals import Principal
from waypost.protocol import task_methods
from waypost.protocol.tasks import RELATED_TASK, TASKS_EXTENSION
from waypost.stores.database import Query
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25, V2026_07_28

MODERN = ("tasks/get", "tasks/update", "tasks/cancel")
LEGACY = ("tasks/get", "tasks/result", "tasks/cancel")


async def session_task(client: TestClient, tool: str, **task: Any) -> str:
    """The id of a task that a session started."""
    created = await client.request("tools/call", {"name": tool, "task": task})
    task_id: str = created["task"]["taskId"]
    return task_id


@asynchronous
async def test_each_version_declares_tasks_in_its_own_form() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25):
        declared = hub.engine.profile.capabilities(V2025_11_25)
        assert declared["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert "extensions" not in declared
    async with served(hub) as client:
        declared = (await client.request("server/discover"))["capabilities"]
        assert declared["extensions"] == {TASKS_EXTENSION: {}}
        assert "tasks" not in declared
    for version in WITHOUT_TASKS:
        assert not {"tasks", "extensions"} & set(hub.engine.profile.capabilities(version))


@pytest.mark.parametrize("method", MODERN)
def test_a_client_without_the_extension_is_refused_before_the_id_is_checked(method: str) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, V2026_07_28, capabilities={"elicitation": {}}) as client:
            error = await refusal(client.request(method, {"taskId": "never"}))
            assert error.code == -32021
            assert error.data == {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "version"),
    [*((method, V2026_07_28) for method in MODERN), *((method, V2025_11_25) for method in LEGACY)],
)
def test_another_principals_task_is_refused_like_an_unknown_one(method: str, version: str) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, version, capabilities=ABLE) as client:
            foreign = (await hub.engine.tasks.start(Principal("somebody else"), version)).record.id
            for task_id in (foreign, "never"):
                error = await refusal(client.request(method, {"taskId": task_id}))
                assert (error.code, str(error), error.data) == (-32602, f"There is no task {task_id}.", None)
            assert (await hub.engine.tasks.find(foreign, Principal("somebody else"))).status == "working"

    asyncio.run(run())


def record_reads(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Record every read of the store from now on: the query, its number of values and its number of rows."""
    reads: list[tuple[str, int, int]] = []
    genuine = hub.store.database.read

    async def read(query: Query, *given: Any) -> Any:
        rows = await genuine(query, *given)
        reads.append((query.sqlite, len(given), len(rows)))
        return rows

    monkeypatch.setattr(hub.store.database, "read", read)
    return reads


@pytest.mark.parametrize(
    ("method", "version"),
    [*((method, V2026_07_28) for method in MODERN), *((method, V2025_11_25) for method in LEGACY)],
)
def test_another_principals_task_causes_the_same_reads_as_an_unknown_one(
    method: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, version, capabilities=ABLE) as client:
            runs = (await hub.engine.tasks.start(Principal("somebody else"), version)).record
            ended = msgspec.structs.replace(runs, id="ended", holder="", status="completed", result={}, version=0)
            lost = msgspec.structs.replace(runs, id="lost", holder="gone", version=0)
            for record in (ended, lost):
                await hub.store.tasks.save(record)
            reads = record_reads(hub, monkeypatch)
            work = []
            for task_id in ("never", runs.id, ended.id, lost.id):
                await refusal(client.request(method, {"taskId": task_id}))
                work.append(tuple(reads))
                reads.clear()
            assert len(work[0]) == 1
            assert set(work) == {work[0]}

    asyncio.run(run())


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_stateless_clients_have_no_task_methods_of_sessions(method: str) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub) as client:
            assert (await refusal(client.request(method, {"taskId": "never"}))).code == -32601

    asyncio.run(run())


@pytest.mark.parametrize("version", WITHOUT_TASKS)
def test_older_sessions_have_no_tasks(version: str) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, version) as client:
            for method in (*LEGACY, "tasks/list"):
                assert (await refusal(client.request(method, {"taskId": "never"}))).code == -32601

    asyncio.run(run())


@asynchronous
async def test_sessions_cannot_update_a_task() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        assert (await refusal(client.request("tasks/update", {"taskId": "never"}))).code == -32601


@asynchronous
async def test_a_hub_without_task_tools_has_no_methods_about_tasks() -> None:
    hub = Hub("plain", version="1")
    async with served(hub) as client:
        for method in MODERN:
            assert (await refusal(client.request(method, {"taskId": "never"}))).code == -32601
        assert "extensions" not in (await client.request("server/discover"))["capabilities"]


@asynchronous
async def test_cancelling_is_acknowledged_without_a_task_also_after_its_end() -> None:
    hub, _ = busy_hub()
    async with served(hub) as client:
        for tool, end in (("wait", "cancelled"), ("job", "completed")):
            task_id = (await client.call_tool(tool))["taskId"]
            if tool == "job":
                await reached(client, task_id, end)
            for _ in range(2):
                ack = await client.request("tasks/cancel", {"taskId": task_id})
                assert ack["resultType"] == "complete"
                assert set(ack) <= {"resultType", "_meta"}
                await reached(client, task_id, end)


@pytest.mark.parametrize("responses", [None, 5, [], "x", {}])
def test_an_update_without_a_matching_answer_is_acknowledged(responses: Any) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub) as client:
            task_id = (await client.call_tool("pair"))["taskId"]
            before = await reached(client, task_id, "input_required")
            ack = await client.request("tasks/update", {"taskId": task_id, "inputResponses": responses})
            assert set(ack) <= {"resultType", "_meta"}
            after = await client.request("tasks/get", {"taskId": task_id})
            assert set(before["inputRequests"]) <= set(after["inputRequests"])

    asyncio.run(run())


@asynchronous
async def test_a_listen_stream_gets_the_status_of_the_tasks_it_names_and_may_see() -> None:
    hub, work = busy_hub()
    async with served(hub) as client:
        mine = (await client.call_tool("pair"))["taskId"]
        other = (await client.call_tool("wait"))["taskId"]
        foreign = (await hub.engine.tasks.start(Principal("somebody else"), V2026_07_28)).record.id
        asked = await reached(client, mine, "input_required")
        async with client.listen(taskIds=[mine, foreign, "never"]) as honoured:
            assert honoured["taskIds"] == [mine]
            work.gate.set()
            await reached(client, other, "completed")
            responses = {key: accepted(name=key) for key in ("a-1", "b-2")}
            assert set(asked["inputRequests"]) <= set(responses)
            await client.request("tasks/update", {"taskId": mine, "inputResponses": responses})
            note = await client.assert_notification("tasks", taskId=mine, status="completed")
            assert note["params"]["result"]["content"][0]["text"] == "{'name': 'a-1'} {'name': 'b-2'}"
            assert "io.modelcontextprotocol/subscriptionId" in note["params"]["_meta"]
            await client.refute_notification("tasks", taskId=other)
        await until(lambda: not hub.engine.tasks._watchers)


@asynchronous
async def test_listening_to_tasks_needs_the_extension() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2026_07_28) as client:
        error = await refusal(client.request("subscriptions/listen", {"notifications": {"taskIds": ["never"]}}))
        assert error.code == -32021


@asynchronous
async def test_tasks_result_waits_for_the_result_and_names_the_task() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        task_id = await session_task(client, "wait")
        waiting = asyncio.ensure_future(client.request("tasks/result", {"taskId": task_id}))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        work.gate.set()
        for result in (await waiting, await client.request("tasks/result", {"taskId": task_id})):
            assert result.text == "through"
            assert result["_meta"][RELATED_TASK] == {"taskId": task_id}
            assert "resultType" not in result


@asynchronous
async def test_a_session_can_get_the_error_of_a_task_repeatedly() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        task_id = await session_task(client, "refused")
        for _ in range(2):
            error = await refusal(client.request("tasks/result", {"taskId": task_id}))
            assert (error.code, str(error), error.data) == (-32602, "bad", {"why": "because"})
        assert (await client.request("tasks/get", {"taskId": task_id}))["status"] == "failed"


@asynchronous
async def test_a_tool_that_fails_is_a_failed_task_with_a_result_for_a_session() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        task_id = await session_task(client, "broken")
        result = await client.request("tasks/result", {"taskId": task_id})
        assert (result.is_error, result.text) == (True, "no")
        task = await client.request("tasks/get", {"taskId": task_id})
        assert task["status"] == "failed"
        assert not {"result", "error"} & set(task)


@asynchronous
async def test_a_session_gets_the_cancelled_task_and_cannot_cancel_it_twice() -> None:
    hub, work = busy_hub()
    async with served(hub, V2025_11_25) as client:
        task_id = await session_task(client, "wait")
        waiting = asyncio.ensure_future(client.request("tasks/result", {"taskId": task_id}))
        await until(lambda: work.started == 1)
        await asyncio.sleep(0.02)  # so that the request most likely waits by now; it is answered either way
        task = await client.request("tasks/cancel", {"taskId": task_id})
        assert (task["taskId"], task["status"]) == (task_id, "cancelled")
        assert (await refusal(waiting)).code == -32000
        assert work.stopped == 1
        error = await refusal(client.request("tasks/cancel", {"taskId": task_id}))
        assert (error.code, str(error)) == (-32602, "The task has ended already: cancelled.")
        await client.assert_notification("tasks/status", status="cancelled")
        await client.refute_notification("tasks/status")


@asynchronous
async def test_a_session_cannot_cancel_a_task_that_failed() -> None:
    hub, _ = busy_hub()
    async with served(hub, V2025_11_25) as client:
        task_id = await session_task(client, "broken")
        await reached(client, task_id, "failed")
        error = await refusal(client.request("tasks/cancel", {"taskId": task_id}))
        assert (error.code, str(error)) == (-32602, "The task has ended already: failed.")


def test_a_session_lists_its_tasks_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_methods, "_PAGE_SIZE", 2)

    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, V2025_11_25) as client:
            started = [await session_task(client, "job") for _ in range(5)]
            await hub.engine.tasks.start(Principal("somebody else"), V2025_11_25)
            listed: list[str] = []
            given: Json = {}
            while True:
                page = await client.request("tasks/list", given)
                assert len(page["tasks"]) <= 2
                listed += [task["taskId"] for task in page["tasks"]]
                if "nextCursor" not in page:
                    break
                given = {"cursor": page["nextCursor"]}
            assert sorted(started) == listed
            assert (await refusal(client.request("tasks/list", {"cursor": "made up"}))).code == -32602

    asyncio.run(run())


@pytest.mark.parametrize(("asked", "given"), [({}, 3_600_000), ({"ttl": 1}, 1000), ({"ttl": 10**12}, 3_600_000)])
def test_a_session_gets_the_ttl_of_its_task(asked: Json, given: int) -> None:
    async def run() -> None:
        hub, _ = busy_hub()
        async with served(hub, V2025_11_25) as client:
            now = hub.store.now()
            hub.store.database.now = lambda: now  # type: ignore[method-assign]  # or a ttl of 1 s may end first
            task_id = await session_task(client, "job", **asked)
            assert (await client.request("tasks/get", {"taskId": task_id}))["ttl"] == given

    asyncio.run(run())


@asynchronous
async def test_tasks_are_kept_in_the_store_a_hub_is_given() -> None:
    store = Store(SqliteDatabase())
    hub, _ = busy_hub(store=store)
    async with served(hub) as client:
        task_id = (await client.call_tool("job"))["taskId"]
        await reached(client, task_id, "completed")
        kept = await store.tasks.load(task_id)
        assert kept is not None
        assert kept.status == "completed"
    later, _ = busy_hub(store=store)
    async with served(later) as client:
        assert (await client.request("tasks/get", {"taskId": task_id}))["status"] == "completed"


@asynchronous
async def test_a_session_can_read_a_task_started_by_a_stateless_client() -> None:
    hub, _ = busy_hub()
    async with served(hub) as client, connect(hub, V2025_11_25) as session:
        task_id = (await client.call_tool("broken"))["taskId"]
        await reached(client, task_id, "completed")
        result = await session.request("tasks/result", {"taskId": task_id})
        assert (result.text, "resultType" in result) == ("no", False)
        assert (await session.request("tasks/get", {"taskId": task_id}))["status"] == "failed"
