"""Steps one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.executors.test_building import Handler, a_run, failure_of, model, surroundings
from waypost.errors import DeadlineExceeded, ToolError
from waypost.workflows.executors import build
from waypost.workflows.executors.kind import Executor


def step(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "capability", "capability": name, "arguments": arguments}


def pipeline(invoke: Handler, *steps: dict[str, Any], **written: Any) -> Executor:
    return build(model(kind="pipeline", steps=list(steps), **written), surroundings(invoke=invoke))


class Colleague:
    """A call target that adds, waits or fails, and records the keys."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
        self.keys.append(meta["waypost/idempotencyKey"])
        if name == "fail":
            raise ToolError("no luck")
        if name == "late":
            raise DeadlineExceeded
        if name == "wait":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
        return arguments if name == "echo" else sum(arguments.values())


@asynchronous
async def test_a_step_can_read_the_output_of_earlier_steps() -> None:
    colleague = Colleague()
    output = await pipeline(
        colleague,
        step("add", a="$.arguments.a", b=1),
        step("add", a="$.previous", b=10),
        step("add", a="$.steps[0].output", b="$.steps[1].output"),
    ).run(a_run({"a": 1}, key="k"))

    assert output == {
        "steps": [
            {"status": "succeeded", "output": 2},
            {"status": "succeeded", "output": 12},
            {"status": "succeeded", "output": 14},
        ],
        "final_output": 14,
        "summary": {"total": 3, "succeeded": 3, "failed": 0},
    }
    assert colleague.keys == ["k.0", "k.1", "k.2"]


@pytest.mark.parametrize(
    ("name", "error_class", "message"),
    [
        ("fail", "permanent_error", "Step 2 failed: no luck"),
        ("late", "timeout", "Step 2 failed: Tool execution timed out"),
    ],
)
@asynchronous
async def test_a_failing_step_ends_the_pipeline_with_its_error_class(name: str, error_class: str, message: str) -> None:
    colleague = Colleague()
    failure = await failure_of(pipeline(colleague, step("add"), step(name), step("add")))

    assert (failure.error_class, failure.message) == (error_class, message)
    assert len(colleague.keys) == 2


@asynchronous
async def test_a_pipeline_can_continue_after_a_failing_step() -> None:
    steps = [step("add", a=1), step("fail"), step("echo", previous="$.previous", first="$.steps[1].status")]
    output = await pipeline(Colleague(), *steps, onStepFailure="continue").run(a_run())

    assert output["steps"][1] == {"status": "failed", "error": {"message": "no luck", "errorClass": "permanent_error"}}
    assert output["final_output"] == {"previous": None, "first": "failed"}
    assert output["summary"] == {"total": 3, "succeeded": 2, "failed": 1}


@asynchronous
async def test_a_pipeline_fails_when_every_step_fails() -> None:
    failure = await failure_of(pipeline(Colleague(), step("late"), step("fail"), onStepFailure="continue"))

    assert (failure.error_class, failure.message) == (
        "timeout",
        "Every step failed; the first: Tool execution timed out",
    )


@asynchronous
async def test_the_total_timeout_applies_to_all_steps_together() -> None:
    colleague = Colleague()
    # The first step has to end within it.
    failure = await failure_of(pipeline(colleague, step("add"), step("wait"), totalTimeoutMs=500))

    assert (failure.error_class, colleague.cancelled) == ("timeout", ["wait"])


@asynchronous
async def test_a_nested_pipeline_starts_with_the_output_before_it() -> None:
    inner = {
        "kind": "pipeline",
        "steps": [step("add", a="$.previous", b="$.steps[0].output"), step("add", a="$.previous")],
    }
    colleague = Colleague()
    output = await pipeline(colleague, step("add", a=5), inner).run(a_run(key="k"))

    assert output["final_output"]["final_output"] == 5
    assert colleague.keys == ["k.0", "k.1.0", "k.1.1"]


@asynchronous
async def test_the_limit_of_a_pipeline_is_its_total_timeout() -> None:
    assert pipeline(Colleague(), step("add"), totalTimeoutMs=600_000).limit == 600
    assert pipeline(Colleague(), step("add")).limit is None
