"""A repeated request gets the same response and is not executed again."""

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
            "ask_and_go_on": {"target": "hop", "executor": {"kind": "human"}},
            "call_and_go_on": {"target": "hop", "executor": {"kind": "workflow", "definitionId": "child"}},
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
async def test_a_repeated_request_gets_the_first_response(transition: str, store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        view = await b.start()
        first = await b.submit(view, transition, {"value": 1}, requestId="r")
        calls = len(b.work.calls)
        for _ in range(2):
            again = await b.submit(view, transition, {"value": 1}, requestId="r")
            assert (again.data, again.refused) == (first.data, first.refused)
        assert len(b.work.calls) == calls
        assert len(await b.history(view)) == first["version"]


@asynchronous
async def test_a_repeated_request_gets_its_response_after_later_moves() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        first = await b.submit(view, "run", {"value": 1}, requestId="r")
        await b.follow(first, "back")
        assert (await b.submit(view, "run", {"value": 1}, requestId="r")).data == first.data
        assert (await b.submit(view, "run", {"value": 1}, requestId="other")).code == "STALE_WORKFLOW_VERSION"
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_repeated_request_gets_the_same_failure(store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        view = await b.start()
        b.work.fails = 1
        first = await b.submit(view, "run", requestId="r")
        assert first.code == "EXECUTOR_FAILED"
        again = await b.submit(view, "run", requestId="r")
        assert (again.data, again.refused) == (first.data, True)
        assert len(b.work.calls) == 1
        assert (await b.submit(view, "run", requestId="next")).at == ("b", 2, {"n": 2})


@asynchronous
async def test_the_same_id_with_other_arguments_is_refused() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        await b.submit(view, "run", {"value": 1}, requestId="r")
        for transition, arguments in (("run", {"value": 2}), ("move", {"value": 1})):
            refused = await b.submit(view, transition, arguments, requestId="r")
            assert (refused.refused, refused.code) == (True, "REQUEST_ID_REUSED")
            assert "self" in refused.rels
        assert len(b.work.calls) == 1


@asynchronous
async def test_the_same_request_id_for_another_version_is_refused() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        first = await b.submit(view, "run", {"value": 1}, requestId="r")
        back = await b.follow(first, "back")
        refused = await b.submit(back, "run", {"value": 1}, requestId="r")
        assert (refused.refused, refused.code, refused["version"]) == (True, "REQUEST_ID_REUSED", 3)
        assert (await b.submit(view, "run", {"value": 1}, requestId="r")).data == first.data
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_request_id_can_be_used_again_after_a_stale_version() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        assert (await b.submit(view, "run", version=7, requestId="r")).code == "STALE_WORKFLOW_VERSION"
        assert (await b.submit(view, "run", requestId="r")).at == ("b", 2, {"n": 1})


@asynchronous
async def test_the_order_of_arguments_does_not_matter() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        first = await b.submit(view, "run", {"value": 1, "more": 2}, requestId="r")
        assert (await b.submit(view, "run", {"more": 2, "value": 1}, requestId="r")).data == first.data


@asynchronous
async def test_a_request_id_belongs_to_one_instance() -> None:
    async with bench(flow(STATES)) as b:
        for count in (1, 2):
            assert (await b.submit(await b.start(), "run", requestId="r")).at == ("b", 2, {"n": count})


@asynchronous
async def test_a_repeated_request_during_execution_gets_the_status() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        release = b.work.hold()
        running = asyncio.create_task(b.submit(view, "run", requestId="r"))
        await b.work.began.wait()
        again = await b.submit(view, "run", requestId="r")
        assert (again.refused, again["status"]) == (False, "executing")
        assert (await b.submit(view, "run", {"value": 9}, requestId="r")).code == "REQUEST_ID_REUSED"
        release.set()
        first = await running
        assert (await b.submit(view, "run", requestId="r")).data == first.data
        assert len(b.work.calls) == 1


@asynchronous
async def test_concurrent_requests_with_one_id_run_once_and_none_is_stale() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        answers = await asyncio.gather(*(b.submit(view, "run", requestId="r") for _ in range(10)))
        assert len(b.work.calls) == 1
        assert {answer["status"] for answer in answers} <= {"executing", "waiting_for_action"}
        assert not any(answer.refused for answer in answers)


@asynchronous
async def test_a_repeated_request_during_an_approval_gets_the_same_approval() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        first = await b.submit(view, "ask", requestId="r")
        again = await b.submit(view, "ask", requestId="r")
        assert again.data == first.data
        await b.engine.approvals.approve(first["approval"]["id"], ANN, "cli")
        decided = await b.submit(view, "ask", requestId="r")
        assert decided.at == ("b", 2, {"yes": True})
        assert len(await b.history(view)) == 2


@pytest.mark.parametrize("fails", [0, 1])
@asynchronous
async def test_a_repeated_request_gets_what_the_chain_after_an_approval_led_to(fails: int, store: str) -> None:
    async with bench(flow(STATES), store=store) as b:
        view = await b.start()
        asked = await b.submit(view, "ask_and_go_on", requestId="r")
        b.work.fails = fails
        await b.engine.approvals.approve(asked["approval"]["id"], ANN, "cli")
        again = await b.submit(view, "ask_and_go_on", requestId="r")
        assert again.data == (await b.get(view)).data
        assert (again["status"], again.code) == (
            ("chain_failed", "CHAIN_FAILED") if fails else ("waiting_for_action", None)
        )
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_repeated_request_gets_what_the_chain_after_a_child_led_to() -> None:
    async with bench(flow(STATES), child=flow({"a": {"transitions": {"end": {"target": "x"}}}, "x": DONE})) as b:
        view = await b.start()
        waiting = await b.submit(view, "call_and_go_on", requestId="r")
        await b.submit(await b.get(waiting["child"]["workflowId"]), "end")
        seen = await b.once(view, lambda seen: seen["status"] == "waiting_for_action")
        assert (await b.submit(view, "call_and_go_on", requestId="r")).data == seen.data
        assert seen["version"] == 3


@asynchronous
async def test_a_repeated_request_after_a_rejection_is_not_asked_again() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        first = await b.submit(view, "ask", requestId="r")
        await b.engine.approvals.reject(first["approval"]["id"], ANN, "cli", "no")
        again = await b.submit(view, "ask", requestId="r")
        assert (again.refused, again.code, again["status"]) == (True, "APPROVAL_REJECTED", "waiting_for_action")
        assert await b.engine.approvals.waiting() == []
        assert (await b.submit(view, "ask", requestId="next"))["status"] == "waiting_for_approval"


@pytest.mark.parametrize("transition", ["ask", "call"])
@asynchronous
async def test_a_repeated_request_of_a_cancelled_instance_gets_the_cancellation(transition: str) -> None:
    async with bench(flow(STATES), child=flow({"x": STATES["b"], "a": {"terminal": True}})) as b:
        view = await b.start()
        await b.submit(view, transition, requestId="r")
        await b.engine.cancel(view.id, DetachedCaller(ANONYMOUS, FROM_OUTSIDE), "enough")
        again = await b.submit(view, transition, requestId="r")
        assert (again.refused, again.code, again["status"]) == (True, "EXECUTOR_FAILED", "cancelled")
        assert again["error"]["message"] == f"{view.id} was cancelled before {transition} ended: enough"
        assert (await b.submit(view, transition, requestId="r")).data == again.data
        assert (await b.submit(view, transition, {"x": 1}, requestId="r")).code == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(("leads", "state"), [({}, "a"), ({"onTimeout": {"target": "b"}}, "b")])
@asynchronous
async def test_a_repeated_request_of_a_timed_out_instance_gets_the_timeout(leads: Json, state: str) -> None:
    async with bench(flow(STATES, timeoutMs=10_000, **leads)) as b:
        view = await b.start()
        await b.submit(view, "ask", requestId="r")
        b.pass_time(10)
        await b.once(view, lambda seen: seen["version"] == 2)
        again = await b.submit(view, "ask", requestId="r")
        assert (again.refused, again.code, again["state"]) == (True, "EXECUTOR_FAILED", state)
        assert again["error"]["message"] == f"{view.id} timed out before ask ended."
        assert again["error"]["errorClass"] == "timeout"
        assert await b.engine.approvals.waiting() == []


@asynchronous
async def test_a_refused_request_may_be_retried_with_the_same_id() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        assert (await b.submit(view, "guarded", requestId="r")).code == "GUARD_REJECTED"
        assert (await b.submit(view, "guarded", requestId="r")).code == "GUARD_REJECTED"
        assert (await b.submit(view, "move", requestId="r")).at == ("b", 2, {})


@asynchronous
async def test_a_repeated_resume_gets_the_same_response() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        b.work.fails = 1
        failed = await b.submit(view, "enter")
        first = await b.follow(failed, "$resume", requestId="r")
        assert first.at == ("entered", 3, {"n": 2})
        again = await b.follow(failed, "$resume", requestId="r")
        assert again.data == first.data
        assert len(b.work.calls) == 2


@asynchronous
async def test_another_hub_on_the_same_store_gives_the_same_response(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    async with bench(flow(STATES), store=place) as one, bench(flow(STATES), store=place) as other:
        view = await one.start()
        first = await one.submit(view, "chain", requestId="r")
        assert (await other.submit(view, "chain", requestId="r")).data == first.data
        assert other.work.calls == []


@asynchronous
async def test_an_empty_or_overlong_request_id_is_refused() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        for request_id in ("", "r" * 201):
            result = await b.client.call_tool("workflow.submit", {**view.link("move"), "requestId": request_id})
            assert result["isError"]
        assert (await b.get(view)).at == view.at


@pytest.mark.parametrize("request_id", ["\U0001f600" * 200, "a\0b"])
@asynchronous
async def test_a_request_id_that_cannot_be_stored_is_refused_and_opens_no_circuit(request_id: str) -> None:
    async with bench(flow(STATES), options={"breakers": True}) as b:
        view = await b.start()
        for transition in ("move", "run", "ask"):
            refused = await b.submit(view, transition, requestId=request_id)
            assert (refused.refused, refused.code) == (True, "INPUT_SCHEMA_VIOLATION")
            assert "512 bytes" in refused["error"]["message"]
        assert (await b.get(view)).at == view.at
        assert b.work.calls == []
        assert (await b.submit(view, "move", requestId="\U0001f600" * 128)).at == ("b", 2, {})
