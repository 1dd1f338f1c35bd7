"""Submitting: what a transition does, and that every refusal leaves an instance as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, BOB, CODES, WORK, Bench, Json, View, bench, flow
from waypost.errors import Busy
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

DONE: Json = {"terminal": True}
VALUE = {"type": "object", "properties": {"value": {"type": "integer", "default": 3}}, "additionalProperties": False}


def one(transition: Json, **more: Any) -> Json:
    """A workflow of one transition, `go`."""
    return flow({"a": {"transitions": {"go": {"target": "done", **transition}}}, "done": DONE}, **more)


@pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
@asynchronous
async def test_a_transition_runs_its_executor_and_leads_to_its_target(version: str) -> None:
    definition = one({"executor": WORK, "output": {"n": "$.output.value", "by": "$.workflow.id"}, "inputSchema": VALUE})
    async with bench(definition, version=version) as b:
        view = await b.start()
        ended = await b.follow(view, "go")
        assert not ended.refused
        assert ended.at == ("done", 2, {"n": 3, "by": view.id})
        assert (ended["terminal"], ended["status"], ended["outcome"]) == (True, "succeeded", "succeeded")
        assert ended["links"] == []
        assert b.work.calls == [3]


@asynchronous
async def test_every_version_is_a_row_of_the_history_with_principal_and_executor(store: str) -> None:
    guard = {"kind": "expr", "expr": "$.context.n == 0"}
    states = {
        "a": {"transitions": {"go": {"target": "b", "executor": WORK, "output": {"n": 1}, "guards": [guard]}}},
        "b": {
            "onEnter": {"executor": WORK, "output": {"entered": True}},
            "transitions": {"hop": {"target": "c", "actor": "deterministic"}},
        },
        "c": {"transitions": {"end": {"target": "done"}}},
        "done": DONE,
    }
    async with bench(flow(states, initialContext={"n": 0}), store=store) as b:
        view = await b.start(by=ANN)
        view = await b.submit(view, "go", {"value": 5}, by=ANN)
        assert view.at == ("c", 4, {"n": 1, "entered": True})
        rows = await b.history(view)
        assert [(row["transition"], row["from"], row["to"]) for row in rows] == [
            ("$start", None, "a"),
            ("go", "a", "b"),
            ("$enter", "b", "b"),
            ("hop", "b", "c"),
        ]
        assert {row["by"] for row in rows} == {"ann"}
        assert rows[1]["guards"] == ["$.context.n == 0"]
        assert rows[1]["executor"]["outcome"] == "succeeded"
        assert rows[1]["delta"] == {"n": 1}
        assert len(rows[1]["argumentsDigest"]) == 64
        assert rows[1]["argumentsDigest"] != rows[3]["argumentsDigest"]
        assert rows[3]["chained"] is True


@asynchronous
async def test_branches_choose_the_target_by_the_output_of_the_executor() -> None:
    branches = [
        {"when": {"kind": "expr", "expr": "$.context.count == 2"}, "target": "two"},
        {"when": {"kind": "expr", "expr": "$.context.count >= 2"}, "target": "many"},
    ]
    transition = {"executor": WORK, "output": {"count": "$.output.count"}, "branches": branches}
    definition = one(transition)
    definition["states"] |= {"two": DONE, "many": DONE}
    async with bench(definition) as b:
        for state in ("done", "two", "many"):
            assert (await b.follow(await b.start(), "go"))["state"] == state


@asynchronous
async def test_all_of_a_mapping_sees_the_context_as_it_was() -> None:
    output = {
        "a": "$.context.b",
        "b": "$.context.a",
        "sum": {"add": ["$.context.a", "$.context.missing"]},
        "none": {"divide": ["$.context.a", 0]},
        "text": {"concat": ["v", "$.context.b"]},
        "gone": "$.context.nowhere",
    }
    async with bench(one({"output": output}, initialContext={"a": 1, "b": 2})) as b:
        ended = await b.follow(await b.start(), "go")
        assert ended["context"] == {"a": 2, "b": 1, "sum": 1, "none": None, "text": "v2", "gone": None}


@asynchronous
async def test_evidence_is_left_once_for_each_action_and_counts_different_people() -> None:
    need = [{"kind": "evidence", "requires": [{"kind": "review", "count": 2}]}]
    states = {
        "a": {
            "transitions": {
                "review": {"target": "a", "actor": "human", "evidence": {"provides": ["review"]}},
                "go": {"target": "hop", "guards": need},
            }
        },
        "hop": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        view = await b.start()
        for person in (ANN, ANN):
            view = await b.submit(view, "review", by=person)
        refused = await b.submit(view, "go")
        assert refused.code == "GUARD_REJECTED"
        view = await b.submit(view, "review", by=BOB)
        assert [(proof["kind"], proof["by"]) for proof in view["evidence"]] == [
            ("review", "ann"),
            ("review", "ann"),
            ("review", "bob"),
        ]
        ended = await b.submit(view, "go")
        assert (ended["state"], len(ended["evidence"])) == ("done", 3)


@asynchronous
async def test_a_failure_changes_nothing_and_has_its_error_class(store: str) -> None:
    reliability = {"retry": {"maxAttempts": 2}}
    async with bench(one({"executor": WORK, "output": {"n": 1}, "reliability": reliability}), store=store) as b:
        view = await b.start()
        b.work.fails, b.work.failure = 9, Busy("The far end is busy; try again later.")
        failed = await b.follow(view, "go")
        assert (failed.refused, failed.code) == (True, "EXECUTOR_FAILED")
        assert failed["error"]["errorClass"] == "transient_error"
        assert failed["error"]["attemptedTransition"] == "go"
        assert failed.at == view.at
        assert failed.rels == ["self", "transition"]
        assert len(b.work.calls) == 2
        (note,) = await b.notes(view)
        assert (note["transition"], note["outcome"], len(note["attempts"])) == ("go", "failed", 2)
        b.work.fails = 0
        assert (await b.follow(failed, "go")).at == ("done", 2, {"n": 1})


@asynchronous
async def test_the_idempotency_key_is_one_for_retries_and_fallbacks_and_new_for_the_next_submit() -> None:
    reliability = {"retry": {"maxAttempts": 2}, "fallback": {"executors": [WORK]}}
    async with bench(one({"executor": WORK, "reliability": reliability})) as b:
        b.work.fails, b.work.failure = 4, Busy()
        view = await b.start()
        assert (await b.follow(view, "go")).code == "EXECUTOR_FAILED"
        assert len(b.work.keys) == 4
        assert len(set(b.work.keys)) == 1
        assert b.work.keys[0].startswith(f"{view.id}.go.")
        await b.follow(view, "go")
        assert len(set(b.work.keys)) == 2


@asynchronous
async def test_of_concurrent_submits_of_one_version_one_runs_and_the_others_are_stale(store: str) -> None:
    async with bench(one({"executor": WORK}), store=store) as b:
        view = await b.start()
        release = b.work.hold()
        many = [asyncio.create_task(b.follow(view, "go")) for _ in range(20)]
        await asyncio.wait(many[:-1], timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        release.set()
        answers = await asyncio.gather(*many)
        assert sorted(str(answer.code) for answer in answers) == ["None"] + ["STALE_WORKFLOW_VERSION"] * 19
        assert len(b.work.calls) == 1
        assert all("self" in answer.rels for answer in answers if answer.refused)


@asynchronous
async def test_two_hubs_on_one_store_run_it_once(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    definition = one({"executor": WORK})
    async with bench(definition, store=place) as first, bench(definition, store=place) as second:
        for _ in range(5):
            view = await first.start()
            answers = await asyncio.gather(*(b.follow(view, "go") for _ in range(10) for b in (first, second)))
            assert sorted(str(answer.code) for answer in answers) == ["None"] + ["STALE_WORKFLOW_VERSION"] * 19
        assert len(first.work.calls) + len(second.work.calls) == 5


@asynchronous
async def test_a_running_move_is_visible_and_makes_other_submits_stale() -> None:
    async with bench(one({"executor": WORK})) as b:
        view = await b.start()
        release = b.work.hold()
        moving = asyncio.create_task(b.follow(view, "go"))
        await b.work.began.wait()
        seen = await b.get(view)
        assert (seen["status"], seen["version"], seen["transition"]) == ("executing", 1, "go")
        assert seen.rels == ["self"]
        assert (await b.submit(view, "go")).code == "STALE_WORKFLOW_VERSION"
        release.set()
        assert (await moving)["terminal"]


@asynchronous
async def test_a_move_continues_when_its_client_disconnects() -> None:
    async with bench(one({"executor": WORK})) as b:
        view = await b.start()
        release = b.work.hold()
        moving = asyncio.create_task(b.follow(view, "go"))
        await b.work.began.wait()
        moving.cancel()
        await asyncio.wait({moving})
        release.set()
        seen = await b.once(view, lambda seen: seen["status"] != "executing")
        assert (seen["state"], len(b.work.calls)) == ("done", 1)


@asynchronous
async def test_a_tool_that_mutates_its_arguments_does_not_change_the_context() -> None:
    executor = {"kind": "capability", "capability": "work", "arguments": {"value": "$.context.list"}}
    definition = one({"executor": executor, "output": {"done": True}}, initialContext={"list": [1]})
    async with bench(definition) as b:
        view = await b.start()
        b.work.fails = 1
        await b.follow(view, "go")
        b.work.calls[0].append(2)
        ended = await b.follow(view, "go")
        assert ended["context"] == {"list": [1], "done": True}
        assert (await b.start())["context"] == {"list": [1]}


@asynchronous
async def test_a_tool_that_mutates_its_result_later_does_not_change_the_context() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b", "executor": WORK, "output": {"list": "$.output.list"}}}},
        "b": {"transitions": {"end": {"target": "done", "output": {"copy": "$.context.list"}}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        b.work.answer = {"list": [1], "more": 0}
        view = await b.follow(await b.start(), "go")
        b.work.answer["list"].append(2)
        assert (await b.follow(view, "end"))["context"] == {"list": [1], "copy": [1]}


async def _refusals(b: Bench) -> dict[str, tuple[View, View]]:
    """The instance before and the refusal, by error code."""
    view = await b.start()
    tries: dict[str, tuple[View, View]] = {
        "STALE_WORKFLOW_VERSION": (view, await b.submit(view, "go", version=7)),
        "INVALID_TRANSITION": (view, await b.submit(view, "nowhere")),
        "ACTOR_MISMATCH": (view, await b.submit(view, "people")),
        "INPUT_SCHEMA_VIOLATION": (view, await b.submit(view, "go", {"value": "x"})),
        "GUARD_REJECTED": (view, await b.submit(view, "guarded")),
    }
    b.work.fails = 1
    tries["EXECUTOR_FAILED"] = (view, await b.submit(view, "go"))
    used = await b.start()
    used = await b.submit(used, "stay", {}, requestId="r1")
    tries["REQUEST_ID_REUSED"] = (used, await b.submit(used, "stay", {"other": 1}, requestId="r1"))
    parked = await b.start()
    parked = await b.submit(parked, "ask")
    tries["APPROVAL_PENDING"] = (parked, await b.submit(parked, "go"))
    return tries


@asynchronous
async def test_each_refusal_leaves_the_instance_unchanged_and_has_links() -> None:
    states = {
        "a": {
            "transitions": {
                "go": {"target": "done", "executor": WORK, "inputSchema": VALUE},
                "people": {"target": "done", "actor": "human"},
                "guarded": {"target": "done", "guards": [{"kind": "expr", "expr": "$.context.n > 5"}]},
                "stay": {"target": "a"},
                "ask": {"target": "done", "executor": {"kind": "human"}},
            }
        },
        "done": DONE,
    }
    async with bench(flow(states, initialContext={"n": 1})) as b:
        for code, (before, refused) in (await _refusals(b)).items():
            assert (refused.refused, refused.code) == (True, code)
            assert code in CODES
            assert refused["error"]["message"]
            assert "self" in refused.rels
            own = next(link for link in refused["links"] if link["rel"] == "self")
            seen = await b.call(own["method"], **own["args"])
            assert seen.at == before.at
            assert (refused["state"], refused["version"]) == (seen["state"], seen["version"])


@asynchronous
async def test_a_guard_rejection_names_the_guard_and_its_values() -> None:
    guards = [{"kind": "expr", "expr": "$.context.ok == true"}, {"kind": "expr", "expr": "$.context.coverage >= 90"}]
    async with bench(one({"guards": guards}, initialContext={"ok": True, "coverage": 87.5})) as b:
        refused = await b.submit(await b.start(), "go")
        (reason,) = refused["error"]["guards"]
        assert "$.context.coverage >= 90" in str(reason)
        assert "87.5" in str(reason)


@asynchronous
async def test_an_ended_instance_accepts_no_transitions() -> None:
    async with bench(one({})) as b:
        ended = await b.follow(await b.start(), "go")
        refused = await b.submit(ended, "go")
        assert refused.code == "INVALID_TRANSITION"
        assert refused.rels == ["self"]
        seen = await b.get(ended)
        assert (seen["terminal"], seen["links"]) == (True, [])


@asynchronous
async def test_a_submit_to_an_unknown_instance_is_refused() -> None:
    async with bench(one({})) as b:
        view = View({"workflowId": "wf_0", "version": 1}, False)
        for answer in (await b.get(view), await b.submit(view, "go")):
            assert (answer.refused, answer.code) == (True, "UNKNOWN_WORKFLOW")
