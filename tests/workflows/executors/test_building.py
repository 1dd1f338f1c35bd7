"""Building executors from models, and helpers for the tests of all executors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE
from waypost.capabilities.results import Result, to_result
from waypost.config.models import Connection, Reliability
from waypost.errors import DefinitionError, ExecutorFailed
from waypost.kinds import ExecutorModel, convert
from waypost.outbound.egress import Egress
from waypost.workflows.executors import EXECUTORS, build, is_idempotent, supervise
from waypost.workflows.executors.human import Human
from waypost.workflows.executors.kind import Executor, ExecutorContext, Run
from waypost.workflows.scope import Scope

Handler = Callable[[str, dict[str, Any], Mapping[str, Any]], Awaitable[Any]]


async def _nothing(name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
    raise AssertionError(f"nobody was to call {name}")


def surroundings(
    connections: Mapping[str, Connection] | None = None,
    *,
    egress: Callable[[bool], Egress] = Egress,
    invoke: Handler = _nothing,
    upstream: Handler = _nothing,
    child: Handler = _nothing,
) -> ExecutorContext:
    """An executor context; the handlers get a name, arguments and metadata."""

    async def invoked(name: str, arguments: dict[str, Any], caller: Caller, meta: Mapping[str, Any]) -> Result:
        return to_result(await invoke(name, arguments, meta))

    async def called(
        connection: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any], principal: str
    ) -> dict[str, Any]:
        answer: dict[str, Any] = await upstream(f"{connection}.{tool}", arguments, meta)
        return answer

    async def ran(
        definition: str, given: dict[str, Any], key: str, caller: Caller, within: float | None
    ) -> dict[str, Any]:
        answer: dict[str, Any] = await child(definition, given, {"key": key, "within": within})
        return answer

    return ExecutorContext(lambda: connections or {}, egress, invoked, called, ran)


def model(**written: Any) -> ExecutorModel:
    """An executor as it is written in a file."""
    return convert(written, ExecutorModel)


def a_run(
    arguments: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    given: dict[str, Any] | None = None,
    *,
    key: str = "key-1",
) -> Run:
    """One execution."""
    return Run(Scope(context or {}, arguments or {}, given or {}), key, DetachedCaller(ANONYMOUS, FROM_OUTSIDE))


async def failure_of(executor: Executor, run: Run | None = None) -> ExecutorFailed:
    """The failure of an executor that must fail."""
    with pytest.raises(ExecutorFailed) as caught:
        await executor.run(run or a_run())
    return caught.value


KINDS: list[tuple[dict[str, Any], str | None]] = [
    ({"kind": "noop"}, None),
    ({"kind": "cli", "command": "true"}, "cli_output"),
    ({"kind": "script", "file": "x", "sha256": "0" * 64}, "script_output"),
    ({"kind": "rest", "connection": "api"}, "rest_call"),
    ({"kind": "mcp", "connection": "github", "tool": "push"}, "mcp_tool_result"),
    ({"kind": "capability", "capability": "x"}, "capability_result"),
    ({"kind": "worker", "function": "a::b"}, "worker_result"),
    ({"kind": "workflow", "definitionId": "x"}, "workflow_result"),
    ({"kind": "parallel", "branches": [{"kind": "noop"}]}, "parallel_result"),
    ({"kind": "pipeline", "steps": [{"kind": "noop"}]}, "pipeline_result"),
]


@pytest.mark.parametrize(("written", "evidence"), KINDS, ids=[str(written["kind"]) for written, _ in KINDS])
def test_every_kind_is_built_with_its_own_kind_of_evidence(written: dict[str, Any], evidence: str | None) -> None:
    built = build(model(**written), surroundings())

    assert (built.kind, built.evidence) == (written["kind"], evidence)


def test_every_model_except_human_has_an_executor() -> None:
    built = {type(model(**written)) for written, _ in KINDS}

    assert built | {Human} == {kind.model for kind in EXECUTORS}


@pytest.mark.parametrize(
    "written",
    [
        {"kind": "human"},
        {"kind": "pipeline", "steps": [{"kind": "human"}]},
        {"kind": "parallel", "branches": [{"kind": "human"}]},
        {"kind": "parallel", "forEach": [1], "do": {"kind": "human"}},
    ],
)
def test_an_approval_is_refused_inside_other_executors(written: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="an approval is only possible directly in a transition"):
        build(model(**written), surroundings())


def test_an_approval_cannot_be_a_fallback() -> None:
    reliability = convert({"fallback": {"executors": [{"kind": "human"}]}}, Reliability)

    with pytest.raises(DefinitionError, match="an approval"):
        supervise(model(kind="noop"), reliability, surroundings())


@asynchronous
async def test_a_supervised_executor_is_built_with_its_fallback() -> None:
    reliability = convert({"fallback": {"executors": [{"kind": "noop"}]}}, Reliability)
    supervised = supervise(model(kind="cli", command="/nowhere/to/be/found"), reliability, surroundings())
    output, attempts = await supervised.run(a_run())

    assert output == {}
    assert [(one["executor"], one.get("errorClass")) for one in attempts] == [
        ("cli", "connection_error"),
        ("noop", None),
    ]


@pytest.mark.parametrize(
    "written",
    [
        {"kind": "cli"},
        {"kind": "cli", "command": "a", "connection": "b"},
        {"kind": "parallel"},
        {"kind": "parallel", "forEach": [1]},
        {"kind": "parallel", "do": {"kind": "noop"}},
        {"kind": "parallel", "branches": [{"kind": "noop"}], "forEach": [1], "do": {"kind": "noop"}},
        {"kind": "parallel", "branches": [{"kind": "noop"}], "do": {"kind": "noop"}},
        {"kind": "parallel", "branches": [{"kind": "noop"}], "join": {}},
        {"kind": "parallel", "branches": [{"kind": "noop"}], "join": {"atLeast": 2}},
    ],
)
def test_an_invalid_executor_is_refused(written: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        build(model(**written), surroundings())


@pytest.mark.parametrize("path", ["$.branch.value", "$.steps[0].output", "$.previous", "$.output.x"])
def test_paths_of_nested_executors_are_refused_elsewhere(path: str) -> None:
    with pytest.raises(DefinitionError, match="not known here"):
        build(model(kind="cli", command="echo", args=[path]), surroundings())


def nested(depth: int) -> dict[str, Any]:
    """Parallel executors inside each other, with a pipeline around each."""
    inner: dict[str, Any] = {"kind": "noop"}
    for _ in range(depth):
        inner = {"kind": "pipeline", "steps": [{"kind": "parallel", "branches": [inner]}]}
    return inner


def test_parallel_executors_may_be_nested_three_deep() -> None:
    build(model(**nested(3)), surroundings())

    with pytest.raises(DefinitionError, match="at most 3 deep"):
        build(model(**nested(4)), surroundings())


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"kind": "noop"}, True),
        ({"kind": "cli", "command": "x"}, False),
        ({"kind": "cli", "command": "x", "idempotent": True}, True),
        ({"kind": "pipeline", "steps": [{"kind": "noop"}, {"kind": "noop"}]}, True),
        ({"kind": "pipeline", "steps": [{"kind": "noop"}, {"kind": "cli", "command": "x"}]}, False),
        ({"kind": "pipeline", "idempotent": True, "steps": [{"kind": "cli", "command": "x"}]}, True),
        ({"kind": "parallel", "branches": [{"kind": "noop"}]}, True),
        ({"kind": "parallel", "branches": [nested(1), {"kind": "cli", "command": "x"}]}, False),
        ({"kind": "parallel", "forEach": [], "do": {"kind": "noop"}}, True),
        ({"kind": "parallel", "forEach": [], "do": {"kind": "cli", "command": "x"}}, False),
    ],
)
def test_an_executor_of_only_idempotent_executors_is_idempotent(written: dict[str, Any], expected: bool) -> None:
    assert is_idempotent(model(**written)) is expected


@asynchronous
async def test_one_executor_serves_many_runs_at_once() -> None:
    built = build(model(kind="cli", command="echo", args=["$.arguments.word"]), surroundings())
    outputs = await asyncio.gather(*(built.run(a_run({"word": str(number)})) for number in range(5)))

    assert [output["json"] for output in outputs] == [0, 1, 2, 3, 4]


@asynchronous
async def test_a_noop_has_an_empty_output() -> None:
    assert await build(model(kind="noop"), surroundings()).run(a_run()) == {}
