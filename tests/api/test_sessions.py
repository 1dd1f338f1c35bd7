"""Sessions and tasks, listed and ended by operators."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.api.conftest import AGENT, operated_hub, operating
from tests.console.conftest import browsing
from tests.protocol.conftest import asynchronous, initialization, request, stateless
from waypost.protocol.tasks import TASKS_EXTENSION

CLIENT = {"authorization": f"Bearer {AGENT}"}
TASKS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}


@asynchronous
async def test_a_session_is_listed_by_a_digest_and_ends_for_its_client() -> None:
    async with operating() as operator:
        opened = await operator.post(initialization(), CLIENT)
        session_id = opened.headers["mcp-session-id"]

        page = await operator.fetch("GET", "/api/v1/sessions")
        (row,) = page["sessions"]
        assert (row["principal"], row["era"], row["streams"], page["next"]) == ("agent", "2025-11-25", 0, None)
        assert session_id not in str(page)
        assert (await operator.fetch("GET", "/api/v1/sessions?principal=nobody"))["sessions"] == []

        ended = await operator.fetch("DELETE", f"/api/v1/sessions/{row['id']}")
        assert ended == {"id": row["id"], "status": "ended"}
        again = await operator.post(request(2, "tools/list"), {**CLIENT, "mcp-session-id": session_id})
        assert again.status == 404
        assert (await operator.refused("DELETE", f"/api/v1/sessions/{row['id']}"))[0] == 404
        entries = (await operator.fetch("GET", "/api/v1/audit?action=session.ended"))["entries"]
        assert [(one["principal"], one["capability"]) for one in entries] == [("root", row["id"])]


@asynchronous
async def test_pages_of_sessions_have_each_session_once() -> None:
    async with operating() as operator:
        for _ in range(5):
            await operator.post(initialization(), CLIENT)
        seen, cursor = [], ""
        while True:
            page = await operator.fetch("GET", f"/api/v1/sessions?limit=2{cursor}")
            seen += [row["id"] for row in page["sessions"]]
            if page["next"] is None:
                break
            cursor = f"&before={page['next']}"
        assert (len(seen), len(set(seen))) == (5, 5)
        assert (await operator.refused("GET", "/api/v1/sessions?before=x"))[0] == 400


@asynchronous
async def test_a_running_task_is_listed_and_cancelled() -> None:
    hub = operated_hub(rules=(), task_after=0.01)
    begun = asyncio.Event()

    @hub.tool(task="optional")
    async def wait() -> str:
        begun.set()
        await asyncio.sleep(60)
        return "never"

    async with operating(hub) as operator:
        call = await operator.open_modern(
            stateless(1, "tools/call", {"name": "wait", "arguments": {}}, **TASKS), CLIENT
        ).done()
        await begun.wait()
        task_id = call.json["result"]["taskId"]

        page = await operator.fetch("GET", "/api/v1/tasks?status=working&principal=agent")
        assert [(row["id"], row["status"], row["principal"]) for row in page["tasks"]] == [
            (task_id, "working", "agent")
        ]
        assert (await operator.fetch("GET", "/api/v1/tasks?status=failed"))["tasks"] == []

        cancelled = await operator.fetch("POST", f"/api/v1/tasks/{task_id}/cancel")
        assert cancelled["task"]["status"] == "cancelled"
        assert await operator.refused("POST", f"/api/v1/tasks/{task_id}/cancel") == (
            400,
            "The task has ended: it is cancelled.",
        )
        assert (await operator.refused("POST", "/api/v1/tasks/none/cancel"))[0] == 404
        entries = (await operator.fetch("GET", "/api/v1/audit?action=task.cancelled"))["entries"]
        assert [one["capability"] for one in entries] == [task_id]


@asynchronous
async def test_only_operators_end_sessions_and_cancel_tasks() -> None:
    async with operating() as operator:
        for verb, path in (("DELETE", "sessions/x"), ("POST", "tasks/x/cancel"), ("GET", "sessions"), ("GET", "tasks")):
            assert (await operator.refused(verb, f"/api/v1/{path}", key=AGENT))[0] == 403


@asynchronous
async def test_a_page_of_the_console_does_not_count_as_a_stream_of_a_client() -> None:
    async with browsing() as person:
        await (await person.visit("/console/events?kinds=sessions")).started()
        assert json.loads((await person.visit("/console/api/sessions")).body)["listening"] == 0
