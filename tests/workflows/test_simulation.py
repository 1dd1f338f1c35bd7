"""Random walks through workflows: what they reach, and that they have no side effects."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.workflows.conftest import flow, model
from waypost.capabilities.schemas.validators import Validator
from waypost.workflows.definitions import Definition
from waypost.workflows.simulation import ISOLATED, Interests, Report, SchemaSampler, sample_pattern, simulate

END = {"terminal": True}


def defined(data: dict[str, Any]) -> Definition:
    definition = Definition("flow", model(data), ISOLATED)
    definition.compile()
    return definition


def walked(states: dict[str, Any], **more: Any) -> Report:
    options = {name: more.pop(name) for name in ("walks", "steps", "seed") if name in more}
    return simulate(defined(flow(states, **more)), **options)


def expr(text: str) -> list[dict[str, str]]:
    return [{"kind": "expr", "expr": text}]


def test_a_workflow_that_can_always_continue_is_ok() -> None:
    report = walked(
        {
            "a": {"transitions": {"go": {"target": "b"}, "stop": {"target": "c"}}},
            "b": {"transitions": {"back": {"target": "a"}, "end": {"target": "c"}}},
            "c": END,
        }
    )
    assert report.ok
    assert (report.never_reached, report.never_taken, report.dead_ends, report.chain_failures) == ([], [], [], [])
    assert report.endings["succeeded"] + report.endings.get("open", 0) == 200


def test_the_same_seed_gives_the_same_report() -> None:
    data = flow(
        {
            "a": {
                "transitions": {
                    "go": {"target": "b", "executor": {"kind": "human"}, "output": {"x": "$.output.reason"}}
                }
            },
            "b": {
                "transitions": {"back": {"target": "a"}, "end": {"target": "c", "guards": expr("$.arguments.n > 3")}}
            },
            "c": END,
        },
        inputSchema={"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
    )
    assert simulate(defined(data), seed=7) == simulate(defined(data), seed=7)
    assert simulate(defined(data), seed=7).states != simulate(defined(data), seed=8).states


def test_a_guard_on_an_executor_output_is_explored_both_ways() -> None:
    report = walked(
        {
            "a": {
                "transitions": {
                    "test": {
                        "target": "b",
                        "executor": {"kind": "cli", "command": "never-run"},
                        "output": {"coverage": "$.output.json.total.percent"},
                        "branches": [{"when": expr("$.context.coverage >= 90")[0], "target": "good"}],
                    }
                }
            },
            "b": {"transitions": {"again": {"target": "a"}}},
            "good": END,
        }
    )
    assert report.ok
    assert min(report.states.values()) > 10


@pytest.mark.parametrize(
    "text",
    [
        '$.context.x == "blue"',
        '$.context.x starts_with "v1."',
        '$.context.x matches "^v[0-9]+\\.[0-9]{2}(-rc|-beta)?$"',
        '$.context.x contains "needle"',
        '$.context.x in ["one", "two"]',
        '"gold" in $.context.x',
        "$.context.x",
        "!$.context.x && $.context.y > 41 && $.context.y < 43",
        "$.context.x.deep[1].flag == false",
        "$.context.x == null",
        "$.context.x != $.context.y",
    ],
)
def test_values_that_a_guard_needs_are_generated(text: str) -> None:
    report = walked(
        {
            "a": {
                "transitions": {"put": {"target": "b", "output": {"x": "$.arguments.first", "y": "$.arguments.second"}}}
            },
            "b": {"transitions": {"go": {"target": "c", "guards": expr(text)}, "back": {"target": "a"}}},
            "c": END,
        }
    )
    assert report.ok, report


def test_a_dead_end_is_reported_with_the_shortest_path() -> None:
    report = walked(
        {
            "a": {"transitions": {"put": {"target": "b", "output": {"ok": "$.arguments.ok"}}, "wait": {"target": "a"}}},
            "b": {"transitions": {"go": {"target": "c", "guards": expr("$.context.ok == true")}}},
            "c": END,
        }
    )
    assert not report.ok
    (dead_end,) = report.dead_ends
    assert dead_end.state == "b"
    assert dead_end.context["ok"] is not True
    assert [(step["transition"], step["to"]) for step in dead_end.steps] == [("put", "b")]
    assert dead_end.reasons == ["go: go is not allowed now: It is not true that $.context.ok == true."]
    assert report.endings["dead_end"] > 0


def test_a_state_without_transitions_is_a_dead_end() -> None:
    report = walked({"a": {"transitions": {"go": {"target": "b"}}}, "b": {}})
    assert report.dead_ends[0].reasons == ["No transition out of b can be taken by a caller."]


def test_a_timeout_leads_out_of_a_dead_end() -> None:
    states = {"a": {"transitions": {"go": {"target": "c", "guards": expr("false")}}}, "late": END, "c": END}
    report = walked(states, timeoutMs=1000, onTimeout={"target": "late"})
    assert (report.dead_ends, report.never_reached) == ([], ["c"])
    assert report.endings == {"failed": 200}


def test_unreached_states_and_untaken_transitions_are_reported_with_the_reason() -> None:
    report = walked(
        {
            "a": {
                "transitions": {
                    "go": {"target": "b"},
                    "never": {"target": "secret", "guards": expr("1 == 2")},
                }
            },
            "b": END,
            "secret": END,
            "island": END,
        }
    )
    assert not report.ok
    assert (report.never_reached, report.unreachable) == (["secret"], ["island"])
    (untaken,) = report.never_taken
    assert (untaken.state, untaken.transition) == ("a", "never")
    assert "It is not true that" in untaken.reason


def test_a_chain_that_stops_is_reported() -> None:
    auto = {"actor": "deterministic"}
    report = walked(
        {
            "a": {"transitions": {"put": {"target": "b", "output": {"n": "$.arguments.n"}}}},
            "b": {
                "transitions": {
                    "low": {"target": "c", "guards": expr("$.context.n < 5"), **auto},
                    "high": {"target": "c", "guards": expr("$.context.n > 5"), **auto},
                }
            },
            "c": END,
        }
    )
    assert not report.ok
    (failure,) = report.chain_failures
    assert failure.state == "b"
    assert failure.reasons[0].startswith("None of the deterministic transitions out of b can be taken")
    assert report.states["c"] > 0


def test_a_chain_in_a_cycle_is_reported() -> None:
    turn = {"actor": "deterministic"}
    report = walked(
        {"a": {"transitions": {"go": {"target": "b", **turn}}}, "b": {"transitions": {"go": {"target": "a", **turn}}}},
        walks=2,
    )
    assert "maxChainDepth" in report.chain_failures[0].reasons[0]


def test_approvals_are_simulated_and_leave_evidence() -> None:
    report = walked(
        {
            "a": {"transitions": {"ask": {"target": "b", "executor": {"kind": "human", "approvals": 2}}}},
            "b": {
                "transitions": {
                    "go": {
                        "target": "c",
                        "guards": [{"kind": "evidence", "requires": [{"kind": "human_approval", "count": 2}]}],
                    }
                }
            },
            "c": END,
        }
    )
    assert report.ok


@pytest.mark.parametrize(
    "transition",
    [
        {"actor": "human"},
        {"actor": "system"},
        {"guards": [{"kind": "role", "role": "lead"}, {"kind": "permission", "permission": "ship"}]},
        {"guards": [{"kind": "not", "guard": {"kind": "role", "role": "lead"}}]},
        {"executor": {"kind": "workflow", "definitionId": "other"}},
        {"executor": {"kind": "parallel", "branches": [{"kind": "noop"}]}},
    ],
)
def test_every_required_actor_is_simulated(transition: dict[str, Any]) -> None:
    assert walked({"a": {"transitions": {"go": {"target": "b", **transition}}}, "b": END}).ok


def test_a_simulation_runs_no_executors(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    cli = {"kind": "cli", "command": "touch", "args": [str(trace)]}
    report = walked(
        {
            "a": {"onEnter": {"executor": cli}, "transitions": {"go": {"target": "b", "executor": cli}}},
            "b": {"transitions": {"go": {"target": "c", "guards": [{"kind": "evidence", "requires": ["cli_output"]}]}}},
            "c": END,
        }
    )
    assert report.ok
    assert not trace.exists()


def test_a_simulation_takes_all_routes_of_steps() -> None:
    steps = [
        {
            "name": "fetch",
            "skill": "web",
            "routes": [{"branch": "on_error", "goto": "tell"}, {"branch": "default", "goto": 2}],
        },
        {"name": "sort", "skill": "sort"},
        {"name": "tell", "skill": "mail"},
    ]
    report = simulate(defined({"steps": steps}))
    assert report.ok
    assert set(report.states) == {"fetch", "sort", "tell", "completed", "failed"}
    assert min(report.states.values()) > 5


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 9, "maxLength": 10}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-f]{3}-\\d+$"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 4}}, "required": ["a"]},
    {
        "type": "object",
        "properties": {"a": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 5}},
        "required": ["a"],
    },
    {"type": "object", "properties": {"a": {"enum": ["x", 1, None]}, "b": {"const": 7}}, "required": ["a", "b"]},
    {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "minItems": 2}},
        "required": ["a"],
    },
    {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "string", "format": "email"}]}},
        "required": ["a"],
    },
    {"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"]}]},
    {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/leaf"}},
        "required": ["a"],
        "$defs": {"leaf": {"type": ["string", "null"]}},
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_arguments_fit_their_schema(schema: dict[str, Any]) -> None:
    validator = Validator(schema)
    made = [SchemaSampler(schema, Random(seed)).value(schema, (), 0) for seed in range(50)]
    assert sum(map(validator.is_valid, made)) == 50


def test_a_schema_without_matching_values_is_reported() -> None:
    nothing = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^a$", "minLength": 5}},
        "required": ["a"],
    }
    report = walked({"a": {"transitions": {"go": {"target": "b", "inputSchema": nothing}}}, "b": END}, walks=3)
    assert report.dead_ends[0].reasons == ["go: No arguments were found that match the schema of go."]


def test_the_values_of_guards_are_traced_back_to_their_source() -> None:
    definition = defined(
        flow(
            {
                "a": {"transitions": {"put": {"target": "b", "output": {"one": "$.arguments.it"}}}},
                "b": {"transitions": {"copy": {"target": "c", "output": {"two": "$.context.one"}}}},
                "c": {"transitions": {"go": {"target": "d", "guards": expr("$.context.two.size == 12")}}},
                "d": END,
            }
        )
    )
    assert Interests(definition).of("arguments of a.put")[("it", "size")] == [12, 11, 13]


@pytest.mark.parametrize("pattern", ["^ab?c*$", "[^a-z]x", "(one|two){2}", "\\w\\s\\d", ".+", "("])
def test_a_sample_of_a_pattern_matches_it(pattern: str) -> None:
    for seed in range(10):
        text = sample_pattern(pattern, Random(seed))
        assert text == "" if pattern == "(" else re.search(pattern, text)
