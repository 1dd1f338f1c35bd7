"""Replaying histories against current definitions: allowed, refused and unknown moves."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, OPERATOR, Bench, Json, bench, flow, model
from waypost.errors import WaypostError
from waypost.workflows.definitions import Definition
from waypost.workflows.instance import detached_caller
from waypost.workflows.replay import Replay, parse_recording, replay
from waypost.workflows.resources import Runs
from waypost.workflows.simulation import ISOLATED

SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}}
FLOW = flow(
    {
        "draft": {
            "transitions": {
                "measure": {
                    "target": "sized",
                    "inputSchema": SIZE,
                    "output": {"size": "$.arguments.size", "apiKey": "$.arguments.key"},
                }
            }
        },
        "sized": {
            "transitions": {
                "sort": {
                    "target": "small",
                    "actor": "deterministic",
                    "branches": [{"when": {"kind": "expr", "expr": "$.context.size > 10"}, "target": "large"}],
                }
            }
        },
        "small": {"transitions": {"ask": {"target": "done", "executor": {"kind": "human"}}}},
        "large": {
            "transitions": {
                "ask": {"target": "done", "executor": {"kind": "human"}, "output": {"by": "$.output.approvers"}}
            }
        },
        "done": {"terminal": True},
    },
    inputSchema={"type": "object", "properties": {"name": {"type": "string"}}},
)


async def history(found: Bench, size: int = 12) -> Json:
    """The recorded history of an instance of the workflow."""
    view = await found.start(by=ANN, given={"name": "x"})
    view = await found.submit(view, "measure", {"size": size, "key": "wp_secret"}, by=ANN)
    view = await found.submit(view, "ask", by=ANN)
    await found.engine.approvals.reject(view["approval"]["id"], OPERATOR, "cli")
    view = await found.submit(await found.get(view, ANN), "ask", by=ANN)
    await found.engine.approvals.approve(view["approval"]["id"], OPERATOR, "cli")
    answer = await Runs(found.engine, found.hub.store).show(view.id, detached_caller(OPERATOR, view.id))
    return answer.data


def against(data: Json, definition: Json) -> Replay:
    return replay(Definition("flow", model(definition), ISOLATED), parse_recording(data))


def verdicts(data: Json, definition: Json) -> dict[str, str]:
    return {commit.transition: commit.verdict for commit in against(data, definition).commits}


def reasons(data: Json, definition: Json, transition: str) -> list[Json]:
    return next(one.reasons for one in against(data, definition).commits if one.transition == transition)


def changed(*place: str, **entries: Any) -> Json:
    """The workflow with one part changed."""
    other = copy.deepcopy(FLOW)
    target = other
    for key in place:
        target = target[key]
    target |= entries
    return other


@asynchronous
async def test_a_history_is_allowed_by_its_own_definition() -> None:
    async with bench(FLOW) as found:
        data = await history(found)
        assert [row["transition"] for row in data["history"]] == ["$start", "measure", "sort", "ask", "ask"]
        result = against(data, FLOW)
        assert result.ok
        assert [(commit.version, commit.transition, commit.verdict) for commit in result.commits] == [
            (1, "$start", "allowed"),
            (2, "measure", "not_known"),  # the arguments are only known by their digest
            (3, "sort", "allowed"),
            (4, "ask", "allowed"),
        ]
        assert (result.workflow_id, result.definition_id) == (data["workflowId"], "flow")


CHANGES: list[tuple[str, Json, str, str]] = [
    ("a first state", changed(initialState="small"), "$start", "The initial state is small now, not draft."),
    (
        "a schema of the input",
        changed("inputSchema", required=["colour"]),
        "$start",
        "The input does not match the schema any more",
    ),
    (
        "a transition that is gone",
        changed("states", "draft", transitions={"weigh": {"target": "sized"}}),
        "measure",
        "draft has no transition measure any more.",
    ),
    (
        "a target",
        changed("states", "draft", "transitions", "measure", target="small"),
        "measure",
        "measure leads to small now, not to sized.",
    ),
    (
        "an actor",
        changed("states", "sized", "transitions", "sort", actor="agent"),
        "sort",
        "sort is not taken automatically any more.",
    ),
    (
        "a branch",
        changed(
            "states",
            "sized",
            "transitions",
            "sort",
            branches=[{"when": {"kind": "expr", "expr": "$.context.size > 20"}, "target": "large"}],
        ),
        "sort",
        "sort leads to small now, not to large.",
    ),
    (
        "another way on",
        changed(
            "states",
            "sized",
            transitions={
                **FLOW["states"]["sized"]["transitions"],
                "skip": {
                    "target": "small",
                    "actor": "deterministic",
                    "guards": [{"kind": "expr", "expr": "$.context.size == 12"}],
                },
            },
        ),
        "sort",
        "skip can be taken automatically now.",
    ),
    (
        "a guard",
        changed("states", "large", "transitions", "ask", guards=[{"kind": "expr", "expr": "$.context.size < 12"}]),
        "ask",
        "It is not true that $.context.size < 12.",
    ),
    (
        "evidence",
        changed("states", "large", "transitions", "ask", evidence={"requires": ["cli_output"]}),
        "ask",
        'There is no evidence of the kind "cli_output".',
    ),
    (
        "a role",
        changed("states", "large", "transitions", "ask", guards=[{"kind": "role", "role": "lead"}]),
        "ask",
        'The caller lacks the role "lead".',
    ),
    (
        "arguments",
        changed("states", "large", "transitions", "ask", inputSchema={"type": "object", "required": ["why"]}),
        "ask",
        "The arguments do not match the schema any more",
    ),
]


@pytest.mark.parametrize(
    ("definition", "transition", "message"), [one[1:] for one in CHANGES], ids=[c[0] for c in CHANGES]
)
@asynchronous
async def test_a_move_that_would_be_refused_has_a_reason(definition: Json, transition: str, message: str) -> None:
    async with bench(FLOW) as found:
        data = await history(found)
        assert not against(data, definition).ok
        assert verdicts(data, definition)[transition] == "refused"
        assert message in " ".join(reason["message"] for reason in reasons(data, definition, transition))


@asynchronous
async def test_a_refused_guard_is_reported_with_its_values() -> None:
    async with bench(FLOW) as found:
        guard = {"kind": "expr", "expr": "$.context.size < 12"}
        (reason,) = reasons(
            await history(found), changed("states", "large", "transitions", "ask", guards=[guard]), "ask"
        )
        assert (reason["guard"], reason["operands"]) == (guard, {"$.context.size": 12})


@asynchronous
async def test_moves_into_and_out_of_a_removed_state_are_refused() -> None:
    definition = copy.deepcopy(FLOW)
    definition["states"]["big"] = definition["states"].pop("large")
    definition["states"]["sized"]["transitions"]["sort"]["branches"][0]["target"] = "big"
    async with bench(FLOW) as found:
        data = await history(found)
        assert verdicts(data, definition) == {
            "$start": "allowed",
            "measure": "not_known",
            "sort": "refused",
            "ask": "refused",
        }
        assert reasons(data, definition, "ask") == [{"message": "The state large does not exist any more."}]


@pytest.mark.parametrize(
    ("guard", "verdict"),
    [
        ({"kind": "expr", "expr": "$.arguments.size == 12"}, "not_known"),
        ({"kind": "not", "guard": {"kind": "expr", "expr": "$.arguments.size == 12"}}, "not_known"),
        ({"kind": "expr", "expr": "$.context.apiKey == null"}, "not_known"),
        (
            {
                "kind": "any_of",
                "guards": [{"kind": "expr", "expr": "$.arguments.a"}, {"kind": "role", "role": "human"}],
            },
            "not_known",
        ),
        (
            {
                "kind": "all_of",
                "guards": [{"kind": "expr", "expr": "$.arguments.a"}, {"kind": "expr", "expr": "$.input.name == 'y'"}],
            },
            "refused",
        ),
    ],
)
@asynchronous
async def test_a_guard_on_unrecorded_values_is_not_known(guard: Json, verdict: str) -> None:
    definition = changed("states", "draft", "transitions", "measure", guards=[guard])
    async with bench(FLOW) as found:
        assert verdicts(await history(found), definition)["measure"] == verdict


@asynchronous
async def test_a_secret_is_not_known() -> None:
    guard = {"kind": "expr", "expr": '$.context.apiKey == "wp_secret"'}
    async with bench(FLOW) as found:
        data = await history(found)
        assert "wp_secret" not in str(data)
        definition = changed("states", "large", "transitions", "ask", guards=[guard])
        assert verdicts(data, definition)["ask"] == "not_known"


@asynchronous
async def test_cancellations_and_timeouts_are_replayed_too() -> None:
    timed = {**FLOW, "timeoutMs": 1, "onTimeout": {"target": "done"}}
    async with bench(timed, plain=FLOW) as found:
        view = await found.start(by=ANN)
        while (await found.get(view, ANN))["status"] != "timed_out":
            pass
        runs = Runs(found.engine, found.hub.store)
        data = (await runs.show(view.id, detached_caller(ANN, view.id))).data
        assert verdicts(data, timed) == {"$start": "allowed", "$timeout": "allowed"}
        assert verdicts(data, FLOW)["$timeout"] == "refused"
        other = await found.start("plain", by=ANN)
        await found.engine.cancel(other.id, detached_caller(ANN, other.id))
        data = (await runs.show(other.id, detached_caller(ANN, other.id))).data
        assert verdicts(data, FLOW) == {"$start": "allowed", "$cancel": "allowed"}


@pytest.mark.parametrize("data", [None, [], {}, {"history": 1}, {"history": ["x"]}, {"history": [{"delta": 1}]}])
def test_data_that_is_not_a_history_is_refused(data: Any) -> None:
    with pytest.raises(WaypostError, match="This is not the history of a workflow instance"):
        parse_recording(data)
