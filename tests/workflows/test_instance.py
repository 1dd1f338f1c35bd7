"""An instance in memory: its status, its visibility, and its stored form."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, OPERATOR, STRANGER, Json, bench, flow, model
from waypost import Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Chain, Principal
from waypost.workflows import transitions
from waypost.workflows.definitions import digest
from waypost.workflows.instance import (
    Approval,
    Instance,
    NonInteractiveCaller,
    PendingMove,
    read_body,
    read_pending_move,
)
from waypost.workflows.transitions import new_id

DONE: Json = {"terminal": True}
OWNER = Principal("owner", claims={"sub": "owner"})
STATES: Json = {
    "a": {"transitions": {"go": {"target": "b", "output": {"n": "$.arguments.n"}}}},
    "b": {"onEnter": {"executor": {"kind": "noop"}}, "transitions": {"sign": {"target": "done", "actor": "human"}}},
    "done": {"terminal": True, "outcome": "failed"},
}


def begun(**more: Any) -> Instance:
    hub = Hub("one", version="1").workflow("flow", model(flow(STATES, **more)))
    definition = hub.workflows.engine.library.get("flow")
    assert definition is not None
    return transitions.create_instance(definition, {}, OWNER)[0]


def held(kind: Any, **more: Any) -> PendingMove:
    return PendingMove(kind=kind, move="go", by=OWNER, key="k", **more)


def approval(role: str = "lead") -> Approval:
    return Approval(
        id="ap_1", role=role, queue="q", needed=1, prompt="", presents={}, digest="", requested_at=0, expires_at=1
    )


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("executing", "executing"),
        ("approval", "waiting_for_approval"),
        ("child", "waiting_for_workflow"),
        ("unknown", "unknown_outcome"),
    ],
)
def test_a_pending_move_determines_the_status(kind: str, status: str) -> None:
    assert begun().status == "waiting_for_action"
    assert replace(begun(), pending_move=held(kind)).status == status


def test_an_instance_is_open_to_its_owner_operators_and_needed_people() -> None:
    live = begun()
    assert live.is_open_to(Principal("owner"))
    assert live.is_open_to(OPERATOR)
    assert not live.is_open_to(ANN)
    assert not live.is_open_to(STRANGER)
    assert replace(live, state=live.definition.states["b"]).is_open_to(ANN)
    waiting = replace(live, pending_move=held("approval", approval=approval()))
    assert waiting.is_open_to(Principal("x", ("lead",)))
    assert not waiting.is_open_to(ANN)


def test_the_owner_is_stored_without_claims() -> None:
    assert begun().body.owner == Principal("owner")


def test_applying_a_transition_does_not_change_the_instance() -> None:
    live = begun(timeoutMs=1000)
    move = held("executing", arguments={"n": 5})
    found = transitions.apply_transition(live, move, None, 100.0)
    assert (live.version, live.state.name, live.body.context) == (1, "a", {})
    assert (found.instance.version, found.instance.state.name, found.instance.body.context) == (2, "b", {"n": 5})
    assert found.instance.body.pending == "enter"
    assert found.due_at == 100.0 + transitions.CHAIN_GRACE_S
    entering = PendingMove(kind="executing", move="$enter", by=OWNER, key="k", chained=True)
    entered = transitions.apply_transition(found.instance, entering, {}, 101.0)
    assert (entered.instance.version, entered.instance.state.name, entered.instance.body.pending) == (3, "b", "")
    assert entered.due_at == live.body.deadline


def test_an_interrupt_without_a_target_ends_the_instance_in_its_state() -> None:
    live = begun()
    ended = transitions.interrupt(live, None, "$cancel", "ann", "cancelled", 5.0).instance
    assert (ended.is_over, ended.status, ended.body.outcome, ended.body.ended_at) == (
        True,
        "cancelled",
        "cancelled",
        5.0,
    )
    over = transitions.interrupt(live, None, "$timeout", "ann", "timed_out", 5.0).instance
    assert (over.is_over, over.status, over.body.outcome) == (True, "timed_out", "failed")


def test_ids_are_unique_and_sort_by_creation() -> None:
    made = [new_id() for _ in range(100)]
    assert len(set(made)) == 100
    assert [one[:15] for one in made] == sorted(one[:15] for one in made)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


@asynchronous
async def test_an_instance_is_loaded_from_the_store_unchanged(store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        view = await b.start(by=ANN)
        live = await b.engine.cache.get(view.id)
        assert live is not None
        kept = await b.hub.store.instances.get(view.id)
        assert kept is not None
        assert read_body(kept) == live.body
        assert read_pending_move(kept) is None
        reserved = await b.engine.runner.reserve(live, held("executing", arguments={"n": [1, {"x": None}]}))
        again = await b.engine.cache.get(view.id)
        assert again is not None
        assert (again.pending_move, again.token, again.body) == (reserved.pending_move, reserved.token, live.body)


@asynchronous
async def test_the_cache_returns_only_the_given_version_to_permitted_principals() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        instance_cache = b.engine.cache
        kept_by = Principal("operator", ("admin",))
        assert (kept := instance_cache.find(view.id, 1, kept_by)) is not None
        assert kept.id == view.id
        assert instance_cache.find(view.id, 2, kept_by) is None
        assert instance_cache.find(view.id, 1, Principal("another")) is None
        instance_cache.drop(view.id)
        assert instance_cache.find(view.id, 1, kept_by) is None
        assert await instance_cache.get("wf_none") is None


def test_a_nested_call_of_a_workflow_still_reports_to_the_client() -> None:
    client = DetachedCaller(OWNER, FROM_OUTSIDE)
    client.wants_progress = True
    chain = Chain("tool", "core", 2, "wf_1")

    nested = NonInteractiveCaller(client, Chain("workflow:flow", "workflow", 1, "wf_1")).with_chain(chain)

    assert isinstance(nested, NonInteractiveCaller)
    assert (nested.chain, nested.wants_progress) == (chain, True)
