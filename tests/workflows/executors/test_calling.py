"""Calls of upstreams, capabilities, workers and other workflows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.executors.test_building import Handler, a_run, failure_of, model, surroundings
from waypost import Hub, Result
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE
from waypost.capabilities.results import failure
from waypost.config.models import McpConnection
from waypost.errors import (
    Busy,
    CircuitOpen,
    DeadlineExceeded,
    InsufficientScope,
    InvocationFailed,
    PolicyDenied,
    RemoteError,
    StoreUnavailable,
    ToolError,
    UnknownTool,
    WorkflowRefused,
)
from waypost.outbound.egress import EgressFailed
from waypost.workflows.executors import build
from waypost.workflows.executors.kind import Executor, ExecutorContext, Run
from waypost.workflows.scope import Scope

GITHUB = {"github": McpConnection(command="npx", env={"TOKEN": "s3cret-of-github"})}

Called = list[tuple[str, dict[str, Any], dict[str, Any]]]


class Other:
    """A call target that records its calls and always returns or raises the same."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: Called = []

    async def __call__(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
        self.calls.append((name, arguments, dict(meta)))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def mcp(upstream: Handler, **written: Any) -> Executor:
    return build(
        model(kind="mcp", connection="github", tool="push", **written), surroundings(GITHUB, upstream=upstream)
    )


def capability(invoke: Handler, **written: Any) -> Executor:
    return build(model(kind="capability", capability="greet", **written), surroundings(invoke=invoke))


def worker(invoke: Handler, function: str = "mail::send", **written: Any) -> Executor:
    return build(model(kind="worker", function=function, **written), surroundings(invoke=invoke))


def child(run: Handler, **written: Any) -> Executor:
    return build(model(kind="workflow", definitionId="deploy", **written), surroundings(child=run))


@asynchronous
async def test_an_upstream_tool_gets_the_arguments_and_the_idempotency_key() -> None:
    other = Other({"structuredContent": {"ok": True}, "content": []})
    output = await mcp(other).run(a_run({"branch": "main"}, key="k-1"))

    assert output == {"ok": True}
    assert other.calls == [("github.push", {"branch": "main"}, {"waypost/idempotencyKey": "k-1"})]


@asynchronous
async def test_a_map_selects_the_arguments_and_drops_missing_ones() -> None:
    other = Other({"structuredContent": {}})
    written = {"branch": "$.context.branch", "force": False, "gone": "$.arguments.gone"}
    await mcp(other, map=written).run(a_run({"x": 1}, {"branch": "main"}))

    assert other.calls[0][1] == {"branch": "main", "force": False}


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ({"content": [{"type": "text", "text": "hi"}]}, {"content": [{"type": "text", "text": "hi"}]}),
        ({}, {"content": []}),
        ({"structuredContent": {}, "content": [{"type": "text", "text": "hi"}]}, {}),
    ],
)
@asynchronous
async def test_the_output_of_a_result_without_structured_content_is_its_content(
    answer: dict[str, Any], output: Any
) -> None:
    assert await mcp(Other(answer)).run(a_run()) == output


@pytest.mark.parametrize(
    ("answer", "error_class", "message"),
    [
        ({"isError": True, "content": [{"type": "text", "text": "no"}, {"type": "image"}]}, "permanent_error", "no"),
        ({"isError": True}, "permanent_error", "push of github failed."),
        (RemoteError("Unknown tool: push", -32602), "permanent_error", "github: Unknown tool: push"),
        (TimeoutError(), "timeout", "github did not answer in time."),
        (ConnectionRefusedError(111, "refused"), "connection_error", "github cannot be reached: refused."),
        (ConnectionResetError(), "connection_error", "github cannot be reached: ConnectionResetError."),
        (EgressFailed("gone"), "connection_error", "gone"),
    ],
)
@asynchronous
async def test_failures_of_an_upstream_have_an_error_class(answer: Any, error_class: str, message: str) -> None:
    failed = await failure_of(mcp(Other(answer)))

    assert (failed.error_class, failed.message) == (error_class, message)


