"""Rules against workflows hold for instances too, whatever became of the workflow, and every denial is on record."""

from __future__ import annotations

import msgspec
import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import STRANGER, WORK, Bench, Json, bench, flow
from waypost.policy import Rule

DONE: Json = {"terminal": True}
STATES: Json = {
    "a": {
        "transitions": {
            "go": {"target": "done"},
            "run": {"target": "done", "executor": WORK},
            "child": {"target": "done", "executor": {"kind": "workflow", "definitionId": "inner"}},
            "inside": {
                "target": "done",
                "executor": {"kind": "pipeline", "steps": [{"kind": "workflow", "definitionId": "inner"}]},
            },
            "chain": {"target": "hop"},
        }
    },
    "hop": {"transitions": {"on": {"target": "done", "actor": "deterministic", "executor": WORK}}},
    "done": DONE,
}
DENIED = "permission override: execute is denied"


def against(*names: str) -> list[Rule]:
    return [Rule(name="stop", type="permission_override", config={"permission": "execute"}, capabilities=names)]


async def denials(b: Bench) -> list[tuple[str, str, str]]:
    """What the audit says was denied: what, by which rule, why."""
    rows = [row for row in await b.audited() if row["decision"] == "deny"]
    return [(row["capability"], row.get("rule", ""), row["reason"]) for row in rows]


@asynchronous
async def test_a_rule_holds_for_instances_whose_workflow_was_removed() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start()
        b.hub.workflows._apply("given", {})
        b.hub.guard.policy.replace(against("workflow:flow"))

        refused = await b.submit(told, "run")

        assert (refused.code, refused["error"]["message"]) == ("POLICY_DENIED", DENIED)
        assert b.work.calls == []
        allowed = (await b.explain(workflowId=told.id))["allowed"]
        assert {reason["code"] for one in allowed for reason in one["reasons"]} == {"POLICY_DENIED"}
        b.hub.guard.policy.replace(against("workflow:other"))
        assert (await b.submit(told, "run"))["terminal"]


@asynchronous
async def test_an_instance_of_a_removed_workflow_that_is_hidden_tells_only_how_it_stands() -> None:
    async with bench(flow(STATES)) as b:
        told = await b.start(by=STRANGER)
        b.hub.workflows._apply("given", {})
        b.hub.guard.policy.replace([msgspec.structs.replace(against("workflow:flow")[0], hide=True)])

        explained = await b.explain(STRANGER, workflowId=told.id)

        assert explained.data.keys() == {"definitionId", "workflowId", "state", "version", "allowed"}


@asynchronous
async def test_a_chain_is_not_resumed_against_a_rule() -> None:
    async with bench(flow(STATES)) as b:
        b.work.fails = 1
        halted = await b.submit(await b.start(), "chain")
        b.hub.guard.policy.replace(against("workflow:flow"))

        assert (await b.follow(halted, "$resume")).code == "POLICY_DENIED"
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_start_that_a_rule_denies_is_on_record_with_the_rule() -> None:
    async with bench(flow(STATES), options={"audit": "store", "policies": against("workflow:flow")}) as b:
        assert (await b.start(by=STRANGER)).code == "POLICY_DENIED"
        assert await denials(b) == [("workflow:flow", "stop", DENIED)]
        row = next(row for row in await b.audited() if row["decision"] == "deny")
        assert (row["principal"], row["callerType"], row["outcome"]) == ("stranger", "mcp", "denied")


@pytest.mark.parametrize("transition", ["child", "inside"])
@asynchronous
async def test_a_child_that_a_rule_denies_is_on_record_with_the_rule(transition: str) -> None:
    options = {"audit": "store", "policies": against("workflow:inner")}
    async with bench(flow(STATES), inner=flow(STATES), options=options) as b:
        assert (await b.submit(await b.start(), transition)).code == "EXECUTOR_FAILED"
        assert await denials(b) == [("workflow:inner", "stop", DENIED)]


@asynchronous
async def test_a_submit_that_a_rule_denies_is_on_record_with_the_rule() -> None:
    async with bench(flow(STATES), options={"audit": "store"}) as b:
        told = await b.start()
        b.hub.guard.policy.replace(against("workflow:flow"))

        await b.submit(told, "go")

        assert await denials(b) == [("workflow:flow", "stop", f"go: POLICY_DENIED: {DENIED}")]
