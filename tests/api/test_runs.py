"""Runs through the API: lists, histories, and the actions of operators."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from tests.api.conftest import AGENT, operating
from tests.api.releasing import releasing
from tests.protocol.conftest import asynchronous
from waypost.api.runs import Status
from waypost.cli.runs import STATUSES
from waypost.config.models import CliConnection

RUNS = "/api/v1/runs"


@asynchronous
async def test_runs_are_listed_with_the_newest_first() -> None:
    async with releasing() as hub:
        ids = [await hub.start(service=name) for name in ("a", "b", "c")]
        listed = (await hub.fetch("GET", RUNS))["runs"]
        assert sorted(run["workflowId"] for run in listed) == sorted(ids)
        assert [run["workflowId"] for run in listed] == sorted(ids, reverse=True)
        started = listed[0].pop("startedAt")
        assert started.endswith("Z")
        assert listed[0] == {
            "workflowId": max(ids),
            "definitionId": "release",
            "state": "draft",
            "version": 1,
            "status": "waiting_for_action",
            "principal": "agent",
        }


@asynchronous
async def test_a_hub_without_workflows_has_no_runs() -> None:
    async with operating() as operator:
        assert await operator.fetch("GET", RUNS) == {"runs": [], "next": None}


@asynchronous
async def test_every_run_comes_once_page_by_page_under_any_filter() -> None:
    async with releasing() as hub:
        ids = [await hub.start() for _ in range(5)]
        waiting = [(await hub.asked())[0] for _ in range(2)]
        for query, wanted in (
            ("", [*ids, *waiting]),
            ("definition=release&", [*ids, *waiting]),
            ("principal=agent&definition=release&", [*ids, *waiting]),
            ("status=waiting_for_approval&", waiting),
            ("status=waiting_for_action&principal=agent&", ids),
            ("principal=nobody&", []),
            ("definition=nothing&", []),
            ("status=failed&", []),
        ):
            found: list[str] = []
            before = ""
            while True:
                page = await hub.fetch("GET", f"{RUNS}?{query}limit=2&before={before}")
                assert len(page["runs"]) <= 2
                found += [run["workflowId"] for run in page["runs"]]
                if page["next"] is None:
                    break
                before = page["next"]
            assert found == sorted(wanted, reverse=True), query


@pytest.mark.parametrize("query", ["before=zzz", "before=wf_0", "before=%00", "status=nope", "status="])
@asynchronous
async def test_an_invalid_query_is_400(query: str) -> None:
    async with releasing() as hub:
        await hub.start()
        assert (await hub.refused("GET", f"{RUNS}?{query}"))[0] == 400


@asynchronous
async def test_a_filter_by_an_impossible_name_finds_nothing() -> None:
    async with releasing() as hub:
        await hub.start()
        for query in ("definition=%00", "principal=%00"):
            assert await hub.fetch("GET", f"{RUNS}?{query}") == {"runs": [], "next": None}


def test_the_shell_knows_the_same_statuses() -> None:
    assert get_args(Status) == STATUSES


@asynchronous
async def test_environment_values_of_a_connection_are_redacted() -> None:
    states = {"upstairs": {"transitions": {"say": {"target": "upstairs", "output": {"said": "$.arguments.text"}}}}}
    connection = CliConnection(command="c", env={"MINE": "val-of-mine", "WHERE": "upstairs"})
    async with releasing(talk={"initialState": "upstairs", "states": states}) as hub:
        hub.hub.workflows.define({})
        hub.hub.runtime.upstreams.connections = {"c": connection}
        run = await hub.start("talk", note="it is val-of-mine")
        await hub.submit(run, "say", text="so val-of-mine, Bearer abcdefghij")
        view = await hub.fetch("GET", f"{RUNS}/{run}")
        assert "val-of-mine" not in json.dumps(view)
        said = {"said": "so [REDACTED], Bearer [REDACTED]"}
        assert (view["context"], view["history"][1]["delta"]) == (said, said)
        assert (view["input"], view["state"]) == ({"note": "it is [REDACTED]"}, "upstairs")


@asynchronous
async def test_a_run_is_shown_with_one_row_a_commit() -> None:
    async with releasing() as hub:
        run = await hub.start(service="shop")
        await hub.submit(run, "build", tests=True, token="t0p")
        shown = await hub.fetch("GET", f"{RUNS}/{run}")
        assert (shown["state"], shown["version"], shown["status"]) == ("review", 2, "waiting_for_action")
        assert (shown["principal"], shown["input"]) == ("agent", {"service": "shop"})
        assert shown["owner"] == {"id": "agent", "roles": ["agent"], "permissions": ["deploy"]}
        first, second = shown["history"]
        assert (first["version"], first["transition"], first["from"], first["to"]) == (1, "$start", None, "draft")
        assert (second["version"], second["transition"], second["to"], second["by"]) == (2, "build", "review", "agent")
        assert second["at"].endswith("Z")
        assert second["delta"] == {"tests": True, "apiToken": "[REDACTED]"}
        assert second["idempotencyKey"].startswith(f"{run}.build.")
        assert second["executor"]["outcome"] == "succeeded"
        assert "t0p" not in json.dumps(shown)


@asynchronous
async def test_a_rejection_is_in_the_history_and_a_failure_in_the_notes() -> None:
    async with releasing() as hub:
        run, approval = await hub.asked()
        await hub.fetch("POST", f"/api/v1/approvals/{approval}/reject", {"reason": "not today"})
        await hub.submit(run, "revise")
        await hub.submit(run, "build", tests=False)
        shown = await hub.fetch("GET", f"{RUNS}/{run}")
        assert [(row["version"], row["transition"], row.get("outcome")) for row in shown["history"]] == [
            (1, "$start", None),
            (2, "build", None),
            (2, "ship", "rejected"),
            (3, "revise", None),
        ]
        rejected = shown["history"][2]
        assert (rejected["from"], rejected["to"], rejected["approvalId"]) == ("review", "review", approval)
        assert (rejected["decidedBy"], rejected["via"], rejected["reason"]) == ("root", "api", "not today")
        (note,) = shown["notes"]
        assert (note["version"], note["transition"], note["outcome"]) == (3, "build", "failed")
        assert "The tests fail." in note["error"]["message"]


@asynchronous
async def test_a_history_is_read_in_pages() -> None:
    async with releasing() as hub:
        run = await hub.start()
        for _ in range(3):
            await hub.submit(run, "skip", sure=True)
            await hub.submit(run, "revise")
        first = await hub.fetch("GET", f"{RUNS}/{run}?limit=4")
        assert [row["version"] for row in first["history"]] == [1, 2, 3, 4]
        assert first["next"] == 4
        rest = await hub.fetch("GET", f"{RUNS}/{run}?after=4")
        assert [row["version"] for row in rest["history"]] == [5, 6, 7]
        assert "next" not in rest
        assert (await hub.refused("GET", f"{RUNS}/{run}?limit=10001"))[0] == 400


@asynchronous
async def test_a_run_is_cancelled_once() -> None:
    async with releasing() as hub:
        run, _ = await hub.asked()
        ended = await hub.fetch("POST", f"{RUNS}/{run}/cancel", {"reason": "not needed"})
        assert (ended["status"], ended["links"]) == ("cancelled", [])
        assert await hub.refused("POST", f"{RUNS}/{run}/cancel") == (409, f"{run} has ended already.")
        last = (await hub.fetch("GET", f"{RUNS}/{run}"))["history"][-1]
        assert (last["transition"], last["by"], last["reason"]) == ("$cancel", "root", "not needed")


@pytest.mark.parametrize(
    ("how", "state", "version"), [("retry", "review", 2), ("succeeded", "review", 2), ("failed", "draft", 1)]
)
@asynchronous
async def test_an_unknown_outcome_is_resolved(how: str, state: str, version: int) -> None:
    async with releasing() as hub:
        run = await hub.lost()
        assert (await hub.fetch("GET", f"{RUNS}/{run}"))["status"] == "unknown_outcome"
        resolved = await hub.fetch("POST", f"{RUNS}/{run}/resolve", {"as": how})
        assert (resolved["state"], resolved["version"], resolved["status"]) == (state, version, "waiting_for_action")
        assert (await hub.refused("POST", f"{RUNS}/{run}/resolve", {"as": how}))[0] == 409


@asynchronous
async def test_a_resolution_takes_an_output_and_nothing_else() -> None:
    async with releasing() as hub:
        run = await hub.lost()
        for body in ({}, {"as": "maybe"}, {"as": "failed", "colour": "red"}, {"as": "retry", "output": {}}):
            assert (await hub.refused("POST", f"{RUNS}/{run}/resolve", body))[0] == 400
        await hub.fetch("POST", f"{RUNS}/{run}/resolve", {"as": "succeeded", "output": {"built": True}})
        assert (await hub.fetch("GET", f"{RUNS}/{run}"))["history"][-1]["executor"]["resolvedBy"] == "root"


@asynchronous
async def test_a_retry_that_fails_returns_its_error() -> None:
    async with releasing() as hub:
        run = await hub.lost()

        async def broken(*given: object, **more: object) -> None:
            raise RuntimeError("the disk is full")

        live = await hub.hub.workflows.engine.cache.get(run)
        assert live is not None
        runs = live.state.actions["build"].runs
        assert runs is not None
        runs.__dict__["run"] = broken
        view = await hub.fetch("POST", f"{RUNS}/{run}/resolve", {"as": "retry"})
        assert (view["state"], view["error"]["code"]) == ("draft", "EXECUTOR_FAILED")
        assert "the disk is full" in view["error"]["message"]


@pytest.mark.parametrize(
    ("verb", "path"), [("GET", ""), ("GET", "/children"), ("GET", "/graph"), ("POST", "/cancel"), ("POST", "/resolve")]
)
@asynchronous
async def test_an_unknown_run_is_404(verb: str, path: str) -> None:
    async with releasing() as hub:
        body = {"as": "retry"} if path == "/resolve" else None
        assert await hub.refused(verb, f"{RUNS}/wf_none{path}", body) == (404, "Unknown workflow instance 'wf_none'.")


@asynchronous
async def test_the_principal_of_a_run_cannot_read_it_here_without_a_role() -> None:
    async with releasing() as hub:
        run = await hub.start()
        assert (await hub.refused("GET", f"{RUNS}/{run}", key=AGENT))[0] == 403
        assert (await hub.refused("GET", RUNS, key=hub.lead))[0] == 403


@asynchronous
async def test_a_history_is_read_from_its_end() -> None:
    async with releasing() as hub:
        run, approval = await hub.asked()
        await hub.fetch("POST", f"/api/v1/approvals/{approval}/reject", {"reason": "not today"})
        await hub.submit(run, "revise")
        latest = await hub.fetch("GET", f"{RUNS}/{run}?order=desc&limit=2")
        assert [(row["version"], row["transition"]) for row in latest["history"]] == [
            (3, "revise"),
            (2, "ship"),
            (2, "build"),
        ]
        assert latest["next"] == 2
        rest = await hub.fetch("GET", f"{RUNS}/{run}?order=desc&before=2")
        assert [row["transition"] for row in rest["history"]] == ["$start"]
        assert await hub.refused("GET", f"{RUNS}/{run}?before=2") == (400, "`before` needs `order=desc`.")


@asynchronous
async def test_states_and_times_are_filtered_by() -> None:
    async with releasing() as hub:
        run = await hub.start()
        for query, wanted in (
            ("definition=release&state=draft", [run]),
            ("definition=release&state=review", []),
            ("since=2020-01-01T00:00:00Z&until=2999-01-01T00:00:00Z", [run]),
            ("until=2020-01-01T00:00:00Z", []),
            ("since=2999-01-01T00:00:00Z", []),
            (f"text={run.upper()}", [run]),
        ):
            page = await hub.fetch("GET", f"{RUNS}?{query}")
            assert [one["workflowId"] for one in page["runs"]] == wanted, query
        assert (await hub.refused("GET", f"{RUNS}?state=draft"))[1].startswith("`state` needs a `definition`")
        assert (await hub.refused("GET", f"{RUNS}?since=2020-01-01"))[0] == 400


@asynchronous
async def test_a_batch_changes_the_runs_of_its_dry_run() -> None:
    async with releasing() as hub:
        ids = [await hub.start() for _ in range(3)]
        shown = await hub.fetch("POST", f"{RUNS}/batch", {"action": "cancel", "definition": "release"})
        assert (shown["dryRun"], shown["total"], shown["more"], shown["newest"]) == (True, 3, False, max(ids))
        later = await hub.start()
        done = await hub.fetch(
            "POST", f"{RUNS}/batch", {"action": "cancel", "dryRun": False, "newest": shown["newest"]}
        )
        assert (done["total"], done["failures"]) == (3, [])
        left = await hub.fetch("GET", f"{RUNS}?status=waiting_for_action")
        assert [run["workflowId"] for run in left["runs"]] == [later]
        for body in ({"action": "retry", "status": "failed"}, {"action": "cancel", "newest": "x"}, {"action": "sing"}):
            assert (await hub.refused("POST", f"{RUNS}/batch", body))[0] == 400


@asynchronous
async def test_the_graph_of_a_run_marks_its_path_and_has_no_inline_style() -> None:
    async with releasing() as hub:
        run = await hub.start()
        await hub.submit(run, "build", tests=True)
        drawn = (await hub.fetch("GET", f"{RUNS}/{run}/graph"))["text"]
        assert (drawn.count("taken"), drawn.count(" current"), drawn.count("<style")) == (1, 1, 0)
        assert (await hub.fetch("GET", f"{RUNS}/{run}/children"))["runs"] == []
        assert (await hub.refused("GET", f"{RUNS}/wf_none/graph"))[0] == 404