@pytest.mark.parametrize(
    "answer",
    [
        {"isError": True, "content": [{"type": "text", "text": "denied to s3cret-of-github"}]},
        RemoteError("denied to s3cret-of-github", -32000),
        ConnectionError(1, "denied to s3cret-of-github"),
    ],
)
@asynchronous
async def test_secrets_of_the_connection_are_redacted_in_upstream_errors(answer: Any) -> None:
    failed = await failure_of(mcp(Other(answer)))

    assert "denied to [REDACTED]" in failed.message


@asynchronous
async def test_a_server_without_a_connection_is_not_called() -> None:
    executor = build(model(kind="mcp", connection="nobody", tool="push"), surroundings())

    assert (await failure_of(executor)).message == "There is no connection nobody."


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ({"a": [1]}, {"a": [1]}),
        ([1, 2], [1, 2]),
        (7, 7),
        (None, ""),
        ("text", "text"),
        (Result(["one", "two"]), "one\ntwo"),
    ],
)
@asynchronous
async def test_the_output_of_a_capability_is_its_data_or_its_text(answer: Any, output: Any) -> None:
    assert await capability(Other(answer)).run(a_run()) == output


@asynchronous
async def test_a_capability_gets_arguments_and_key() -> None:
    other = Other("")
    await capability(other).run(a_run({"name": "Ada"}, key="k-1"))
    await capability(other, arguments={"name": "$.input.name"}).run(a_run({"x": 1}, None, {"name": "Bob"}, key="k-2"))

    assert other.calls == [
        ("greet", {"name": "Ada"}, {"waypost/idempotencyKey": "k-1"}),
        ("greet", {"name": "Bob"}, {"waypost/idempotencyKey": "k-2"}),
    ]


def failed_result(error_class: str) -> Result:
    """The result of a tool whose executor failed."""
    return Result(["no"], {"error": {"code": "EXECUTOR_FAILED", "errorClass": error_class}}, is_error=True)


def denied_behind(message: str, rule_type: str) -> ToolError:
    """The error of a nested call that a policy denied."""
    error = ToolError(message)
    error.__cause__ = PolicyDenied(message, rule_type)
    return error


@pytest.mark.parametrize("make", [capability, worker])
@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        (failure("no"), "permanent_error"),
        (failure(""), "permanent_error"),
        (failure("Tool execution timed out", DeadlineExceeded()), "timeout"),
        (failure("Tool execution timed out"), "permanent_error"),
        (failure("Circuit open for greet, retry in 3 s", CircuitOpen()), "transient_error"),
        (failure("Circuit open for greet, retry in 3 s"), "permanent_error"),
        (failure("Busy: 100 executions are waiting already (maxWaiting)", Busy()), "transient_error"),
        (failure("the store is locked", StoreUnavailable()), "transient_error"),
        (failure("no", InvocationFailed(error_class="connection_error")), "connection_error"),
        (failure("ours is busy; try again later."), "permanent_error"),
        (failed_result("rate_limited"), "rate_limited"),
        (failed_result("connection_error"), "connection_error"),
        (failed_result("worse"), "permanent_error"),
        (Result(["no"], {"error": "timeout"}, is_error=True), "permanent_error"),
        (failure("no", denied_behind("no", "rate_limit")), "rate_limited"),
        (failure("rate limit exceeded: max 1/5s"), "permanent_error"),
        (PolicyDenied(), "permanent_error"),
        (PolicyDenied("no", "allow_list"), "permanent_error"),
        (PolicyDenied("no", "rate_limit"), "rate_limited"),
        (denied_behind("no", "rate_limit"), "rate_limited"),
        (UnknownTool("Unknown tool: other", "other"), "permanent_error"),
        (InsufficientScope(["a"]), "permanent_error"),
        (DeadlineExceeded(), "timeout"),
        (Busy(), "transient_error"),
    ],
)
@asynchronous
async def test_failures_of_a_call_have_an_error_class(make: Any, answer: Any, error_class: str) -> None:
    failed = await failure_of(make(Other(answer)))

    assert (failed.error_class, bool(failed.message)) == (error_class, True)


