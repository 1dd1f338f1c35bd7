"""Approvals through the API: a person with the role that is asked for decides, once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.conftest import ADMIN, AGENT
from tests.api.releasing import RELEASE, Releases, releasing
from tests.protocol.conftest import asynchronous

APPROVALS = "/api/v1/approvals"


async def waiting(hub: Releases, key: str = ADMIN) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await hub.fetch("GET", APPROVALS, key=key))["approvals"]
    return found


@asynchronous
async def test_a_pending_approval_is_listed_with_its_transition_and_arguments() -> None:
    async with releasing() as hub:
        run, approval = await hub.asked(service="shop")
        (answer,) = await waiting(hub)
        assert (answer["id"], answer["workflowId"], answer["transition"]) == (approval, run, "ship")
        assert (answer["presents"], answer["prompt"], answer["role"]) == ({"service": "shop"}, "Ship it?", "lead")
        assert answer["digest"].startswith("sha256:")
        assert answer["requestedAt"] < answer["expiresAt"]


@asynchronous
async def test_each_principal_sees_the_approvals_it_can_decide_and_a_viewer_sees_all() -> None:
    async with releasing() as hub:
        await hub.asked()
        assert len(await waiting(hub, hub.lead)) == 1
        assert await waiting(hub, AGENT) == []
        viewer = (await hub.fetch("POST", "/api/v1/keys", {"id": "vera", "roles": ["viewer"]}))["key"]
        assert [one["canDecide"] for one in await waiting(hub, viewer)] == [False]
        assert [one["canDecide"] for one in await waiting(hub, hub.lead)] == [True]
        assert await hub.refused("GET", APPROVALS, key=None) == (401, "Missing Authorization header")


@asynchronous
async def test_a_principal_with_the_role_approves() -> None:
    async with releasing() as hub:
        run, approval = await hub.asked()
        answer = await hub.fetch("POST", f"{APPROVALS}/{approval}/approve", {"reason": "fine"}, key=hub.lead)
        assert answer == {
            "id": approval,
            "decision": "approved",
            "workflowId": run,
            "state": "shipped",
            "version": 3,
            "status": "succeeded",
            "error": None,
            "missing": 0,
        }
        assert await waiting(hub) == []
        (given,) = (await hub.fetch("GET", f"/api/v1/runs/{run}"))["history"][-1]["approvals"]
        assert (given["by"], given["via"], given["reason"]) == ("lena", "api", "fine")
        assert given["at"].endswith("Z")


@asynchronous
async def test_the_programs_of_the_hub_say_which_they_are() -> None:
    async with releasing() as hub:
        for sent, via in (("cli", "cli"), ("console", "console"), ("elicitation", "api")):
            run, approval = await hub.asked()
            await hub.fetch("POST", f"{APPROVALS}/{approval}/reject", more={"waypost-via": sent})
            assert (await hub.fetch("GET", f"/api/v1/runs/{run}"))["history"][-1]["via"] == via


@pytest.mark.parametrize("word", ["approve", "reject"])
@asynchronous
async def test_a_principal_without_the_role_cannot_decide(word: str) -> None:
    async with releasing() as hub:
        run, approval = await hub.asked()
        assert await hub.refused("POST", f"{APPROVALS}/{approval}/{word}", key=AGENT) == (
            403,
            f"Deciding about {approval} requires the role lead.",
        )
        assert (await hub.refused("POST", f"{APPROVALS}/{approval}/{word}", key=None))[0] == 401
        assert (await hub.fetch("GET", f"/api/v1/runs/{run}"))["status"] == "waiting_for_approval"


@asynchronous
async def test_a_rejection_leaves_the_run_where_it_is() -> None:
    async with releasing() as hub:
        _, approval = await hub.asked()
        answer = await hub.fetch("POST", f"{APPROVALS}/{approval}/reject", {"reason": "no"}, key=hub.lead)
        assert (answer["decision"], answer["state"], answer["version"]) == ("rejected", "review", 2)
        assert (answer["status"], answer["error"]) == ("waiting_for_action", None)


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
@asynchronous
async def test_a_decided_approval_is_409(first: str, second: str) -> None:
    async with releasing() as hub:
        _, approval = await hub.asked()
        await hub.fetch("POST", f"{APPROVALS}/{approval}/{first}")
        call = await hub.ask("POST", f"{APPROVALS}/{approval}/{second}")
        assert (call.status, json.loads(call.body)) == (
            409,
            {
                "error": f"There is no pending approval {approval}; it has been decided, or does not exist.",
                "code": "APPROVAL_SETTLED",
            },
        )


@asynchronous
async def test_an_unknown_approval_is_404() -> None:
    async with releasing() as hub:
        for id in ("ap_none", "ap_0199a1b2c3d4e5f60718293a_5f0c41aa7b21", "x"):
            status, sentence = await hub.refused("POST", f"{APPROVALS}/{id}/approve")
            assert (status, sentence) == (
                404,
                f"There is no pending approval {id}; it has been decided, or does not exist.",
            )


@asynchronous
async def test_a_digest_of_something_else_is_refused() -> None:
    async with releasing() as hub:
        _, approval = await hub.asked()
        call = await hub.ask("POST", f"{APPROVALS}/{approval}/approve", {"digest": "sha256:00"})
        answer = json.loads(call.body)
        assert (call.status, answer["code"], "read it again" in answer["error"]) == (409, "APPROVAL_CHANGED", True)
        (shown,) = await waiting(hub)
        await hub.fetch("POST", f"{APPROVALS}/{approval}/approve", {"digest": shown["digest"]})


@asynchronous
async def test_a_quorum_takes_different_people() -> None:
    states = {**RELEASE["states"], "draft": {"transitions": {"ship": _asking(2, "shipped")}}}
    async with releasing(quorum={**RELEASE, "states": states}) as hub:
        run = await hub.start("quorum")
        approval = (await hub.submit(run, "ship"))["approval"]["id"]
        answer = await hub.fetch("POST", f"{APPROVALS}/{approval}/approve", key=hub.lead)
        assert (answer["status"], answer["version"], answer["missing"]) == ("waiting_for_approval", 1, 1)
        call = await hub.ask("POST", f"{APPROVALS}/{approval}/approve", key=hub.lead)
        assert (call.status, json.loads(call.body)) == (
            409,
            {"error": f"lena has already approved {approval}; another person has to.", "code": "APPROVAL_GIVEN"},
        )
        answer = await hub.fetch("POST", f"{APPROVALS}/{approval}/approve")
        assert (answer["status"], answer["state"], answer["missing"]) == ("succeeded", "shipped", 0)


@asynchronous
async def test_a_failure_after_an_approval_is_in_its_response() -> None:
    states = {
        "draft": {"transitions": {"ship": _asking(1, "building")}},
        "building": {
            "transitions": {
                "build": {
                    "target": "shipped",
                    "actor": "deterministic",
                    "executor": {"kind": "capability", "capability": "build"},
                }
            }
        },
        "shipped": {"terminal": True},
    }
    async with releasing(chain={"initialState": "draft", "states": states}) as hub:
        run = await hub.start("chain")
        approval = (await hub.submit(run, "ship"))["approval"]["id"]
        answer = await hub.fetch("POST", f"{APPROVALS}/{approval}/approve", key=hub.lead)
        assert (answer["decision"], answer["state"], answer["status"]) == ("approved", "building", "chain_failed")
        assert "The tests fail." in answer["error"]["message"]


def _asking(people: int, target: str) -> dict[str, Any]:
    return {"target": target, "executor": {"kind": "human", "role": "lead", "approvals": people}}


@asynchronous
async def test_an_approver_decides_only_approvals_without_a_role() -> None:
    plain = json.loads(json.dumps(RELEASE))
    for state in plain["states"].values():
        state.get("transitions", {}).get("ship", {}).get("executor", {}).pop("role", None)
    async with releasing(plain=plain) as hub:
        key = await hub.hub.keys.create("ann", roles=["approver"])
        _, of_leads = await hub.asked()
        run = await hub.start("plain")
        await hub.submit(run, "build", tests=True)
        approval = (await hub.submit(run, "ship"))["approval"]["id"]

        assert [one["id"] for one in await waiting(hub, key)] == [approval]
        assert (await hub.fetch("POST", f"{APPROVALS}/{approval}/approve", {}, key=key))["decision"] == "approved"
        assert (await hub.refused("POST", f"{APPROVALS}/{of_leads}/approve", {}, key=key))[0] in (403, 404)
