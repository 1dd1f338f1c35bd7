"""What a transition calls may be limited by a policy, or not there right now: both pass with time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import WORK, Json, bench, flow
from waypost.policy import Rule

DONE: Json = {"terminal": True}
NESTED: Json = {"kind": "pipeline", "steps": [{"kind": "workflow", "definitionId": "child"}]}
CHILD: Json = {"kind": "workflow", "definitionId": "child"}


def limits(capability: str, **more: Any) -> Json:
    """A hub on which something can be used once."""
    config = {"max_calls": 1, "window_seconds": 3600}
    rule = {"name": "once", "type": "rate_limit", "config": config, "capabilities": [capability], **more}
    return {"policies": [msgspec.convert(rule, Rule)]}


def running(executor: Json, **way: Any) -> Json:
    """A workflow that can run something again and again."""
    return flow({"a": {"transitions": {"go": {"target": "a", "executor": executor, **way}}}})


@asynchronous
async def test_a_capability_that_a_limit_refuses_is_tried_again_by_default() -> None:
    retried = running(WORK, reliability={"retry": {"maxAttempts": 3}})
    async with bench(retried, options=limits("work")) as b:
        told = await b.submit(await b.start(), "go")
        failed = await b.submit(told, "go")
        assert (failed.code, failed["error"]["errorClass"]) == ("EXECUTOR_FAILED", "rate_limited")
        (note,) = await b.notes(told)
        assert [attempt["errorClass"] for attempt in note["attempts"]] == ["rate_limited"] * 3
        assert len(b.work.calls) == 1


@asynchronous
async def test_what_another_rule_is_against_is_not_tried_again() -> None:
    denied = {"name": "never", "type": "allow_list", "config": {"allow": ["workflow*"]}, "callers": ["workflow"]}
    options = {"policies": [msgspec.convert(denied, Rule)]}
    async with bench(running(WORK, reliability={"retry": {"maxAttempts": 3}}), options=options) as b:
        told = await b.start()
        failed = await b.submit(told, "go")
        assert failed["error"]["errorClass"] == "permanent_error"
        (note,) = await b.notes(told)
        assert [attempt["errorClass"] for attempt in note["attempts"]] == ["permanent_error"]


@pytest.mark.parametrize("executor", [CHILD, NESTED])
@asynchronous
async def test_a_workflow_that_a_limit_refuses_has_the_same_class(executor: Json) -> None:
    child = flow({"a": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}}, "done": DONE})
    async with bench(running(executor), child=child, options=limits("workflow:child")) as b:
        told = await b.submit(await b.start(), "go")
        failed = await b.submit(told, "go")
        assert (failed.code, failed["error"]["errorClass"]) == ("EXECUTOR_FAILED", "rate_limited")


@asynchronous
async def test_a_function_is_there_again_when_somebody_offers_it() -> None:
    retried = running({"kind": "worker", "function": "mail::send"})
    async with bench(retried) as b:
        told = await b.start()
        failed = await b.submit(told, "go")
        assert failed["error"]["errorClass"] == "connection_error"
        b.hub.tool(name="mail__send")(lambda: "sent")
        assert (await b.submit(told, "go"))["version"] == 2
