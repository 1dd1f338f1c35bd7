"""Workflows that are created at run time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.stores.counted import CountedSqlite
from tests.workflows.conftest import flow, model
from tests.workflows.stepping import Stepping, play, stepping
from waypost import Hub
from waypost.config.findings import KeyPath
from waypost.config.models import Workflow
from waypost.errors import RemoteError, WorkflowRefused
from waypost.stores.store import Store
from waypost.testing import connect
from waypost.workflows import checks
from waypost.workflows.data_flow import Report
from waypost.workflows.workflows import StoredDefinitions

FLOW = flow({"open": {"transitions": {"close": {"target": "done"}}}, "done": {"terminal": True}})


def walk(*steps: Any, **more: Any) -> Workflow:
    return model({"steps": list(steps) or [play("one", adds="1")], **more})


def creating(desk: Stepping) -> StoredDefinitions:
    return desk.hub.workflows.stored


async def tools(desk: Stepping) -> dict[str, str]:
    listed = await desk.client.list_tools()
    return {tool["name"]: tool["description"] for tool in listed if tool["name"].startswith("workflow:")}


async def changed_once(desk: Stepping) -> None:
    """Check that clients got exactly one list-changed notification."""
    await desk.client.assert_notification("tools/list_changed")
    await desk.client.refute_notification("tools/list_changed")


@asynchronous
async def test_a_created_workflow_can_be_run_at_once(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        made = await creating(desk).create("Tech News", walk())
        await changed_once(desk)
        listed = await tools(desk)
        answer = await desk.run("in", "Tech News")

    assert (made.name, made.version) == ("Tech News", 1)
    assert listed == {"workflow:Tech News": "Run the Tech News workflow"}
    assert answer["result"] == "in1"


@asynchronous
async def test_each_change_sends_one_notification_and_is_in_the_next_list(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        await creating(desk).create("news", walk())
        await changed_once(desk)
        changed = await creating(desk).change("news", walk(description="Of the day."))
        await changed_once(desk)
        assert (await tools(desk), changed.version) == ({"workflow:news": "Of the day."}, 2)
        await creating(desk).disable("news")
        await changed_once(desk)
        assert await tools(desk) == {}
        await creating(desk).enable("news")
        await changed_once(desk)
        assert await tools(desk) == {"workflow:news": "Of the day."}
        await creating(desk).remove("news")
        await changed_once(desk)
        assert await tools(desk) == {}
        assert creating(desk).list() == []


@asynchronous
async def test_a_call_of_a_disabled_workflow_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        await creating(desk).create("news", walk())
        await creating(desk).disable("news")
        answer = await desk.client.call_tool("workflow:news", {})
        started = await desk.client.call_tool("workflow.start", {"definitionId": "news"})

    assert answer["isError"]
    assert answer["content"][0]["text"] == "Workflow news is disabled"
    assert started["structuredContent"]["error"]["message"] == "Workflow news is disabled"


@asynchronous
async def test_enabling_an_enabled_workflow_changes_nothing(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        first = await creating(desk).create("news", walk())
        await changed_once(desk)
        assert await creating(desk).enable("news") == first
        await desk.client.refute_notification("tools/list_changed")


@asynchronous
async def test_created_workflows_survive_a_restart(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        await creating(desk).create("kept", walk(play("one", adds="!")))
        await creating(desk).create("outer", walk({"capability": "workflow:kept"}))
        await creating(desk).create("gone", walk())
        await creating(desk).remove("gone")
        await creating(desk).create("off", walk())
        await creating(desk).disable("off")
    async with stepping(tmp_path) as desk:
        assert set(await tools(desk)) == {"workflow:kept", "workflow:outer"}
        assert (await desk.run("in", "kept"))["result"] == "in!"
        assert [(one.name, one.version) for one in creating(desk).list()] == [("kept", 1), ("off", 2), ("outer", 1)]


@asynchronous
async def test_each_stored_workflow_is_checked_once_at_startup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stepping(tmp_path) as desk:
        for number in range(20):
            await creating(desk).create(f"w{number}", walk())
    checked: list[str] = []
    check = checks.check_structure

    def note(workflow: Workflow, path: KeyPath, report: Report) -> None:
        checked.append(str(path[1]))
        check(workflow, path, report)

    monkeypatch.setattr(checks, "check_structure", note)
    async with stepping(tmp_path) as desk:
        assert len(await tools(desk)) == 20
        made = sorted(name for name in checked if name.startswith("w"))
        assert made == sorted(f"w{number}" for number in range(20))
        checked.clear()
        await creating(desk).create("another", walk())
        assert checked == ["another"]


@asynchronous
async def test_a_hub_without_a_configuration_file_loads_stored_workflows(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/hub.db"
    first = Hub("first", version="1", store=where)
    async with connect(first):
        await first.workflows.stored.create("flow", model(FLOW))
    await first.stop()
    second = Hub("second", version="1", store=where)
    async with connect(second) as client:
        listed = [tool["name"] for tool in await client.list_tools()]
    await second.stop()

    assert "workflow:flow" in listed


@asynchronous
async def test_looking_for_stored_workflows_does_not_create_a_store(tmp_path: Path) -> None:
    hub = Hub("bare", version="1", store=f"sqlite:///{tmp_path}/hub.db")
    async with connect(hub):
        pass
    await hub.stop()

    assert os.listdir(tmp_path) == []


@asynchronous
async def test_a_configured_workflow_wins_over_a_stored_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with stepping(tmp_path) as desk:
        await creating(desk).create("news", walk(play("one", adds="made")))
        await creating(desk).create("other", walk())
    sections = {"workflows": {"news": {"steps": [play("one", adds="written")]}}}
    async with stepping(tmp_path, sections=sections) as desk:
        assert (await desk.run("", "news"))["result"] == "written"
        assert [one.name for one in creating(desk).list()] == ["other"]

    assert "stored workflow skipped: news: There is already a workflow news" in caplog.text


@asynchronous
async def test_an_invalid_stored_workflow_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with stepping(tmp_path) as desk:
        await creating(desk).create("good", walk())
        await desk.hub.store.definitions.put("workflow:bad", {"name": "bad", "model": {"steps": "none"}})
        for name, kept in (("worse", {}), ("proxy_default", {"steps": [{"skill": "one"}]})):
            await desk.hub.store.definitions.put(f"workflow:{name}", {"name": name, "model": kept})
    async with stepping(tmp_path) as desk:
        assert [one.name for one in creating(desk).list()] == ["good"]

    assert "stored workflow unreadable, skipped: workflow:bad" in caplog.text
    assert "stored workflow skipped: worse" in caplog.text
    assert "stored workflow skipped: proxy_default" in caplog.text


@pytest.mark.parametrize(
    ("name", "workflow", "sentence"),
    [
        ("walk", walk(), "There is already a workflow walk; choose another name."),
        ("", walk(), "The name of a workflow has 1 to 128 printable characters, without space around them."),
        (" x", walk(), "The name of a workflow has 1 to 128 printable characters, without space around them."),
        ("x\n", walk(), "The name of a workflow has 1 to 128 printable characters, without space around them."),
        ("proxy_default", walk(), "Workflow proxy_default cannot be used: `proxy_default` is the built-in workflow"),
        ("x", model({}), "Workflow x cannot be used: the workflow has neither `states` nor `steps`"),
        ("x", walk({"name": "idle"}), "Workflow x cannot be used: steps[0]: the step runs nothing; add `skill` or"),
        ("x", walk(play("one", routes={"default": 9})), "Workflow x cannot be used: steps[0].routes[0].goto: there is"),
        ("x", walk({"capability": "nobody"}), "Workflow x cannot be used: steps[0].capability: there is no "),
        ("x", model(flow({"a": {"transitions": {"go": {"target": "b"}}}})), "Workflow x cannot be used: states.a."),
    ],
)
@asynchronous
async def test_an_invalid_workflow_is_refused_with_the_reason_and_nothing_changes(
    name: str, workflow: Workflow, sentence: str, tmp_path: Path
) -> None:
    async with stepping(tmp_path, [play("one")]) as desk:
        before = await tools(desk)
        with pytest.raises(WorkflowRefused) as refused:
            await creating(desk).create(name, workflow)
        assert await tools(desk) == before
        assert creating(desk).list() == []

    assert refused.value.message.startswith(sentence)
    assert refused.value.message.endswith(".")


@asynchronous
async def test_an_invalid_change_leaves_the_workflow_unchanged(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        made = await creating(desk).create("news", walk())
        with pytest.raises(WorkflowRefused, match="runs nothing"):
            await creating(desk).change("news", walk({"name": "idle"}))
        assert creating(desk).get("news") == made


@asynchronous
async def test_configured_and_unknown_workflows_cannot_be_changed(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one")]) as desk:
        for work in (lambda name: creating(desk).enable(name), lambda name: creating(desk).remove(name)):
            with pytest.raises(WorkflowRefused, match="Workflow walk is part of the configuration"):
                await work("walk")
            with pytest.raises(WorkflowRefused, match="workflow not found: nobody"):
                await work("nobody")


@asynchronous
async def test_a_change_of_an_older_version_is_refused(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        made = await creating(desk).create("news", walk())
        await creating(desk).change("news", walk(description="a"), made.version)
        with pytest.raises(WorkflowRefused) as refused:
            await creating(desk).change("news", walk(description="b"), made.version)

    assert refused.value.code == "STALE_WORKFLOW_VERSION"


@asynchronous
async def test_workflows_are_exported_imported_and_copied(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1")]) as desk:
        document = creating(desk).export("walk")
        taken_in = await creating(desk).import_document(document)
        again = await creating(desk).import_document(document)
        copy = await creating(desk).duplicate("walk")
        results = [(await desk.run("in", one.name))["result"] for one in (taken_in, again)]
        with pytest.raises(WorkflowRefused, match="workflow not found: nobody"):
            creating(desk).export("nobody")

    assert [taken_in.name, again.name, copy.name] == ["walk (imported 1)", "walk (imported 2)", "walk (copy)"]
    assert results == ["in1", "in1"]
    assert not copy.model.enabled


@asynchronous
async def test_an_instance_keeps_the_definition_it_started_with(tmp_path: Path) -> None:
    async with stepping(tmp_path) as desk:
        await creating(desk).create("flow", model(FLOW))
        begun = (await desk.client.call_tool("workflow.start", {"definitionId": "flow"}))["structuredContent"]
        await creating(desk).remove("flow")
        moved = await desk.client.call_tool("workflow.submit", begun["links"][0]["args"])

    assert moved["structuredContent"]["state"] == "done"


@asynchronous
async def test_every_enabled_workflow_is_a_tool_that_takes_an_input_and_requires_nothing(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one")]) as desk:
        await creating(desk).create("Tech News Digest", walk(description="News of the day."))
        await creating(desk).create("off", walk(enabled=False))
        listed = {tool["name"]: tool for tool in await desk.client.list_tools()}

    assert [name for name in listed if name.startswith("workflow:")] == ["workflow:Tech News Digest", "workflow:walk"]
    assert listed["workflow:Tech News Digest"]["description"] == "News of the day."
    assert listed["workflow:walk"]["description"] == "Run the walk workflow"
    schema = listed["workflow:walk"]["inputSchema"]
    assert {name: part["type"] for name, part in schema["properties"].items()} == {"input": "string"}
    assert "required" not in schema


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("workflow:nobody", "Unknown workflow: nobody"),
        ("skill:nobody", "Unknown skill: nobody"),
        ("nobody", "Unknown tool: nobody"),
    ],
)
@asynchronous
async def test_a_missing_workflow_is_unknown_even_if_a_rule_would_deny_it(
    name: str, message: str, tmp_path: Path
) -> None:
    rule = {"name": "none", "type": "mcp_restriction", "config": {"tool_pattern": "nobody", "action": "deny"}}
    async with stepping(tmp_path, [play("one")], sections={"policies": [rule]}) as desk:
        with pytest.raises(RemoteError) as refused:
            await desk.client.call_tool(name, {})

    # The message may continue with a similar name that the caller may use.
    assert (refused.value.code, refused.value.message.partition(";")[0]) == (-32602, message)


@asynchronous
async def test_hubs_on_one_store_share_created_workflows(tmp_path: Path) -> None:
    hubs = [Hub(name, version="1", store=f"sqlite:///{tmp_path}/hub.db") for name in ("one", "two")]
    one, two = (hub.workflows.stored for hub in hubs)
    made = await one.create("flow", model(FLOW))
    with pytest.raises(WorkflowRefused, match="There is already a workflow flow"):
        await two.create("flow", model(FLOW))
    assert two.get("flow") == made
    await two.disable("flow")
    with pytest.raises(WorkflowRefused, match="has changed since it was read"):
        await one.change("flow", model({**FLOW, "title": "Mine"}))
    changed = await one.change("flow", model({**FLOW, "title": "Mine"}))
    await two.load()
    assert two.get("flow") == changed
    await two.remove("flow")
    with pytest.raises(WorkflowRefused, match="has changed since it was read"):
        await one.remove("flow")
    assert one.list() == []
    for hub in hubs:
        await hub.stop()


@asynchronous
async def test_stored_workflows_are_reloaded_only_after_a_change_by_another_hub(tmp_path: Path) -> None:
    database = CountedSqlite(tmp_path / "hub.db")
    here = Hub("here", version="1", store=Store(database))
    there = Hub("there", version="1", store=f"sqlite:///{tmp_path}/hub.db")
    await there.workflows.stored.create("flow", model(FLOW))
    mine = here.workflows.stored
    await mine.load()
    database.reads.clear()
    for _ in range(5):
        await mine.load()
    assert database.reads == {"revisions": 5}
    await there.workflows.stored.remove("flow")
    await mine.load()
    assert mine.list() == []
    assert database.reads["definitions"] == 1
    for hub in (here, there):
        await hub.stop()
