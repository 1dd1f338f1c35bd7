"""Workflows, instances and settings as resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, OPERATOR, STRANGER, Bench, bench, flow
from tests.workflows.stepping import Stepping, play, stepping
from waypost import Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.errors import RemoteError, ToolError

FLOW = flow({"open": {"transitions": {"close": {"target": "done"}}}, "done": {"terminal": True}}, title="A flow")
SECRETS = {
    "auth": {"anonymous": True, "keys": [{"id": "ci", "hash": f"sha256:{'5' * 64}"}]},
    "connections": {
        "wiki": {"kind": "mcp", "url": "https://me:hunter2hunter@wiki.example/mcp", "headers": {"X-Pass": "hunter2"}},
        "box": {"kind": "mcp", "command": "box", "args": ["--pass", "hunter2"], "env": {"BOX": "hunter2"}},
    },
    "skills": {"dynamic": "./skills", "searxng": "http://me:hunter2hunter@search.example"},
}


async def read(desk: Stepping | Bench, uri: str) -> Any:
    answer = await desk.client.request("resources/read", {"uri": uri})
    (contents,) = answer["contents"]
    assert contents["mimeType"] == "application/json"
    return json.loads(contents["text"])


async def refusal(desk: Stepping | Bench, uri: str) -> tuple[int, str]:
    with pytest.raises(RemoteError) as refused:
        await desk.client.request("resources/read", {"uri": uri})
    return refused.value.code, refused.value.message


@asynchronous
async def test_there_are_templates_for_workflows_runs_and_settings(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one")]) as desk:
        answer = await desk.client.request("resources/templates/list")

    assert {one["uriTemplate"]: one["mimeType"] for one in answer["resourceTemplates"]} == {
        "waypost://config/{key}": "application/json",
        "waypost://runs/{id}": "application/json",
        "waypost://workflows/{id}": "application/json",
    }


@asynchronous
async def test_a_hub_without_a_file_has_no_settings_to_read() -> None:
    async with bench(FLOW) as desk:
        answer = await desk.client.request("resources/templates/list")
        listed = {one["uriTemplate"] for one in answer["resourceTemplates"]}

    assert listed == {"waypost://runs/{id}", "waypost://workflows/{id}"}


def test_a_hub_without_workflows_has_no_resource_templates() -> None:
    hub = Hub("bare", version="1")

    assert hub.workflows.by_name == {}
    assert hub.expand("resource_templates") == []


@asynchronous
async def test_workflows_are_read_as_a_list_and_by_name(tmp_path: Path) -> None:
    steps = [play("one", adds="1", routes={"default": 2}), play("two")]
    async with stepping(tmp_path, steps, description="Walks.") as desk:
        await desk.hub.workflows.stored.duplicate("walk")
        listed = await read(desk, "waypost://workflows/list")
        whole = await read(desk, "waypost://workflows/walk")
        spaced = await read(desk, "waypost://workflows/walk%20%28copy%29")

    summary = {"id": "walk", "name": "walk", "title": "walk", "description": "Walks.", "enabled": True}
    copied = {**summary, "id": "walk (copy)", "name": "walk (copy)", "title": "walk (copy)", "enabled": False}
    assert listed == [summary, copied]
    assert summary.items() <= whole.items()
    assert [(step["position"], step["name"], step["skill"]) for step in whole["steps"]] == [
        (1, "one", "play"),
        (2, "two", "play"),
    ]
    assert whole["steps"][0]["routes"] == [{"branch": "default", "goto": 2}]
    assert spaced["name"] == "walk (copy)"


@asynchronous
async def test_a_workflow_is_shown_without_its_secrets() -> None:
    executor = {"kind": "rest", "connection": "api", "path": "/", "headers": {"Authorization": "hunter2"}}
    steps = [{"capability": "work", "config": {"api_key": "hunter2", "depth": 2}}]
    states = flow({"a": {"transitions": {"go": {"target": "b", "executor": executor}}}, "b": {"terminal": True}})
    async with bench(states, walk={"steps": steps}) as desk:
        shown = [await read(desk, f"waypost://workflows/{name}") for name in ("flow", "walk")]

    assert "hunter2" not in json.dumps(shown)
    assert shown[1]["steps"][0]["config"] == {"api_key": "[REDACTED]", "depth": 2}


@asynchronous
async def test_a_run_is_read_with_its_result_and_its_steps(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1"), play("two", crash="boom")]) as desk:
        answer = await desk.run("in")
        run = await read(desk, f"waypost://runs/{answer['run_id']}")
        (short,) = await read(desk, "waypost://runs/list")

    assert short.items() <= run.items()
    assert (run["id"], run["workflow_id"], run["status"]) == (answer["run_id"], "walk", "failed")
    assert run["started_at"] <= run["completed_at"]
    assert (run["result"], run["error"]) == (None, "Tool crashed: RuntimeError: boom")
    assert run["step_results"] == answer["context"]["step_results"]


@asynchronous
async def test_an_instance_of_states_is_read_with_its_current_state() -> None:
    async with bench(FLOW) as desk:
        begun = await desk.start()
        before = await read(desk, f"waypost://runs/{begun.id}")
        await desk.follow(begun, "close")
        after = await read(desk, f"waypost://runs/{begun.id}")

    assert (before["status"], before["state"], before["result"]) == ("waiting_for_action", "open", None)
    assert before["completed_at"] is None
    assert (after["status"], after["state"], after["result"]) == ("completed", "done", {})


@asynchronous
async def test_the_list_of_runs_holds_the_latest_fifty_of_the_caller() -> None:
    async with bench(FLOW) as desk:
        runs = [(await desk.start()).id for _ in range(52)]
        await desk.start(by=ANN)
        listed = await read(desk, "waypost://runs/list")

    assert [one["id"] for one in listed] == sorted(runs, reverse=True)[:50]


@asynchronous
async def test_another_principals_instance_is_answered_like_an_unknown_one() -> None:
    async def read_as(by: Principal, uri: str) -> Any:
        contents = await desk.hub.engine.pipeline.read(uri, DetachedCaller(by, FROM_OUTSIDE))
        return json.loads(contents[0].text)  # type: ignore[union-attr]  # JSON is text

    async with bench(FLOW) as desk:
        uri = f"waypost://runs/{(await desk.start(by=ANN)).id}"
        assert (await read_as(ANN, uri))["state"] == "open"
        assert (await read_as(OPERATOR, uri))["state"] == "open"
        assert len(await read_as(ANN, "waypost://runs/list")) == 1
        assert await read_as(STRANGER, "waypost://runs/list") == []
        messages = []
        for other in (uri, "waypost://runs/wf_0123"):
            with pytest.raises(ToolError) as refused:
                await read_as(STRANGER, other)
            messages.append(refused.value.message.replace(other.rpartition("/")[2], "ID"))

    assert messages == ["workflow run not found: ID"] * 2


@pytest.mark.parametrize(
    ("uri", "code", "message"),
    [
        ("waypost://workflows/nobody", -32000, "workflow not found: nobody"),
        ("waypost://runs/wf_00", -32000, "workflow run not found: wf_00"),
        ("waypost://runs/abc", -32602, "Invalid ID: abc"),
        ("waypost://runs/wf_..%2F", -32602, "Invalid ID: wf_../"),
        ("waypost://config/server.nobody", -32000, "config key not found: server.nobody"),
        ("waypost://nothing/1", -32002, "Resource not found: waypost://nothing/1"),
    ],
)
@asynchronous
async def test_the_error_for_a_missing_resource_names_it(uri: str, code: int, message: str, tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one")]) as desk:
        assert await refusal(desk, uri) == (code, message)


@asynchronous
async def test_settings_are_read_all_together_and_by_key(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one")]) as desk:
        listed = await read(desk, "waypost://config/list")
        one = await read(desk, "waypost://config/server.toolTimeoutMs")

    assert one == {"key": "server.toolTimeoutMs", "value": 30_000}
    assert listed["server.name"] == "stepping"
    assert listed["server.toolTimeoutMs"] == 30_000
    assert not any(key.startswith(("workflows", "prompts")) for key in listed)


@asynchronous
async def test_secrets_are_hidden_in_the_list_and_by_key(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one")], sections=SECRETS) as desk:
        listed = await read(desk, "waypost://config/list")
        each = {key: (await read(desk, f"waypost://config/{key}"))["value"] for key in listed}

    assert each == listed
    text = json.dumps(listed)
    assert "hunter2" not in text
    assert "5555" not in text
    for key in ("auth.keys", "connections.wiki.headers", "connections.box.env", "connections.box.args"):
        assert listed[key] == "[REDACTED]"
    assert listed["connections.box.command"] == "box"
