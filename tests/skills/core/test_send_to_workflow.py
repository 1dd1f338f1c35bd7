"""The core skill that sends its input to a workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.stepping import Stepping, play, stepping

HANG = """
    def run(args):
        while True:
            pass
"""
SENDER = """
    permissions = {permissions}

    async def run(args, ctx):
        answer = await ctx.invoke("skill:send_to_workflow", {{"target_workflow": "walk", "input": args["input"]}})
        return answer.text
"""


async def send(desk: Stepping, **arguments: Any) -> Any:
    return await desk.client.call_tool("skill:send_to_workflow", arguments)


@asynchronous
async def test_a_workflow_gets_the_input_and_its_answer_is_the_result(tmp_path: Path) -> None:
    async with stepping(tmp_path, [play("one", adds="1")]) as desk:
        answers = [
            await send(desk, target_workflow="walk", input="in"),
            await send(desk, config={"target_workflow": "workflow:walk"}, input="in"),
            await send(desk, target_workflow="walk", timeout=5),
            await send(desk, target_workflow="workflow__walk", input="in"),
        ]
        kept = await desk.hub.store.instances.page()

    message = [answer["structuredContent"] for answer in answers]
    assert [(one["status"], one["result"]) for one in message] == [
        ("completed", "in1"),
        ("completed", "in1"),
        ("completed", "1"),
        ("completed", "in1"),
    ]
    assert [one["run_id"] for one in message] == [instance.id for instance in kept]
    assert answers[0]["_meta"]["waypost/branch"] == "on_success"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "target_workflow is missing."),
        ({"target_workflow": "nobody"}, "Unknown workflow: nobody"),
        ({"target_workflow": "walk"}, "Workflow walk failed: Tool crashed: RuntimeError: boom"),
        ({"target_workflow": "off"}, "Workflow off is disabled"),
        ({"target_workflow": "walk", "timeout": 0}, "timeout must be a whole number above 0."),
        ({"target_workflow": "slow", "timeout": 1}, "Workflow slow did not end within 1 s."),
    ],
)
@asynchronous
async def test_failures_are_errors_with_their_reason(arguments: Any, said: str, tmp_path: Path) -> None:
    workflows = {
        "off": {"enabled": False, "steps": [play("one")]},
        "slow": {"steps": [{"skill": "hang"}]},
    }
    steps = [play("one", crash="boom")]
    async with stepping(tmp_path, steps, skills={"hang": HANG}, sections={"workflows": workflows}) as desk:
        answer = await send(desk, **arguments)

    assert answer["isError"]
    assert answer["content"][0]["text"] == said


@pytest.mark.parametrize(
    ("permissions", "said"),
    [
        (["skill_invoke", "workflow_run"], '"result":"in1"'),
        (["skill_invoke"], "workflow_run"),
        (["workflow_run"], "skill_invoke"),
    ],
)
@asynchronous
async def test_a_dynamic_skill_needs_the_permission_to_run_workflows(
    permissions: list[str], said: str, tmp_path: Path
) -> None:
    sender = {"sender": SENDER.format(permissions=permissions)}
    async with stepping(tmp_path, [play("one", adds="1")], skills=sender) as desk:
        answer = await desk.client.call_tool("skill:sender", {"input": "in"})

    assert answer.get("isError", False) == (len(permissions) == 1)
    assert said in answer["content"][0]["text"]


@asynchronous
async def test_a_step_can_send_its_input_to_another_workflow(tmp_path: Path) -> None:
    steps = [play("one", adds="1"), {"skill": "send_to_workflow", "config": {"target_workflow": "inner"}}]
    inner = {"workflows": {"inner": {"steps": [play("deep", adds="?")]}}}
    async with stepping(tmp_path, steps, sections=inner) as desk:
        answer = await desk.run("in")

    assert answer["result"]["result"] == "in1?"
