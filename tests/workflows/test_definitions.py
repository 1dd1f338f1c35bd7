"""Entries of `capabilities` replace the executors that name them."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.config.models import Capability, Transition, Workflow
from waypost.errors import DefinitionError
from waypost.kinds import ExecutorModel, convert
from waypost.workflows.definitions import nearest, resolve, resolve_capability
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.cli import Cli
from waypost.workflows.executors.noop import Noop
from waypost.workflows.executors.parallel import Parallel
from waypost.workflows.executors.pipeline import Pipeline
from waypost.workflows.guards.role import RoleGuard

LEAD, ADMIN, HUMAN = RoleGuard(role="lead"), RoleGuard(role="admin"), RoleGuard(role="human")
GIT = Cli(command="git")


def capabilities(**entries: dict[str, Any]) -> dict[str, Capability]:
    return convert(entries, dict[str, Capability])


def guard(role: str) -> dict[str, str]:
    return {"kind": "role", "role": role}


PUSH = {
    "title": "Push",
    "tags": ["git"],
    "examples": [1],
    "inputSchema": {"type": "object"},
    "executor": {"kind": "cli", "command": "git"},
    "guards": [guard("lead")],
    "reliability": {"timeoutMs": 5},
}
CAPABILITIES = capabilities(
    push=PUSH,
    prod={"wraps": "push", "tags": ["git", "prod"], "examples": [2], "guards": [guard("admin")]},
    slow={"wraps": "prod", "reliability": {"timeoutMs": 50}, "inputSchema": {}, "executor": {"kind": "noop"}},
    plain={"executor": {"kind": "noop"}},
    named={"executor": {"kind": "capability", "capability": "push"}, "guards": [guard("human")]},
)


def transition(available: dict[str, Capability] = CAPABILITIES, **data: Any) -> Transition:
    model = {"initialState": "a", "states": {"a": {"transitions": {"go": {"target": "a", **data}}}}}
    return resolve(convert(model, Workflow), available).states["a"].transitions["go"]


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "capability", "capability": name, **more}


# entries by themselves


def test_an_entry_takes_over_from_what_it_wraps() -> None:
    found = resolve_capability("prod", CAPABILITIES)
    assert (found.title, found.executor, found.wraps) == ("Push", GIT, None)
    assert found.tags == ["git", "prod"]
    assert found.examples == [1, 2]
    assert found.guards == [LEAD, ADMIN]
    assert found.input_schema == {"type": "object"}
    assert found.reliability is not None
    assert found.reliability.timeout_ms == 5


def test_the_settings_of_the_wrapping_entry_win() -> None:
    found = resolve_capability("slow", CAPABILITIES)
    assert found.executor == Noop()
    assert found.guards == [LEAD, ADMIN]
    assert found.input_schema == {}
    assert found.reliability is not None
    assert found.reliability.timeout_ms == 50


def test_an_entry_can_run_another_one_with_its_guards() -> None:
    found = resolve_capability("named", CAPABILITIES)
    assert found.executor == GIT
    assert found.guards == [LEAD, HUMAN]
    assert found.input_schema == {"type": "object"}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": {"wraps": "b"}, "b": {"wraps": "a"}}, "`a` → `b` → `a`"),
        ({"a": {"executor": call("a")}}, "`a` → `a`"),
        ({"a": {"executor": {"kind": "pipeline", "steps": [call("b")]}}, "b": {"wraps": "a"}}, "in a cycle"),
        ({"a": {"title": "A"}}, "the capability `a` runs nothing; give it `executor` or `wraps`"),
        ({"a": {"wraps": "aab"}, "aaa": PUSH}, "there is no capability `aab`; did you mean `aaa`?"),
    ],
)
def test_an_entry_that_cannot_be_resolved_is_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        resolve_capability("a", capabilities(**entries))
    assert message in str(refused.value)


# entries in workflows


def test_a_transition_runs_the_entry_it_names() -> None:
    found = transition(executor=call("prod"), guards=[guard("human")])
    assert found.executor == GIT
    assert found.guards == [LEAD, ADMIN, HUMAN]
    assert found.input_schema == {"type": "object"}
    assert found.reliability is not None
    assert found.reliability.timeout_ms == 5


def test_the_settings_of_a_transition_win() -> None:
    found = transition(executor=call("push"), inputSchema={"type": "array"}, reliability={"timeoutMs": 7})
    assert found.input_schema == {"type": "array"}
    assert found.reliability is not None
    assert found.reliability.timeout_ms == 7


def test_a_name_that_is_not_an_entry_stays_a_call() -> None:
    found = transition(executor=call("files.read", arguments={"path": "x"}))
    assert found.executor == CapabilityCall(capability="files.read", arguments={"path": "x"})


@pytest.mark.parametrize(
    ("executor", "inside"),
    [
        ({"kind": "parallel", "branches": [call("push"), {"kind": "noop"}]}, Parallel(branches=[GIT, Noop()])),
        ({"kind": "parallel", "forEach": [1], "do": call("push")}, Parallel(for_each=[1], do=GIT)),
        ({"kind": "pipeline", "steps": [call("plain"), call("named")]}, Pipeline(steps=[Noop(), GIT])),
    ],
)
def test_entries_inside_of_executors_bring_their_guards_to_the_transition(
    executor: dict[str, Any], inside: ExecutorModel
) -> None:
    found = transition(executor=executor)
    assert found.executor == inside
    assert found.guards[0] == LEAD
    assert found.input_schema is None


def test_entries_in_a_fallback_are_put_in_place_with_their_guards() -> None:
    found = transition(executor={"kind": "noop"}, reliability={"fallback": {"executors": [call("push")]}})
    assert found.reliability is not None
    assert found.reliability.fallback is not None
    assert found.reliability.fallback.executors == [GIT]
    assert found.guards == [LEAD]


def test_a_duplicate_guard_is_added_once() -> None:
    assert transition(executor={"kind": "pipeline", "steps": [call("push"), call("prod")]}).guards == [LEAD, ADMIN]


def entering(executor: dict[str, Any]) -> Workflow:
    model = {"initialState": "a", "states": {"a": {"onEnter": {"executor": executor}}}}
    return resolve(convert(model, Workflow), CAPABILITIES)


def test_an_on_enter_executor_can_name_an_entry() -> None:
    found = entering(call("plain")).states["a"].on_enter
    assert found is not None
    assert found.executor == Noop()


def test_an_on_enter_executor_cannot_name_an_entry_with_guards() -> None:
    with pytest.raises(DefinitionError, match="has guards"):
        entering(call("push"))


def test_arguments_beside_the_name_of_an_entry_are_refused() -> None:
    with pytest.raises(DefinitionError, match="put them into the capability's own executor"):
        transition(executor=call("push", arguments={}))


def test_resolving_changes_nothing_else_of_a_workflow() -> None:
    data = {"initialState": "a", "title": "W", "states": {"a": {"transitions": {"go": {"target": "b"}}}, "b": {}}}
    workflow = convert(data, Workflow)
    assert resolve(workflow, CAPABILITIES) == workflow


def test_the_hint_has_the_nearest_name_or_some_existing_ones() -> None:
    assert nearest("pus", ["push", "pull"]) == "did you mean `push`?"
    assert nearest("zzz", ["push"]) == "there is `push`"
    assert nearest("zzz", map(str, range(12))).endswith(" and 2 more")
    assert nearest("zzz", []) == "there are none"
