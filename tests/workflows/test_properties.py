"""Random definitions: links can be followed, versions are rows, and reading changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workflows.conftest import ANN, WORK, Bench, Json, View, bench, flow
from waypost.capabilities.principals import ANONYMOUS

STEPS = 12
NEVER = {"STALE_WORKFLOW_VERSION", "INVALID_TRANSITION", "UNKNOWN_WORKFLOW", "INPUT_SCHEMA_VIOLATION"}
KEEPS_PROGRESS = {"CHAIN_FAILED", "CHAIN_DEPTH_EXCEEDED"}
NUMBER: Json = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
TEXT: Json = {"type": "object", "properties": {"s": {"type": "string", "default": "x"}}}
EXPRESSIONS = (
    *("$.context.n > 1", "$.context.n <= 1", "$.context.flag == true", "!($.context.flag == true)"),
    *(
        "$.arguments.n >= 0",
        "$.input.level == 2 || $.context.n > 3",
        "$.workflow.version < 6",
        "$.context.gone == null",
    ),
)
OUTPUTS: tuple[Json, ...] = (
    {},
    {"n": {"add": ["$.context.n", 1]}},
    {"n": {"subtract": ["$.context.n", "$.arguments.n"]}, "flag": True},
    {"flag": {"set": False}, "s": {"concat": ["v", "$.context.n", "$.arguments.s"]}},
    {"n": {"divide": ["$.context.n", 0]}},
    {"got": "$.output", "flag": "$.context.flag"},
)


def guard() -> st.SearchStrategy[Json]:
    plain: st.SearchStrategy[Json] = st.sampled_from(EXPRESSIONS).map(lambda expr: {"kind": "expr", "expr": expr})
    role: st.SearchStrategy[Json] = st.just({"kind": "role", "role": "human"})
    either = plain | role
    return (
        either
        | either.map(lambda one: {"kind": "not", "guard": one})
        | st.lists(either, max_size=2).map(lambda many: {"kind": "any_of", "guards": many})
    )


def transitions(states: list[str]) -> st.SearchStrategy[Json]:
    target = st.sampled_from(states)
    executors: list[Json] = [{"kind": "noop"}, WORK, {"kind": "human"}, {"kind": "pipeline", "steps": [WORK]}]
    branch = st.fixed_dictionaries({"when": guard(), "target": target})
    return st.fixed_dictionaries(
        {"target": target},
        optional={
            "actor": st.sampled_from(["agent", "agent", "human", "deterministic", "system"]),
            "guards": st.lists(guard(), max_size=2),
            "executor": st.sampled_from(executors),
            "output": st.sampled_from(OUTPUTS),
            "branches": st.lists(branch, max_size=2),
            "inputSchema": st.sampled_from([NUMBER, TEXT]),
            "prefill": st.sampled_from([{"s": "$.context.s"}, {"n": 3}, {"n": "$.context.gone"}]),
        },
    )


@st.composite
def definitions(draw: st.DrawFn) -> Json:
    names = [f"s{number}" for number in range(draw(st.integers(2, 5)))]
    states: Json = {}
    for name in names[:-1]:
        given_names = draw(st.lists(st.sampled_from(["go", "on", "ask", "try"]), min_size=1, max_size=3, unique=True))
        ways = {way: draw(transitions(names)) for way in given_names}
        if draw(st.integers(0, 3)) == 0:
            for way in ways.values():
                way["actor"] = "deterministic"
        states[name] = {"transitions": ways}
        if draw(st.integers(0, 4)) == 0:
            states[name]["onEnter"] = {
                "executor": draw(st.sampled_from([{"kind": "noop"}, WORK])),
                "output": {"in": name},
            }
        if draw(st.booleans()):
            states[name]["linkFilter"] = draw(st.sampled_from(["all", "byGuards"]))
    states[names[-1]] = {"terminal": True}
    return flow(states, maxChainDepth=draw(st.integers(1, 4)), initialContext={"n": draw(st.integers(0, 2))})


def arguments(schema: Json | None) -> st.SearchStrategy[Json]:
    """Arguments that a schema allows."""
    if schema == NUMBER:
        return st.fixed_dictionaries({"n": st.integers(-3, 5)})
    if schema == TEXT:
        return st.fixed_dictionaries({}, optional={"s": st.text(max_size=3)})
    return st.just({})


async def check_standing(b: Bench, view: View) -> View:
    """Check the invariants of an instance."""
    seen = await b.get(view)
    assert (await b.get(view)).data == seen.data
    assert len(await b.history(view)) == seen["version"] == view["version"]
    definition = b.engine.library.get("flow")
    assert definition is not None
    state = definition.states[seen["state"]]
    assert bool(seen.data.get("terminal")) == state.model.terminal
    if state.model.terminal:
        assert seen["links"] == []
    else:
        assert seen["links"] or not state.chained, "it goes on by itself, and stands still, and nobody can help"
    return seen


async def walk(definition: Json, data: st.DataObject) -> None:
    async with bench(definition) as b:
        view = await b.start(given={"level": data.draw(st.integers(1, 2))})
        assert view.code in (None, *KEEPS_PROGRESS)
        for _ in range(STEPS):
            seen = await check_standing(b, view)
            if seen.data.get("terminal") or not seen["links"]:
                return
            view = await step(b, seen, data)


async def step(b: Bench, seen: View, data: st.DataObject) -> View:
    """Follow a link, or decide a pending approval."""
    if "approval" in seen.data:
        approvals, number = b.engine.approvals, seen["approval"]["id"]
        await (approvals.approve if data.draw(st.booleans()) else approvals.reject)(number, ANN, "cli")
        return await b.get(seen)
    link = data.draw(st.sampled_from(seen["links"]))
    b.work.fails = data.draw(st.sampled_from([0, 0, 0, 1]))
    by = ANN if link.get("actor") == "human" else ANONYMOUS
    more: dict[str, Any] = {"arguments": data.draw(arguments(link.get("inputSchema")))} if "inputSchema" in link else {}
    view = await b.call(link["method"], by, **{**link["args"], **more})
    assert view.code not in NEVER, view.data
    if view.refused and view.code not in KEEPS_PROGRESS:
        after = await b.get(seen)
        assert after.at == seen.at
        assert "self" in view.rels
    return view


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition=definitions(), data=st.data())
def test_every_link_can_be_followed_and_every_version_is_a_row(definition: Json, data: st.DataObject) -> None:
    asyncio.run(walk(definition, data))
