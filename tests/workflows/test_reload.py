"""An instance keeps the definition it started with, even if that is changed or removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import Json, bench, flow, model
from waypost import Hub
from waypost.errors import DefinitionError, StoreDamaged
from waypost.testing import connect

DONE: Json = {"terminal": True}


def version(number: int) -> Json:
    """A definition whose states differ from version to version."""
    middle = f"middle{number}"
    states = {
        "a": {"transitions": {"go": {"target": middle, "output": {"by": number}}}},
        middle: {"transitions": {"end": {"target": "done"}}},
        "done": DONE,
    }
    return flow(states, version=str(number))


@asynchronous
async def test_running_instances_keep_their_definition_and_new_ones_get_the_new_one(store: str) -> None:
    async with bench(store=store) as b:
        workflows = b.hub.workflows
        workflows.define({"flow": model(version(1))})
        old = await b.start()
        workflows.define({"flow": model(version(2))})
        new = await b.start()
        old = await b.follow(old, "go")
        assert (old["state"], old["definitionVersion"], old["context"]) == ("middle1", "1", {"by": 1})
        new = await b.follow(new, "go")
        assert (new["state"], new["definitionVersion"], new["context"]) == ("middle2", "2", {"by": 2})
        assert (await b.follow(old, "end"))["terminal"]


@asynchronous
async def test_an_instance_keeps_its_definition_after_removal_and_restart(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/kept.db"
    async with bench(version(1), store=place) as b:
        view = await b.follow(await b.start(), "go")
    async with bench(version(2), store=place) as b:
        b.engine.library.replace({})
        seen = await b.get(view)
        assert (seen["state"], seen["definitionVersion"]) == ("middle1", "1")
        assert (await b.start()).code == "UNKNOWN_ID"
        explained = await b.explain(definitionId="flow", workflowId=view.id)
        assert "middle1" in explained["states"]
        assert (await b.follow(seen, "end"))["terminal"]


@pytest.mark.parametrize(
    "broken",
    [
        {"initialState": "nowhere", "states": {"a": {}}},
        flow({"a": {"transitions": {"go": {"target": "a", "guards": [{"kind": "expr", "expr": "$.context.x =="}]}}}}),
        flow({"a": {"transitions": {"go": {"target": "a", "output": {"n": {"add": [1]}}}}}}),
    ],
)
@asynchronous
async def test_an_invalid_definition_changes_nothing(broken: Json) -> None:
    async with bench() as b:
        workflows = b.hub.workflows
        workflows.define({"flow": model(version(1)), "other": model(version(3))})
        view = await b.start()
        with pytest.raises(DefinitionError):
            workflows.define({"flow": model(version(2)), "other": model(broken)})
        assert (await b.follow(view, "go"))["state"] == "middle1"
        assert (await b.start())["definitionVersion"] == "1"
        assert not (await b.start("other")).refused
        tools = {tool["name"] for tool in await b.client.list_tools()}
        assert {"workflow:flow", "workflow:other"} <= tools


@asynchronous
async def test_the_tools_follow_the_definitions() -> None:
    async with bench() as b:
        workflows = b.hub.workflows
        workflows.define({"one": model(version(1))})
        assert "workflow:one" in {tool["name"] for tool in await b.client.list_tools()}
        workflows.define({"two": model(version(1))})
        names = {tool["name"] for tool in await b.client.list_tools()}
        assert "workflow:two" in names
        assert "workflow:one" not in names
        assert {"workflow.start", "workflow.get", "workflow.submit", "workflow.explain"} <= names


@asynchronous
async def test_two_workflows_do_not_share_a_name() -> None:
    async with bench(version(1)) as b:
        with pytest.raises(DefinitionError, match="flow"):
            b.hub.workflows.define({"flow": model(version(2))})
        assert (await b.start())["definitionVersion"] == "1"


@asynchronous
async def test_a_missing_pinned_definition_is_an_error() -> None:
    async with bench(version(1)) as b:
        with pytest.raises(StoreDamaged):
            await b.engine.library.load_pinned("0" * 64)


def written(folder: Path, number: int, target: str = "done") -> Path:
    """A configuration whose workflow differs from version to version."""
    definition = version(number)
    definition["states"][f"middle{number}"]["transitions"]["end"]["target"] = target
    path = folder / "waypost.yaml"
    settings = {"version": "1", "server": {"name": "reloading"}, "workflows": {"flow": definition}}
    path.write_text(json.dumps(settings))  # JSON is YAML
    return path


@asynchronous
async def test_reloading_a_configuration_does_not_affect_running_instances(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub = Hub.from_config(written(tmp_path, 1))
    async with connect(hub) as client:

        async def call(tool: str, arguments: Json) -> Json:
            found: Json = (await client.call_tool(tool, arguments))["structuredContent"]
            return found

        old = await call("workflow.start", {"definitionId": "flow"})
        written(tmp_path, 2)
        assert await hub.reload()
        assert (await call("workflow.start", {"definitionId": "flow"}))["definitionVersion"] == "2"
        written(tmp_path, 3, target="nowhere")
        assert not await hub.reload()
        assert "nowhere" in caplog.text
        assert (await call("workflow.start", {"definitionId": "flow"}))["definitionVersion"] == "2"
        old = await call("workflow.submit", old["links"][0]["args"])
        assert (old["state"], old["definitionVersion"]) == ("middle1", "1")
        assert (await call("workflow.submit", old["links"][0]["args"]))["terminal"]
        await hub.stop()
