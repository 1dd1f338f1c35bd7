"""The same request is answered again, not done again."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, WORK, Json, bench, flow
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE

DONE: Json = {"terminal": True}
STATES: Json = {
    "a": {
        "transitions": {
            "move": {"target": "b"},
            "run": {"target": "b", "executor": WORK, "output": {"n": "$.output.count"}},
            "enter": {"target": "entered"},
            "chain": {"target": "hop"},
            "broken": {"target": "stuck"},
            "ask": {"target": "b", "executor": {"kind": "human"}, "output": {"yes": True}},
            "gate": {"target": "gate"},
            "call": {"target": "b", "executor": {"kind": "workflow", "definitionId": "child"}},
            "guarded": {"target": "b", "guards": [{"kind": "expr", "expr": "$.context.never == true"}]},
        }
    },
    "b": {"transitions": {"back": {"target": "a"}}},
    "entered": {
        "onEnter": {"executor": WORK, "output": {"n": "$.output.count"}},
        "transitions": {"back": {"target": "a"}},
    },
    "hop": {"transitions": {"on": {"target": "b", "actor": "deterministic", "executor": WORK}}},
    "stuck": {
        "transitions": {
            "on": {
                "target": "b",
                "actor": "deterministic",
                "guards": [{"kind": "expr", "expr": "$.context.never == true"}],
            }
        }
    },
    "gate": {"transitions": {"on": {"target": "b", "actor": "deterministic", "executor": {"kind": "human"}}}},
}


@pytest.mark.parametrize("transition", ["move", "run", "enter", "chain", "broken", "gate"])
@asynchronous
async def test_a_request_that_comes_again_gets_the_first_answer(transition: str, store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        told = await b.start()
        first = await b.submit(told, transition, {"value": 1}, requestId="r")
        calls = len(b.work.calls)
        for _ in range(2):
            again = await b.submit(told, transition, {"value": 1}, requestId="r")
            assert (again.data, again.refused) == (first.data, first.refused)
        assert len(b.work.calls) == calls
        assert len(await b.history(told)) == first["version"]


@asynchronous
async def test_it_is_answered_so_after_the_instance_has_moved_on() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        first = await b.submit(told, "run", {"value": 1}, requestId="r")
        await b.follow(first, "back")
        assert (await b.submit(told, "run", {"value": 1}, requestId="r")).data == first.data
        assert (await b.submit(told, "run", {"value": 1}, requestId="other")).code == "STALE_WORKFLOW_VERSION"
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_failure_is_answered_again_too(store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        told = await b.start()
        b.work.fails = 1
        first = await b.submit(told, "run", requestId="r")
        assert first.code == "EXECUTOR_FAILED"
        again = await b.submit(told, "run", requestId="r")
        assert (again.data, again.refused) == (first.data, True)
        assert len(b.work.calls) == 1
        assert (await b.submit(told, "run", requestId="next")).at == ("b", 2, {"n": 2})


@asynchronous
async def test_the_same_id_with_other_arguments_is_refused() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        await b.submit(told, "run", {"value": 1}, requestId="r")
        for transition, arguments in (("run", {"value": 2}), ("move", {"value": 1})):
            refused = await b.submit(told, transition, arguments, requestId="r")
            assert (refused.refused, refused.code) == (True, "REQUEST_ID_REUSED")
            assert "self" in refused.rels
        assert len(b.work.calls) == 1


@asynchronous
async def test_the_same_id_for_another_version_is_another_call() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        first = await b.submit(told, "run", {"value": 1}, requestId="r")
        back = await b.follow(first, "back")
        refused = await b.submit(back, "run", {"value": 1}, requestId="r")
        assert (refused.refused, refused.code, refused["version"]) == (True, "REQUEST_ID_REUSED", 3)
        assert (await b.submit(told, "run", {"value": 1}, requestId="r")).data == first.data
        assert len(b.work.calls) == 1


@asynchronous
async def test_after_a_stale_version_the_same_id_can_be_used_with_the_right_one() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        assert (await b.submit(told, "run", version=7, requestId="r")).code == "STALE_WORKFLOW_VERSION"
        assert (await b.submit(told, "run", requestId="r")).at == ("b", 2, {"n": 1})


@asynchronous
async def test_the_order_of_arguments_does_not_matter() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        first = await b.submit(told, "run", {"value": 1, "more": 2}, requestId="r")
        assert (await b.submit(told, "run", {"more": 2, "value": 1}, requestId="r")).data == first.data


@asynchronous
async def test_an_id_is_of_one_instance() -> None:
    async with bench(flow(STATES)) as b:
        for count in (1, 2):
            assert (await b.submit(await b.start(), "run", requestId="r")).at == ("b", 2, {"n": count})


@asynchronous
async def test_while_it_runs_the_same_request_is_told_so_and_not_run() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        release = b.work.hold()
        running = asyncio.create_task(b.submit(told, "run", requestId="r"))
        await b.work.began.wait()
        again = await b.submit(told, "run", requestId="r")
        assert (again.refused, again["status"]) == (False, "executing")
        assert (await b.submit(told, "run", {"value": 9}, requestId="r")).code == "REQUEST_ID_REUSED"
        release.set()
        first = await running
        assert (await b.submit(told, "run", requestId="r")).data == first.data
        assert len(b.work.calls) == 1


@asynchronous
async def test_of_many_with_one_id_one_runs_and_none_is_stale() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        answers = await asyncio.gather(*(b.submit(told, "run", requestId="r") for _ in range(10)))
        assert len(b.work.calls) == 1
        assert {answer["status"] for answer in answers} <= {"executing", "waiting_for_action"}
        assert not any(answer.refused for answer in answers)


@asynchronous
async def test_while_people_decide_the_same_request_shows_the_same_question() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        first = await b.submit(told, "ask", requestId="r")
        again = await b.submit(told, "ask", requestId="r")
        assert again.data == first.data
        await b.engine.approvals.approve(first["approval"]["id"], ANN, "cli")
        decided = await b.submit(told, "ask", requestId="r")
        assert decided.at == ("b", 2, {"yes": True})
        assert len(await b.history(told)) == 2


@asynchronous
async def test_after_a_no_the_same_request_asks_nobody_again() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        first = await b.submit(told, "ask", requestId="r")
        await b.engine.approvals.reject(first["approval"]["id"], ANN, "cli", "no")
        again = await b.submit(told, "ask", requestId="r")
        assert (again.refused, again.code, again["status"]) == (True, "APPROVAL_REJECTED", "waiting_for_action")
        assert await b.engine.approvals.waiting() == []
        assert (await b.submit(told, "ask", requestId="next"))["status"] == "waiting_for_approval"


@pytest.mark.parametrize("transition", ["ask", "call"])
@asynchronous
async def test_when_the_instance_is_cancelled_the_same_request_is_told_so(transition: str) -> None:
    async with bench(flow(STATES), child=flow({"x": STATES["b"], "a": {"terminal": True}})) as b:
        told = await b.start()
        await b.submit(told, transition, requestId="r")
        await b.engine.cancel(told.id, DetachedCaller(ANONYMOUS, FROM_OUTSIDE), "enough")
        again = await b.submit(told, transition, requestId="r")
        assert (again.refused, again.code, again["status"]) == (True, "EXECUTOR_FAILED", "cancelled")
        assert again["error"]["message"] == f"{told.id} was cancelled before {transition} ended: enough"
        assert (await b.submit(told, transition, requestId="r")).data == again.data
        assert (await b.submit(told, transition, {"x": 1}, requestId="r")).code == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(("leads", "state"), [({}, "a"), ({"onTimeout": {"target": "b"}}, "b")])
@asynchronous
async def test_when_the_time_is_over_the_same_request_is_told_so(leads: Json, state: str) -> None:
    async with bench(flow(STATES, timeoutMs=100, **leads)) as b:
        told = await b.start()
        await b.submit(told, "ask", requestId="r")
        await b.once(told, lambda seen: seen["version"] == 2)
        again = await b.submit(told, "ask", requestId="r")
        assert (again.refused, again.code, again["state"]) == (True, "EXECUTOR_FAILED", state)
        assert again["error"]["message"] == f"{told.id} timed out before ask ended."
        assert again["error"]["errorClass"] == "timeout"
        assert await b.engine.approvals.waiting() == []


@asynchronous
async def test_what_was_refused_was_not_done_and_may_be_tried_again() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        assert (await b.submit(told, "guarded", requestId="r")).code == "GUARD_REJECTED"
        assert (await b.submit(told, "guarded", requestId="r")).code == "GUARD_REJECTED"
        assert (await b.submit(told, "move", requestId="r")).at == ("b", 2, {})


@asynchronous
async def test_a_resumed_chain_is_answered_again() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        b.work.fails = 1
        failed = await b.submit(told, "enter")
        first = await b.follow(failed, "$resume", requestId="r")
        assert first.at == ("entered", 3, {"n": 2})
        again = await b.follow(failed, "$resume", requestId="r")
        assert again.data == first.data
        assert len(b.work.calls) == 2


@asynchronous
async def test_another_hub_on_the_same_store_gives_the_same_answer(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(flow(STATES), store=place) as one, bench(flow(STATES), store=place) as other:
        told = await one.start()
        first = await one.submit(told, "chain", requestId="r")
        assert (await other.submit(told, "chain", requestId="r")).data == first.data
        assert other.work.calls == []


@asynchronous
async def test_an_id_is_not_empty_and_not_endless() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        for request_id in ("", "r" * 201):
            result = await b.client.call_tool("workflow.submit", {**told.link("move"), "requestId": request_id})
            assert result["isError"]
        assert (await b.get(told)).at == told.at


@pytest.mark.parametrize("request_id", ["\U0001f600" * 200, "a\0b"])
@asynchronous
async def test_an_id_that_cannot_be_kept_is_refused_and_shuts_nobody_else_out(request_id: str) -> None:
    async with bench(flow(STATES), options={"breakers": True}) as b:
        told = await b.start()
        for transition in ("move", "run", "ask"):
            refused = await b.submit(told, transition, requestId=request_id)
            assert (refused.refused, refused.code) == (True, "INPUT_SCHEMA_VIOLATION")
            assert "512 bytes" in refused["error"]["message"]
        assert (await b.get(told)).at == told.at
        assert b.work.calls == []
        assert (await b.submit(told, "move", requestId="\U0001f600" * 128)).at == ("b", 2, {})
