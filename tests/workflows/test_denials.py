"""Rules about workflows apply to instances, even of removed workflows, and every denial is audited."""

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
    """The denials in the audit: capability, rule, reason."""
    rows = [row for row in await b.audited() if row["decision"] == "deny"]
    return [(row["capability"], row.get("rule", ""), row["reason"]) for row in rows]


@asynchronous
async def test_a_rule_applies_to_instances_of_a_removed_workflow() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start()
        b.hub.workflows._apply("given", {})
        b.hub.guard.policy.replace(against("workflow:flow"))

        refused = await b.submit(view, "run")

        assert (refused.code, refused["error"]["message"]) == ("POLICY_DENIED", DENIED)
        assert b.work.calls == []
        allowed = (await b.explain(workflowId=view.id))["allowed"]
        assert {reason["code"] for one in allowed for reason in one["reasons"]} == {"POLICY_DENIED"}
        b.hub.guard.policy.replace(against("workflow:other"))
        assert (await b.submit(view, "run"))["terminal"]


@asynchronous
async def test_explaining_an_instance_of_a_hidden_removed_workflow_shows_only_its_status() -> None:
    async with bench(flow(STATES)) as b:
        view = await b.start(by=STRANGER)
        b.hub.workflows._apply("given", {})
        b.hub.guard.policy.replace([msgspec.structs.replace(against("workflow:flow")[0], hide=True)])

        explained = await b.explain(STRANGER, workflowId=view.id)

        assert explained.data.keys() == {"definitionId", "workflowId", "state", "version", "allowed"}


@asynchronous
async def test_a_chain_that_a_rule_denies_is_not_resumed() -> None:
    async with bench(flow(STATES)) as b:
        b.work.fails = 1
        halted = await b.submit(await b.start(), "chain")
        b.hub.guard.policy.replace(against("workflow:flow"))

        assert (await b.follow(halted, "$resume")).code == "POLICY_DENIED"
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_denied_start_is_audited_with_the_rule() -> None:
    async with bench(flow(STATES), options={"audit": "store", "policies": against("workflow:flow")}) as b:
        assert (await b.start(by=STRANGER)).code == "POLICY_DENIED"
        assert await denials(b) == [("workflow:flow", "stop", DENIED)]
        row = next(row for row in await b.audited() if row["decision"] == "deny")
        assert (row["principal"], row["callerType"], row["outcome"]) == ("stranger", "mcp", "denied")


@pytest.mark.parametrize("transition", ["child", "inside"])
@asynchronous
async def test_a_denied_child_is_audited_with_the_rule(transition: str) -> None:
    options = {"audit": "store", "policies": against("workflow:inner")}
    async with bench(flow(STATES), inner=flow(STATES), options=options) as b:
        assert (await b.submit(await b.start(), transition)).code == "EXECUTOR_FAILED"
        assert await denials(b) == [("workflow:inner", "stop", DENIED)]


@asynchronous
async def test_a_denied_submit_is_audited_with_the_rule() -> None:
    async with bench(flow(STATES), options={"audit": "store"}) as b:
        view = await b.start()
        b.hub.guard.policy.replace(against("workflow:flow"))

        await b.submit(view, "go")

        assert await denials(b) == [("workflow:flow", "stop", f"go: POLICY_DENIED: {DENIED}")]
