"""Workflows of steps: routes, inputs and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.stepping import Data, play, stepping
from waypost.config.models import Step
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28
from waypost.workflows.steps import state_names

SHOW = """
    def run(args):
        return args
"""


@asynchronous
async def test_a_run_is_answered_with_its_id_its_status_and_its_result(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1"), play("two", adds="2")]) as desk:
        answer = await desk.run("in")
        kept = await desk.hub.store.instances.get(answer["run_id"])

    assert (answer["status"], answer["result"], answer["isError"]) == ("completed", "in12", False)
    assert kept is not None
    assert (kept.state, kept.status) == ("completed", "succeeded")


@asynchronous
async def test_an_instance_is_stored_with_the_results_of_its_steps(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1"), play("two", branch="far", gives={"n": 2})]) as desk:
        answer = await desk.run("in")
        kept = await desk.hub.store.instances.get(answer["run_id"])
        history = await desk.hub.store.instances.history(answer["run_id"])

    assert kept is not None
    context = kept.value["context"]
    assert context["input"] == "in"
    assert context["outputs"] == {"1": "in1", "2": {"n": 2}}
    results = context["step_results"]
    assert all(one.pop("duration_ms") >= 0 for one in results.values())
    assert results == {
        "1": {"name": "one", "skill": "play", "branch": "on_success", "outcome": "succeeded", "output": "in1"},
        "2": {"name": "two", "skill": "play", "branch": "far", "outcome": "succeeded", "output": {"n": 2}},
    }
    assert [row.value["to"] for row in history] == ["one", "two", "completed"]


@pytest.mark.parametrize(
    ("steps", "taken"),
    [
        ([play("a", branch="left", routes={"right": "b", "left": "c"}), play("b"), play("c")], ["1", "3"]),
        ([play("a", branch="left", routes={"left": 3}), play("b"), play("c")], ["1", "3"]),
        ([play("a", branch="odd", routes={"left": "b", "default": "c"}), play("b"), play("c")], ["1", "3"]),
        ([play("a", branch="odd", routes={"left": "b"}), play("b"), play("c")], ["1"]),
        ([play("a", routes={"on_success": "c"}), play("b"), play("c")], ["1", "3"]),
        ([play("a", branch="odd"), play("b")], ["1", "2"]),
        ([play("a", routes={"default": 9}), play("b")], ["1"]),
        ([play("a", routes={"default": "nowhere"}), play("b")], ["1"]),
        ([play("a", routes={"default": 3}), play("b", routes={"x": 1}), play("c", routes={"default": 2})], list("132")),
    ],
    ids=[
        *("by name", "by position", "default", "no match ends", "without a branch", "no routes", "nowhere", "no name"),
        "back to what was jumped over",
    ],
)
@asynchronous
async def test_the_branch_of_a_step_picks_the_route(steps: list[Data], taken: list[str], tmp_path: Path) -> None:
    async with stepping(tmp_path, steps) as desk:
        answer = await desk.run("in")

    assert [row["fromState"] for row in answer["chain"]] == [steps[int(place) - 1]["name"] for place in taken]
    assert answer["status"] == "completed"


@asynchronous
async def test_the_result_is_the_output_of_the_highest_position_that_ran(tmp_path: Path) -> None:
    steps = [play("a", gives="one", routes={"default": 3}), play("b", gives="two", routes={"x": 1})]
    async with stepping(tmp_path, [*steps, play("c", gives="three", routes={"default": 2})]) as desk:
        assert (await desk.run())["result"] == "three"


@pytest.mark.parametrize(
    ("source", "given"),
    [(None, "in12"), ("one", "in1"), (1, "in1"), (2, "in12")],
)
@asynchronous
async def test_a_step_gets_the_output_before_it_or_that_of_the_step_it_names(
    source: Any, given: str, tmp_path: Path
) -> None:
    last = play("three", **({} if source is None else {"input_from": source}))
    async with stepping(tmp_path, [play("one", adds="1"), play("two", adds="2"), last]) as desk:
        assert (await desk.run("in"))["result"] == given


@asynchronous
async def test_the_previous_output_is_by_position_and_not_by_time(tmp_path: Path) -> None:
    steps = [play("one", gives="1", routes={"default": 3}), play("two", adds="!", routes={"x": 1})]
    async with stepping(tmp_path, [*steps, play("three", gives="3", routes={"default": 2})]) as desk:
        answer = await desk.run("in")

    assert answer["context"]["outputs"] == {"1": "1", "3": "3", "2": "1!"}


@asynchronous
async def test_a_step_with_input_from_a_skipped_step_gets_nothing(tmp_path: Path) -> None:
    steps = [play("one", gives="1", routes={"default": 3}), play("two"), play("three", adds=".", input_from=2)]
    async with stepping(tmp_path, steps) as desk:
        assert (await desk.run("in"))["result"] == "."


@asynchronous
async def test_without_input_the_first_step_gets_an_empty_text(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1")]) as desk:
        answer = await desk.run()

    assert answer["result"] == "1"
    assert answer["context"]["input"] is None


@asynchronous
async def test_data_reaches_the_next_skill_as_json(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", gives={"items": [1, 2]}), play("two")]) as desk:
        assert (await desk.run())["result"] == '{"items":[1,2]}'


@asynchronous
async def test_an_instance_can_be_started_with_an_input_too(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1")]) as desk:
        results = []
        for given in ({"input": "in"}, {"a": 1, "b": 2}):
            answer = await desk.client.call_tool("workflow.start", {"definitionId": "walk", "input": given})
            results.append(answer["structuredContent"]["context"]["result"])

    assert results == ["in1", '{"a":1,"b":2}1']


@asynchronous
async def test_the_settings_of_a_step_are_passed_in_the_config_of_the_skill(tmp_path: Path) -> None:
    step = {
        "skill": "show",
        "config": {"depth": 3, "llm_tier": "heavy"},
        "prompt_template": "Tell about {input}.",
        "llm_tier": "light",
        "llm_model": "small",
    }
    async with stepping(tmp_path, [step], skills={"show": SHOW}) as desk:
        got = (await desk.run("bees"))["result"]

    assert got["input"] == "bees"
    assert got["config"] == {
        "depth": 3,
        "prompt_template": "Tell about {input}.",
        "prompt": "Tell about bees.",
        "llm_tier": "heavy",
        "llm_model": "small",
        "model": "small",
    }


@asynchronous
async def test_the_model_is_asked_with_the_input_in_the_template(tmp_path: Path) -> None:
    asked: list[Any] = []

    def answer(params: Any) -> Any:
        asked.append(params["messages"][0]["content"]["text"])
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Buzz."}}

    step = {"skill": "llm_transform", "prompt_template": "Tell about {input}."}
    async with stepping(tmp_path, [step], sampling=answer) as desk:
        assert (await desk.run("bees"))["result"] == "Buzz."

    assert asked == ["Tell about bees."]


@asynchronous
async def test_a_stateless_client_is_not_asked_from_a_step(tmp_path: Path) -> None:
    def answer(params: Any) -> Any:
        raise AssertionError("nobody is to be asked")

    async with stepping(tmp_path, [{"skill": "llm_transform"}], sampling=answer, version=V2026_07_28) as desk:
        answered = await desk.run("bees")

    assert answered["isError"]
    assert "sampling" in answered["error"]


@asynchronous
async def test_a_long_output_is_complete_for_the_next_step_and_truncated_in_the_results(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", gives="é" * 5000), play("two", adds="!")]) as desk:
        answer = await desk.run()

    assert answer["result"] == "é" * 5000 + "!"
    shown = answer["context"]["step_results"]["1"]["output"]
    assert shown == "é" * 1024 + "…"


@asynchronous
async def test_a_capability_that_is_not_a_skill_gets_its_own_arguments(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "from waypost import Toolkit, tool\n\n\n"
        "class Kit(Toolkit):\n"
        "    @tool\n"
        "    def area(self, width: int, height: int) -> int:\n"
        "        return width * height\n"
    )
    steps = [play("size", gives={"width": 3, "height": 9}), {"capability": "area", "config": {"height": 5}}]
    async with stepping(tmp_path, steps, sections={"toolkits": ["./tools.py"]}) as desk:
        assert (await desk.run())["result"] == 15


@asynchronous
async def test_a_step_can_run_another_workflow(tmp_path: Path) -> None:
    inner = {"inner": {"steps": [play("deep", adds="?")]}}
    steps = [play("one", adds="1"), {"capability": "workflow:inner"}]
    async with stepping(tmp_path, steps, sections={"workflows": inner}) as desk:
        answer = await desk.run("in")

    assert answer["result"]["result"] == "in1?"


@pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
@asynchronous
async def test_each_step_sends_a_progress_notification(version: str, tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one"), play("two"), play("three")], version=version) as desk:
        await desk.client.call_with_progress("workflow:walk", {"input": "in"})
        notes = [await desk.client.assert_notification("progress") for _ in range(3)]

    view = [(note["params"]["progress"], note["params"]["total"], note["params"]["message"]) for note in notes]
    assert view == [(1, 3, "one"), (2, 3, "two"), (3, 3, "three")]


@asynchronous
async def test_a_workflow_may_have_more_steps_than_the_maximum_chain_depth(tmp_path: Path) -> None:
    steps = [{"capability": "area", "name": f"s{n}"} for n in range(60)]
    tools = "from waypost import tool\n\n\n@tool\ndef area() -> int:\n    return 1\n"
    (tmp_path / "tools.py").write_text(tools)
    async with stepping(tmp_path, steps, sections={"toolkits": ["./tools.py"]}) as desk:
        answer = await desk.run()

    assert (answer["status"], answer["version"]) == ("completed", 61)


@asynchronous
async def test_a_workflow_of_steps_is_explained(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one"), play("two")]) as desk:
        answer = await desk.client.call_tool("workflow.explain", {"definitionId": "walk"})

    view = answer["structuredContent"]
    assert view["initialState"] == "one"
    assert view["states"]["completed"] == {"terminal": True, "outcome": "succeeded"}
    assert list(view["states"]) == ["one", "two", "completed", "failed"]


@asynchronous
async def test_all_tools_show_and_check_the_same_input_schema_of_a_workflow_of_steps(tmp_path: Path) -> None:
    sections = {"server": {"name": "stepping", "surface": "both"}}
    async with stepping(tmp_path, [play("one", adds="1")], sections=sections) as desk:
        tools = {tool["name"]: tool for tool in await desk.client.list_tools()}
        explained = await desk.client.call_tool("workflow.explain", {"definitionId": "walk"})
        described = await desk.client.call_tool("gateway.describe", {"id": "walk"})
        wrong = {"definitionId": "walk", "input": {"input": {"not": "a text"}}}
        refused = (await desk.client.call_tool("workflow.start", wrong))["structuredContent"]
        runs = len(await desk.hub.store.instances.page())
        fine = await desk.client.call_tool("workflow.start", {"definitionId": "walk", "input": {"input": "in"}})

    schema = tools["workflow:walk"]["inputSchema"]
    assert schema["properties"]["input"]["type"] == "string"
    assert explained["structuredContent"]["inputSchema"] == schema
    assert described["structuredContent"]["links"][0]["input_schema"] == schema
    assert (refused["error"]["code"], "workflowId" in refused, runs) == ("INPUT_SCHEMA_VIOLATION", False, 0)
    assert fine["structuredContent"]["context"]["result"] == "in1"


@asynchronous
async def test_the_tool_of_a_workflow_of_steps_takes_what_its_own_schema_asks_for(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    step = play("one", gives="done")
    async with stepping(tmp_path, [step], inputSchema=schema) as desk:
        tools = {tool["name"]: tool for tool in await desk.client.list_tools()}
        answers = [
            await desk.client.call_tool("workflow:walk", given) for given in ({"input": {"q": "x"}}, {"q": "x"}, {})
        ]

    assert tools["workflow:walk"]["inputSchema"]["properties"]["input"] == schema
    assert [answer.get("isError", False) for answer in answers] == [False, False, True]
    assert answers[0]["structuredContent"]["context"]["input"] == {"q": "x"}


@pytest.mark.parametrize("properties", [{"input": {"type": "string", "enum": ["in"]}}, {"more": {"type": "integer"}}])
@asynchronous
async def test_the_tool_of_a_workflow_of_steps_takes_a_text_where_its_schema_allows_one(
    properties: Data, tmp_path: Path
) -> None:
    own = {"type": "object", "properties": properties}
    async with stepping(tmp_path, [play("one", adds="1")], inputSchema=own) as desk:
        assert (await desk.run("in"))["result"] == "in1"


def test_every_step_has_a_unique_state_name() -> None:
    steps = [Step(skill="a"), Step(skill="a"), Step(name="failed", skill="b"), Step(capability="c"), Step()]

    assert state_names(steps) == ("a", "a 2", "failed 3", "c", "5")
