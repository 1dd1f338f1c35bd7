"""Chains: deterministic transitions and `onEnter` executors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, STRANGER, WORK, Json, bench, flow

DONE: Json = {"terminal": True}


def on(target: str, *guards: str, **more: Any) -> Json:
    """A deterministic transition."""
    return {
        "target": target,
        "actor": "deterministic",
        "guards": [{"kind": "expr", "expr": guard} for guard in guards],
        **more,
    }


def hops(view: Any) -> list[tuple[str, str, str, int]]:
    return [(hop["fromState"], hop["transition"], hop["toState"], hop["version"]) for hop in view.data["chain"]]


@asynchronous
async def test_deterministic_states_are_passed_before_start_answers(store: str) -> None:
    states = {
        "a": {"transitions": {"one": on("b", output={"n": 1})}},
        "b": {"transitions": {"two": on("c", "$.context.n == 1", executor=WORK, output={"m": "$.output.count"})}},
        "c": {"transitions": {"go": {"target": "done"}}},
        "done": DONE,
    }
    async with bench(flow(states), store=store) as b:
        view = await b.start()
        assert view.at == ("c", 3, {"n": 1, "m": 1})
        assert hops(view) == [("a", "one", "b", 2), ("b", "two", "c", 3)]
        assert view.names == ["go"]
        assert "chain" not in (await b.get(view)).data


@asynchronous
async def test_a_submit_continues_along_the_chain_to_the_end() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {"transitions": {"on": on("done")}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        ended = await b.follow(await b.start(), "go")
        assert (ended["state"], ended["version"], ended["terminal"], ended["links"]) == ("done", 3, True, [])
        assert hops(ended) == [("b", "on", "done", 3)]


@asynchronous
async def test_a_transition_that_needs_a_decision_stops_the_chain() -> None:
    states = {
        "a": {"transitions": {"on": on("mixed")}},
        "mixed": {"transitions": {"auto": on("done"), "manual": {"target": "done"}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        view = await b.start()
        assert (view["state"], view["version"]) == ("mixed", 2)
        assert view.names == ["manual"]
        assert (await b.submit(view, "auto"))["terminal"]


@asynchronous
async def test_the_guards_of_a_single_candidate_are_checked(store: str) -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b", "output": {"ok": "$.arguments.ok"}}}},
        "b": {"transitions": {"on": on("done", "$.context.ok == true")}},
        "done": DONE,
    }
    async with bench(flow(states), store=store) as b:
        assert (await b.submit(await b.start(), "go", {"ok": True}))["terminal"]
        stuck = await b.submit(await b.start(), "go", {"ok": False})
        assert (stuck.refused, stuck.code) == (True, "CHAIN_FAILED")
        assert stuck.at == ("b", 2, {"ok": False})
        assert stuck.names == ["$resume"]
        assert "self" in stuck.rels
        seen = await b.get(stuck)
        assert (seen.refused, seen.code, seen["status"]) == (False, "CHAIN_FAILED", "chain_failed")
        assert seen.names == ["$resume"]


@pytest.mark.parametrize(("value", "state"), [(1, "one"), (2, "two"), (3, "other")])
@asynchronous
async def test_the_candidate_whose_guards_hold_is_taken_or_else_the_one_without_guards(value: int, state: str) -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b", "output": {"n": "$.arguments.n"}}}},
        "b": {
            "transitions": {
                "first": on("one", "$.context.n == 1"),
                "second": on("two", "$.context.n == 2"),
                "default": on("other"),
            }
        },
        **dict.fromkeys(("one", "two", "other"), DONE),
    }
    async with bench(flow(states)) as b:
        assert (await b.submit(await b.start(), "go", {"n": value}))["state"] == state


@pytest.mark.parametrize("guards", [("$.context.n == 1", "$.context.n > 0"), ("$.context.n == 5", "$.context.n == 6")])
@asynchronous
async def test_no_or_several_candidates_stop_the_chain_and_keep_its_progress(guards: tuple[str, str]) -> None:
    states = {
        "a": {"transitions": {"on": on("b", output={"n": 1})}},
        "b": {"transitions": {"x": on("done", guards[0]), "y": on("done", guards[1])}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        view = await b.start()
        assert (view.refused, view.code) == (True, "CHAIN_FAILED")
        assert view.at == ("b", 2, {"n": 1})
        assert hops(view) == [("a", "on", "b", 2)]
        again = await b.follow(view, "$resume")
        assert (again.code, again.at) == ("CHAIN_FAILED", view.at)
        assert (await b.submit(view, "x")).code == (None if guards[0] == "$.context.n == 1" else "GUARD_REJECTED")


@asynchronous
async def test_a_failing_hop_keeps_the_progress_and_can_be_resumed(store: str) -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b", "output": {"n": 1}}}},
        "b": {"transitions": {"one": on("c")}},
        "c": {"transitions": {"two": on("d", executor=WORK, output={"m": "$.output.count"})}},
        "d": {"transitions": {"three": on("done")}},
        "done": DONE,
    }
    async with bench(flow(states), store=store) as b:
        view = await b.start()
        b.work.fails = 1
        failed = await b.follow(view, "go")
        assert (failed.refused, failed.code) == (True, "CHAIN_FAILED")
        assert failed["error"]["attemptedTransition"] == "two"
        assert failed["error"]["errorClass"] == "permanent_error"
        assert failed.at == ("c", 3, {"n": 1})
        assert hops(failed) == [("b", "one", "c", 3)]
        (note,) = await b.notes(view)
        assert (note["transition"], note["outcome"]) == ("two", "failed")
        ended = await b.follow(failed, "$resume")
        assert not ended.refused
        assert ended.at == ("done", 5, {"n": 1, "m": 2})
        assert hops(ended) == [("c", "two", "d", 4), ("d", "three", "done", 5)]
        assert len(await b.history(view)) == 5


@asynchronous
async def test_a_failure_while_entering_keeps_the_state_and_can_be_resumed() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {
            "onEnter": {"executor": WORK, "output": {"n": "$.output.count"}},
            "transitions": {"end": {"target": "done"}},
        },
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        view = await b.start()
        b.work.fails = 2
        failed = await b.follow(view, "go")
        assert (failed.refused, failed.code) == (True, "CHAIN_FAILED")
        assert failed.at == ("b", 2, {})
        assert "$resume" in failed.names
        again = await b.follow(failed, "$resume")
        assert (again.code, again.at) == ("CHAIN_FAILED", ("b", 2, {}))
        entered = await b.follow(again, "$resume")
        assert entered.at == ("b", 3, {"n": 3})
        assert entered.names == ["end"]
        assert entered["status"] == "waiting_for_action"


@asynchronous
async def test_entering_the_first_state_may_fail_without_losing_the_instance() -> None:
    states = {
        "a": {"onEnter": {"executor": WORK}, "transitions": {"end": {"target": "done"}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        b.work.fails = 1
        failed = await b.start()
        assert (failed.refused, failed.code) == (True, "CHAIN_FAILED")
        assert failed["version"] == 1
        assert (await b.follow(failed, "$resume")).at == ("a", 2, {})


@asynchronous
async def test_a_chain_that_is_too_long_stops_and_can_be_continued() -> None:
    states = {
        "a": {
            "transitions": {
                "on": on("b", "$.context.n < 7", output={"n": {"add": ["$.context.n", 1]}}),
                "end": on("done"),
            }
        },
        "b": {"transitions": {"back": on("a", output={"n": {"add": ["$.context.n", 1]}})}},
        "done": DONE,
    }
    async with bench(flow(states, maxChainDepth=3, initialContext={"n": 0})) as b:
        view = await b.start()
        assert (view.refused, view.code) == (True, "CHAIN_DEPTH_EXCEEDED")
        assert view.at == ("b", 4, {"n": 3})
        assert len(view["chain"]) == 3
        view = await b.follow(view, "$resume")
        assert (view.code, view.at) == ("CHAIN_DEPTH_EXCEEDED", ("a", 7, {"n": 6}))
        view = await b.follow(view, "$resume")
        assert view.at == ("done", 10, {"n": 8})


@asynchronous
async def test_resuming_an_instance_that_did_not_stop_is_refused() -> None:
    async with bench(flow({"a": {"transitions": {"go": {"target": "done"}}}, "done": DONE})) as b:
        view = await b.start()
        refused = await b.submit(view, "$resume")
        assert (refused.code, (await b.get(view)).at) == ("INVALID_TRANSITION", view.at)


@asynchronous
async def test_resuming_a_chain_requires_the_current_version_and_access() -> None:
    states = {"a": {"transitions": {"on": on("done", "$.context.never == true")}}, "done": DONE}
    async with bench(flow(states)) as b:
        view = await b.start(by=ANN)
        assert (await b.submit(view, "$resume", by=ANN, version=9)).code == "STALE_WORKFLOW_VERSION"
        assert (await b.follow(view, "$resume", STRANGER)).code == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_the_chain_runs_as_the_principal_who_submitted() -> None:
    role = [{"kind": "role", "role": "human"}]
    states = {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {"transitions": {"on": {**on("done"), "guards": role}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        assert (await b.follow(await b.start(by=ANN), "go", ANN))["terminal"]
        assert (await b.follow(await b.start(by=STRANGER), "go", STRANGER)).code == "CHAIN_FAILED"


@asynchronous
async def test_entering_runs_again_each_time_a_state_is_entered() -> None:
    states = {
        "a": {
            "onEnter": {"executor": WORK, "output": {"n": "$.output.count"}},
            "transitions": {"again": {"target": "a"}},
        }
    }
    async with bench(flow(states)) as b:
        view = await b.start()
        for count in (2, 3):
            view = await b.follow(view, "again")
            assert view.at == ("a", 2 * count, {"n": count})
