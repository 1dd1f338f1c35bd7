"""Rate limits and missing capabilities in a transition are transient failures."""

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
    """The options of a hub with a rate limit of one call."""
    config = {"max_calls": 1, "window_seconds": 3600}
    rule = {"name": "once", "type": "rate_limit", "config": config, "capabilities": [capability], **more}
    return {"policies": [msgspec.convert(rule, Rule)]}


def running(executor: Json, **way: Any) -> Json:
    """A workflow that can run an executor repeatedly."""
    return flow({"a": {"transitions": {"go": {"target": "a", "executor": executor, **way}}}})


@asynchronous
async def test_a_capability_that_a_limit_refuses_is_retried_by_default() -> None:
    retried = running(WORK, reliability={"retry": {"maxAttempts": 3}})
    async with bench(retried, options=limits("work")) as b:
        view = await b.submit(await b.start(), "go")
        failed = await b.submit(view, "go")
        assert (failed.code, failed["error"]["errorClass"]) == ("EXECUTOR_FAILED", "rate_limited")
        (note,) = await b.notes(view)
        assert [attempt["errorClass"] for attempt in note["attempts"]] == ["rate_limited"] * 3
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_capability_that_another_rule_denies_is_not_retried() -> None:
    denied = {"name": "never", "type": "allow_list", "config": {"allow": ["workflow*"]}, "callers": ["workflow"]}
    options = {"policies": [msgspec.convert(denied, Rule)]}
    async with bench(running(WORK, reliability={"retry": {"maxAttempts": 3}}), options=options) as b:
        view = await b.start()
        failed = await b.submit(view, "go")
        assert failed["error"]["errorClass"] == "permanent_error"
        (note,) = await b.notes(view)
        assert [attempt["errorClass"] for attempt in note["attempts"]] == ["permanent_error"]


@pytest.mark.parametrize("executor", [CHILD, NESTED])
@asynchronous
async def test_a_workflow_that_a_limit_refuses_has_the_same_error_class(executor: Json) -> None:
    child = flow({"a": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}}, "done": DONE})
    async with bench(running(executor), child=child, options=limits("workflow:child")) as b:
        view = await b.submit(await b.start(), "go")
        failed = await b.submit(view, "go")
        assert (failed.code, failed["error"]["errorClass"]) == ("EXECUTOR_FAILED", "rate_limited")


@asynchronous
async def test_a_missing_function_can_be_called_once_it_is_registered() -> None:
    retried = running({"kind": "worker", "function": "mail::send"})
    async with bench(retried) as b:
        view = await b.start()
        failed = await b.submit(view, "go")
        assert failed["error"]["errorClass"] == "connection_error"
        b.hub.tool(name="mail__send")(lambda: "sent")
        assert (await b.submit(view, "go"))["version"] == 2
