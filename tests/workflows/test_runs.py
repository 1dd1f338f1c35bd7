"""Instances as operators see them."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, OPERATOR, STRANGER, Bench, View, bench, flow
from waypost.capabilities.principals import Principal
from waypost.workflows.instance import detached_caller
from waypost.workflows.resources import MOST_HISTORY, RunFilter, Runs, mask_answer

LOOP = flow(
    {
        "idle": {
            "transitions": {
                "spin": {"target": "idle", "output": {"password": "$.arguments.word", "n": "$.arguments.n"}},
                "ask": {"target": "done", "executor": {"kind": "human", "expiresMs": 1}},
            }
        },
        "done": {"terminal": True},
    }
)


def runs_of(found: Bench) -> Runs:
    return Runs(found.engine, found.hub.store)


async def show(found: Bench, about: View, by: Principal = OPERATOR, **more: Any) -> dict[str, Any]:
    answer = await runs_of(found).show(about.id, detached_caller(by, about.id), **more)
    assert not answer.refused
    return answer.data


@asynchronous
async def test_a_history_has_one_row_for_each_version() -> None:
    async with bench(LOOP) as found:
        view = await found.start(by=ANN)
        for number in range(4):
            view = await found.submit(view, "spin", {"n": number}, by=ANN)
        data = await show(found, view)
        assert [row["version"] for row in data["history"]] == [1, 2, 3, 4, 5]
        assert [row["delta"].get("n") for row in data["history"]] == [None, 0, 1, 2, 3]
        assert {row["by"] for row in data["history"]} == {"ann"}
        assert data["notes"] == []
        assert "history" not in (await found.get(view, ANN)).data


@asynchronous
async def test_a_history_longer_than_a_page_of_the_store_is_complete() -> None:
    async with bench(LOOP) as found:
        view = await found.start(by=ANN)
        live = await found.engine.cache.get(view.id)
        assert live is not None
        for version in range(1, 1101):
            stored = live.to_record(0.0)
            moved = type(stored)(
                **{**{name: getattr(stored, name) for name in stored.__struct_fields__}, "version": version}
            )
            await found.hub.store.instances.commit(
                moved, time.time(), {"transition": "spin", "to": "idle", "by": "ann"}
            )
        assert [row["version"] for row in (await show(found, view))["history"]] == list(range(1, 1102))
        part = await show(found, view, after=1000, limit=50)
        assert ([row["version"] for row in part["history"]], part["next"]) == (list(range(1001, 1051)), 1050)
        assert MOST_HISTORY == 10_000


@asynchronous
async def test_secrets_are_redacted_at_any_depth() -> None:
    async with bench(LOOP) as found:
        view = await found.start(by=ANN, given={"keys": ["wp_secret"], "nested": {"token": {"value": "wp_secret"}}})
        view = await found.submit(view, "spin", {"word": "wp_secret", "n": 1}, by=ANN)
        data = await show(found, view)
        assert "wp_secret" not in json.dumps(data)
        assert data["context"] == {"password": "[REDACTED]", "n": 1}
        assert data["input"] == {"keys": ["[REDACTED]"], "nested": {"token": {"value": "[REDACTED]"}}}


@asynchronous
async def test_an_expired_approval_is_in_the_history() -> None:
    async with bench(LOOP) as found:
        view = await found.start(by=ANN)
        view = await found.submit(view, "ask", by=ANN)
        while (await found.get(view, ANN))["status"] == "waiting_for_approval":
            pass
        started, expired = (await show(found, view))["history"]
        assert (started["version"], expired["version"]) == (1, 1)
        assert (expired["transition"], expired["outcome"], expired["to"]) == ("ask", "expired", "idle")


@asynchronous
async def test_another_principals_instance_is_answered_like_an_unknown_one() -> None:
    async with bench(LOOP) as found:
        view = await found.start(by=ANN)
        other = await runs_of(found).show(view.id, detached_caller(STRANGER, view.id))
        never = await runs_of(found).show("wf_never", detached_caller(STRANGER, "wf_never"))
        for answer, name in ((other, view.id), (never, "wf_never")):
            assert answer.refused
            assert answer.data["error"] == {
                "code": "UNKNOWN_WORKFLOW",
                "message": f"Unknown workflow instance {name!r}.",
            }


@asynchronous
async def test_a_rare_status_is_found_after_many_other_instances() -> None:
    async with bench(LOOP) as found:
        first = await found.start(by=ANN)
        await found.engine.cancel(first.id, detached_caller(ANN, first.id))
        for _ in range(30):
            await found.start(by=ANN)
        page = await runs_of(found).list(RunFilter(status="cancelled"), limit=5)
        assert ([run["workflowId"] for run in page.runs], page.next) == ([first.id], None)
        everything = await runs_of(found).list(RunFilter(principal="ann"), limit=31)
        assert (len(everything.runs), everything.next) == (31, None)
        assert (await runs_of(found).list(RunFilter(principal="ann"), limit=30)).next is not None


def test_the_arguments_of_links_are_redacted_too() -> None:
    link = {"rel": "transition", "args": {"workflowId": "wf_1", "arguments": {"token": "x", "a": 1}}}
    own = {"rel": "self", "args": {"workflowId": "wf_1"}}
    assert mask_answer({"links": [link, own], "version": 1}) == {
        "links": [
            {"rel": "transition", "args": {"workflowId": "wf_1", "arguments": {"token": "[REDACTED]", "a": 1}}},
            own,
        ],
        "version": 1,
    }
