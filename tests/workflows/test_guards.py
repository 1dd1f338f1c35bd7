"""Guards: which hold, and the reasons for those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from waypost.capabilities.principals import Principal
from waypost.errors import DefinitionError
from waypost.kinds import GuardModel, convert
from waypost.workflows.guards import compile_guard, compile_guards, redact
from waypost.workflows.guards.expr import ExprGuard
from waypost.workflows.guards.not_ import Not
from waypost.workflows.scope import Proof, Scope

LEAD = Principal("ann", roles=("lead", "human"), permissions=("deploy",))
CONTEXT: dict[str, Any] = {"tests": True, "coverage": 74, "api_token": "hunter2", "login": {"Password": "pw", "n": 1}}
PROOFS = (Proof("review", "ann", 1), Proof("review", "ann", 2), Proof("build", "ci", 2))
SCOPE = Scope(CONTEXT, {"env": "prod"}, {}, principal=LEAD, evidence=PROOFS)


def guard(data: dict[str, Any]) -> GuardModel:
    return convert(data, GuardModel)


def expr(text: str) -> dict[str, Any]:
    return {"kind": "expr", "expr": text}


def any_of(*guards: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "any_of", "guards": list(guards)}


def all_of(*guards: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "all_of", "guards": list(guards)}


def negated(inner: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "not", "guard": inner}


def needs(*requires: Any) -> dict[str, Any]:
    return {"kind": "evidence", "requires": list(requires)}


YES, NO = expr("true"), expr("false")


@pytest.mark.parametrize(
    ("data", "holds"),
    [
        (expr("$.context.tests == true"), True),
        (expr("$.context.coverage >= 80"), False),
        ({"kind": "jsonpath", "expr": "$.context.tests"}, True),
        ({"kind": "permission", "permission": "deploy"}, True),
        ({"kind": "permission", "permission": "lead"}, False),
        ({"kind": "role", "role": "lead"}, True),
        ({"kind": "role", "role": "deploy"}, False),
        (needs("review"), True),
        (needs("review", "build"), True),
        (needs("audit"), False),
        (needs("review", "audit"), False),
        (needs({"kind": "review"}), True),
        (needs({"kind": "review", "count": 2}), False),
        (needs({"kind": "build", "count": 1}, "review"), True),
        (all_of(), True),
        (all_of(YES, YES), True),
        (all_of(YES, NO), False),
        (any_of(), False),
        (any_of(NO, YES), True),
        (any_of(NO, NO), False),
        (negated(NO), True),
        (negated(YES), False),
        (negated(any_of()), True),
        (negated(all_of(YES, any_of(NO, negated(NO)))), False),
    ],
)
def test_a_guard_holds_when_it_should(data: dict[str, Any], holds: bool) -> None:
    compiled = compile_guard(guard(data))

    assert compiled.holds(SCOPE) is holds
    assert bool(compiled.failures(SCOPE)) is not holds


def test_a_guard_keeps_its_original_data() -> None:
    written = all_of(
        expr("$.context.a==1"), negated(any_of(needs({"kind": "k", "count": 2}), {"kind": "role", "role": "r"}))
    )

    assert compile_guard(guard(written)).data == written


def test_human_request_evidence_is_satisfied_by_approvals() -> None:
    compiled = compile_guard(guard(needs({"kind": "human_request", "count": 2})))
    one = Proof("human_approval", "ann", 1)
    assert not compiled.holds(replace(SCOPE, evidence=(one,)))
    assert compiled.holds(replace(SCOPE, evidence=(one, Proof("human_approval", "bob", 2))))
    assert compiled.holds(replace(SCOPE, evidence=(one, Proof("human_request", "bob", 2))))


def test_evidence_counts_different_people() -> None:
    compiled = compile_guard(guard(needs({"kind": "review", "count": 2})))

    assert not compiled.holds(SCOPE)
    assert compiled.holds(replace(SCOPE, evidence=(*PROOFS, Proof("review", "bob", 3))))


def test_a_scope_without_a_principal_has_no_roles_or_permissions() -> None:
    scope = Scope({}, {"roles": ["lead"]}, {"role": "lead"})

    assert not compile_guard(guard({"kind": "role", "role": "lead"})).holds(scope)
    assert not compile_guard(guard({"kind": "permission", "permission": "deploy"})).holds(scope)


def test_no_guards_hold() -> None:
    guards = compile_guards([])

    assert guards.holds(SCOPE)
    assert guards.failures(SCOPE) == []


def test_guards_hold_when_all_do_and_report_each_failure() -> None:
    guards = compile_guards([guard(NO), guard(YES), guard({"kind": "role", "role": "boss"})])

    assert not guards.holds(SCOPE)
    assert [reason["guard"]["kind"] for reason in guards.failures(SCOPE)] == ["expr", "role"]
    assert compile_guards([guard(YES), guard(YES)]).holds(SCOPE)


@pytest.mark.parametrize(
    ("data", "message", "operands"),
    [
        (
            expr("$.context.tests && $.context.coverage >= 80"),
            "It is not true that $.context.coverage >= 80.",
            {"$.context.coverage": 74},
        ),
        (
            expr("$.context.coverage >= 80 || $.context.waived == true"),
            "None of this is true: $.context.coverage >= 80; $.context.waived == true.",
            {"$.context.coverage": 74, "$.context.waived": None},
        ),
        ({"kind": "permission", "permission": "p"}, 'The caller lacks the permission "p".', {}),
        ({"kind": "role", "role": "boss"}, 'The caller lacks the role "boss".', {}),
        (
            needs({"kind": "review", "count": 2}, "audit", "build"),
            'Evidence of the kind "review" is needed from 2 different people or agents, and is from 1; '
            'there is no evidence of the kind "audit".',
            {"review": 1, "audit": 0, "build": 1},
        ),
        (any_of(), "There is no guard of which one could hold.", {}),
        (
            any_of({"kind": "role", "role": "boss"}, all_of(YES, expr("$.context.coverage > 99"))),
            'No guard of several holds: the caller lacks the role "boss"; it is not true that $.context.coverage > 99.',
            {"$.context.coverage": 74},
        ),
        (
            negated(expr("$.context.coverage < 80")),
            "A guard of the kind expr holds that must not.",
            {"$.context.coverage": 74},
        ),
        (negated({"kind": "role", "role": "lead"}), "A guard of the kind role holds that must not.", {}),
    ],
)
def test_a_reason_has_a_message_and_the_values_that_were_read(
    data: dict[str, Any], message: str, operands: dict[str, Any]
) -> None:
    (reason,) = compile_guard(guard(data)).failures(SCOPE)

    assert reason["message"] == message
    assert reason["operands"] == operands
    assert reason["guard"]["kind"] == data["kind"]


def test_all_of_reports_each_failing_guard() -> None:
    reasons = compile_guard(guard(all_of(NO, YES, all_of({"kind": "role", "role": "boss"})))).failures(SCOPE)

    assert [reason["guard"] for reason in reasons] == [NO, {"kind": "role", "role": "boss"}]


@pytest.mark.parametrize(
    ("text", "shown", "operands"),
    [
        (
            '$.context.api_token == "s3cret"',
            '$.context.api_token == "[REDACTED]"',
            {"$.context.api_token": "[REDACTED]"},
        ),
        (
            '"s3cret"==$.arguments.PASSWORD && true',
            '"[REDACTED]" == $.arguments.PASSWORD && true',
            {"$.arguments.PASSWORD": None},
        ),
        (
            '!($.context.api_token in ["hunter2", "s3cret"])',
            '!($.context.api_token in "[REDACTED]")',
            {"$.context.api_token": "[REDACTED]"},
        ),
        ("$.context.has_token == true", "$.context.has_token == true", {"$.context.has_token": None}),
        ("$.context.login==1", "$.context.login==1", {"$.context.login": {"Password": "[REDACTED]", "n": 1}}),
    ],
)
def test_reasons_contain_no_secrets(text: str, shown: str, operands: dict[str, Any]) -> None:
    (reason,) = compile_guard(guard(expr(text))).failures(SCOPE)

    assert reason["guard"] == expr(shown)
    assert reason["operands"] == operands
    assert "s3cret" not in json.dumps(reason)
    assert "hunter2" not in json.dumps(reason)


def test_reasons_of_nested_guards_contain_no_secrets() -> None:
    secret = expr('$.context.api_token == "s3cret"')
    opened = expr('$.context.api_token == "hunter2"')
    reasons = compile_guards([guard(any_of(secret)), guard(negated(opened)), guard(all_of(secret))]).failures(SCOPE)

    assert len(reasons) == 3
    assert "s3cret" not in json.dumps(reasons)
    assert "hunter2" not in json.dumps(reasons)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("short", "short"),
        ("x" * 500, "x" * 200 + "…"),
        (list(range(30)), [*range(10), "… 20 more"]),
        ([[[[[1]]]]], [[[["…"]]]]),
        (
            {"token": True, "secret": None, "Authorization": "Bearer x"},
            {"token": True, "secret": None, "Authorization": "[REDACTED]"},
        ),
        ({"list": [{"apiKey": [1, 2]}]}, {"list": [{"apiKey": "[REDACTED]"}]}),
        ({f"n{n}": n for n in range(12)}, {f"n{n}": n for n in range(10)} | {"…": "2 more"}),
        (10**20, 10**20),
    ],
)
def test_values_are_shown_without_secrets_and_clipped(value: Any, shown: Any) -> None:
    assert redact(value) == shown


def test_the_expressions_of_nested_guards_are_found() -> None:
    guards = compile_guards(
        [guard(all_of(expr("$.context.a"), negated(any_of(expr("$.context.b"))))), guard(expr("$.context.c"))]
    )

    assert [expression.text for expression in guards.expressions] == ["$.context.a", "$.context.b", "$.context.c"]


def test_an_invalid_guard_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot be read at position"):
        compile_guards([guard(negated(expr("$.context.a =")))])
    with pytest.raises(DefinitionError, match="not known here"):
        compile_guard(guard(expr("$.output.a")))


def test_guards_nested_too_deeply_are_refused() -> None:
    deep: GuardModel = ExprGuard(expr="true")
    for _ in range(70):
        deep = Not(guard=deep)

    with pytest.raises(DefinitionError, match="nested deeper than 64"):
        compile_guard(deep)


HOLDING = [YES, expr("$.context.tests"), {"kind": "role", "role": "lead"}, needs("review")]
FAILING = [NO, {"kind": "role", "role": "boss"}, {"kind": "permission", "permission": "p"}, needs("audit")]
LEAVES = st.sampled_from([*HOLDING, *FAILING])
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda guards: all_of(*guards))
        | st.lists(inner, max_size=3).map(lambda guards: any_of(*guards))
        | inner.map(negated)
    ),
    max_leaves=8,
)


def judged(data: dict[str, Any]) -> bool:
    """Whether a guard holds, computed from its data."""
    match data["kind"]:
        case "all_of":
            return all(judged(inner) for inner in data["guards"])
        case "any_of":
            return any(judged(inner) for inner in data["guards"])
        case "not":
            return not judged(data["guard"])
        case _:
            return data in HOLDING


@given(TREES)
def test_guards_inside_guards_hold_when_they_should_and_give_a_reason_when_not(data: dict[str, Any]) -> None:
    compiled = compile_guard(guard(data))

    assert compiled.holds(SCOPE) is judged(data)
    assert bool(compiled.failures(SCOPE)) is not judged(data)