@asynchronous
async def test_a_real_capability_is_called_through_the_hub() -> None:
    hub = Hub("test", version="1")

    @hub.tool
    def double(number: int) -> int:
        return 2 * number

    async def invoke(name: str, arguments: dict[str, Any], caller: Any, meta: Mapping[str, Any]) -> Result:
        return await hub.runtime.invoke(name, arguments, caller)

    around = surroundings()
    around = ExecutorContext(around.connections, around.egress, invoke, around.call_upstream, around.run_child)
    run = Run(Scope({}, {"number": 21}, {}), "k", DetachedCaller(ANONYMOUS, FROM_OUTSIDE))
    wrong = Run(Scope({}, {"number": "x"}, {}), "k", DetachedCaller(ANONYMOUS, FROM_OUTSIDE))
    executor = build(model(kind="capability", capability="double"), around)

    assert await executor.run(run) == 42
    assert "Invalid arguments for tool double" in (await failure_of(executor, wrong)).message


@asynchronous
async def test_a_worker_is_called_by_its_function_with_the_key() -> None:
    other = Other({"sent": 1})

    assert await worker(other).run(a_run({"to": "a"}, key="k-1")) == {"sent": 1}
    assert other.calls == [("mail::send", {"to": "a"}, {"waypost/idempotencyKey": "k-1"})]


@asynchronous
async def test_a_function_can_be_called_by_the_name_of_its_capability() -> None:
    asked = []

    async def invoke(name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
        asked.append(name)
        if name != "mail__send":
            raise UnknownTool(f"Unknown tool: {name}", name)
        return {"sent": 1}

    assert await worker(invoke, arguments={"to": "b"}).run(a_run()) == {"sent": 1}
    assert asked == ["mail::send", "mail__send"]


@pytest.mark.parametrize(("function", "asked"), [("mail::send", ["mail::send", "mail__send"]), ("send", ["send"])])
@asynchronous
async def test_a_function_without_a_worker_is_a_connection_error(function: str, asked: list[str]) -> None:
    names = []

    async def invoke(name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
        names.append(name)
        raise UnknownTool(f"Unknown tool: {name}", name)

    failed = await failure_of(worker(invoke, function))
    assert (failed.error_class, failed.message) == ("connection_error", f"No worker offers {function} at the moment.")
    assert names == asked


@asynchronous
async def test_a_function_that_is_for_workers_only_is_a_permanent_failure() -> None:
    async def invoke(name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
        raise UnknownTool(f"Unknown tool: {name}", name)

    failed = await failure_of(worker(invoke, "state::set"))
    view = "state::set is internal to workers; a workflow cannot call it."
    assert (failed.error_class, failed.message) == ("permanent_error", view)


@asynchronous
async def test_a_function_that_fails_with_unknown_tool_is_not_called_twice() -> None:
    other = Other(UnknownTool("Unknown tool: smtp", "smtp"))
    failed = await failure_of(worker(other))

    assert (failed.message, len(other.calls)) == ("Unknown tool: smtp", 1)


@asynchronous
async def test_a_child_workflow_gets_its_input_the_key_and_its_timeout() -> None:
    ended = {"workflowId": "wf_1", "state": "done", "outcome": "succeeded", "context": {}}
    other = Other(ended)

    assert await child(other).run(a_run({"a": 1}, key="k-1")) == ended
    assert await child(other, input={"b": "$.context.b"}, timeoutMs=1500).run(a_run({}, {"b": 2}, key="k-2")) == ended
    assert other.calls == [
        ("deploy", {"a": 1}, {"key": "k-1", "within": None}),
        ("deploy", {"b": 2}, {"key": "k-2", "within": 1.5}),
    ]


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [(TimeoutError(), "timeout"), (WorkflowRefused("no such workflow", "UNKNOWN_ID"), "permanent_error")],
)
@asynchronous
async def test_failures_of_a_child_workflow_have_an_error_class(answer: Any, error_class: str) -> None:
    assert (await failure_of(child(Other(answer)))).error_class == error_class
