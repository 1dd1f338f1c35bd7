"""The examples of workflows, used like an agent: by following links. The answers are recorded for the pages."""

from __future__ import annotations

import json
import subprocess
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from tests.docs.exercises import names, of
from waypost import Hub
from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.capabilities.principals import Principal
from waypost.testing import TestClient
from waypost.workflows.engine import Engine
from waypost.workflows.instance import PendingMove

Data = dict[str, Any]
ADA: Final = Principal("ada", ("human",))
ANSWERS: Final[ContextVar[list[Data]]] = ContextVar("answers")
"""All answers, if they are recorded."""


async def call(client: TestClient, tool: str, **arguments: Any) -> Data:
    """The answer of a tool, parsed from its text."""
    result = await client.call_tool(tool, arguments)
    answer: Data = json.loads(result.text)
    is_error = "error" in answer and "status" not in answer
    assert not is_error or result.is_error
    if (kept := ANSWERS.get(None)) is not None:
        kept.append(answer)
    return answer


async def start(client: TestClient, definition: str = "deploy_pipeline", **given: Any) -> Data:
    return await call(client, "workflow.start", definitionId=definition, input=given)


async def follow(client: TestClient, answer: Data, *transitions: str, **more: Any) -> Data:
    """Follow links of answers, one after another."""
    for transition in transitions:
        args = next(link["args"] for link in answer["links"] if link["args"].get("transition") == transition)
        answer = await call(client, "workflow.submit", **{**args, **more})
    return answer


def engine(hub: Hub) -> Engine:
    return hub.workflows.engine


@of("workflows/smallest.yaml")
async def exercise_smallest(client: TestClient, hub: Hub) -> None:
    draft = await start(client, "publish")
    waiting = await follow(client, await follow(client, draft, "submit", arguments={"text": "Hello"}), "approve")
    await engine(hub).approvals.approve(waiting["approval"]["id"], ADA, "cli")
    ended = await call(client, "workflow.get", workflowId=draft["workflowId"])
    assert (ended["state"], ended["status"], ended["context"]) == ("published", "succeeded", {"text": "Hello"})


@of("workflows/states.yaml")
async def exercise_states(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == sorted(GATEWAY_TOOLS)
    tested = await follow(client, await start(client, service="payments"), "run_lint")
    args = {"workflowId": tested["workflowId"], "transition": "deploy", "arguments": {}}
    refused = await call(client, "workflow.submit", expectedVersion=2, **args)
    assert refused["error"]["code"] == "INVALID_TRANSITION"
    stale = await call(client, "workflow.submit", expectedVersion=1, **args)
    assert stale["error"]["code"] == "STALE_WORKFLOW_VERSION"
    ready = await follow(client, tested, "run_tests")
    assert set(ready["guidance"]) == {"goal", "instructions"}
    ended = await follow(client, ready, "abort")
    assert (ended["status"], ended["terminal"], ended["links"]) == ("cancelled", True, [])
    assert (await start(client))["error"]["code"] == "INPUT_SCHEMA_VIOLATION"
    for resource in ("workflows/deploy_pipeline", "workflows/list", f"runs/{tested['workflowId']}", "runs/list"):
        assert "deploy_pipeline" in (await client.read_resource(f"waypost://{resource}")).text


@of("workflows/guards.yaml")
async def exercise_guards(client: TestClient, _hub: Hub) -> None:
    tested = await follow(client, await start(client, service="payments"), "run_lint")
    assert tested["links"][0]["inputSchema"]["required"] == ["passed", "coverage"]
    wrong = await follow(client, tested, "run_tests", arguments={"passed": "yes"})
    assert wrong["error"]["code"] == "INPUT_SCHEMA_VIOLATION"
    ready = await follow(client, tested, "run_tests", arguments={"passed": True, "coverage": 71.5})
    assert (await follow(client, ready, "deploy"))["error"]["code"] == "GUARD_REJECTED"
    better = await follow(client, await start(client, service="payments"), "run_lint")
    better = await follow(client, better, "run_tests", arguments={"passed": True, "coverage": 80})
    assert (await follow(client, better, "deploy"))["state"] == "deployed"


@of("workflows/executors.yaml")
async def exercise_executors(client: TestClient, hub: Hub) -> None:
    locked = await follow(client, await start(client, service="locked"), "run_lint", "run_tests")
    failed = await follow(client, locked, "deploy", requestId="one")
    assert failed["error"]["code"] == "EXECUTOR_FAILED"
    assert (failed["state"], failed["version"]) == ("ready_to_deploy", 3)
    assert await follow(client, locked, "deploy", requestId="one") == failed
    notes = await hub.store.instances.notes(locked["workflowId"])
    assert [note.value["outcome"] for note in notes] == ["failed"]
    await exercise_crash(client, hub)


async def exercise_crash(client: TestClient, hub: Hub) -> None:
    """Write the state that a process leaves when it is killed during a deployment."""
    ready = await follow(client, await start(client, service="payments"), "run_lint", "run_tests")
    live = await engine(hub).cache.get(ready["workflowId"])
    assert live is not None
    held = PendingMove(
        kind="executing", move="deploy", by=live.body.owner, key="a key", holder=gone(hub), began=time.time()
    )
    await engine(hub).runner.reserve(live, held)
    unknown = await call(client, "workflow.get", workflowId=live.id)
    assert unknown["status"] == "unknown_outcome"
    retry, succeeded, failed = unknown["links"]
    assert [link["args"]["resolve"] for link in (retry, succeeded, failed)] == ["retry", "succeeded", "failed"]
    output = {"json": {"deploymentId": "dep_found"}}
    ended = await call(client, "workflow.submit", **succeeded["args"], output=output)
    assert (ended["state"], ended["context"]["deploymentId"]) == ("deployed", "dep_found")


def gone(hub: Hub) -> str:
    """The name of a process that has ended."""
    with subprocess.Popen(["sleep", "60"]) as process:
        began = (Path("/proc") / str(process.pid) / "stat").read_text().rpartition(")")[2].split()[19]
        process.kill()
    machine = engine(hub).runner.holder.partition("|")[0]
    return f"{machine}|{process.pid}|{began}|x"


@of("workflows/gate.yaml")
async def exercise_gate(client: TestClient, hub: Hub) -> None:
    ready = await follow(client, await start(client, service="payments"), "run_lint", "run_tests")
    waiting = await follow(client, ready, "ask")
    args = {"workflowId": ready["workflowId"], "expectedVersion": 3, "transition": "abort", "arguments": {}}
    assert (await call(client, "workflow.submit", **args))["error"]["code"] == "APPROVAL_PENDING"
    await engine(hub).approvals.reject(waiting["approval"]["id"], ADA, "cli", "not on a Friday")
    still = await call(client, "workflow.get", workflowId=ready["workflowId"])
    assert (still["state"], still["version"], still["status"]) == ("ready_to_deploy", 3, "waiting_for_action")
    waiting = await follow(client, still, "ask")
    await engine(hub).approvals.approve(waiting["approval"]["id"], ADA, "cli", digest=waiting["approval"]["digest"])
    approved = await call(client, "workflow.get", workflowId=ready["workflowId"])
    assert (await follow(client, approved, "deploy"))["context"]["deploymentId"] == "dep_payments"


@of("workflows/chain.yaml")
async def exercise_chain(client: TestClient, _hub: Hub) -> None:
    ready = await start(client, service="payments")
    assert (ready["state"], ready["version"]) == ("ready_to_deploy", 4), ready
    broken = await start(client, service="broken")
    again = await follow(client, broken, "test_again")
    assert (again["state"], again["version"]) == ("needs_work", 7)
    ran = await call(client, "workflow:deploy_pipeline", input={"service": "payments"})
    assert (ran["run_id"], ran["status"]) == (ran["workflowId"], "waiting_for_action")


@of("workflows/release.yaml")
async def exercise_release(client: TestClient, hub: Hub) -> None:
    waiting = await follow(client, await start(client, "release", services=["payments", "mail"]), "test_all")
    waiting = await follow(client, waiting, "deploy_first")
    child = await call(client, **arguments_of(waiting["links"][1]))
    assert (await follow(client, child, "deploy"))["status"] == "succeeded"
    await engine(hub).runner.wake(waiting["workflowId"])
    released = await call(client, "workflow.get", workflowId=waiting["workflowId"])
    assert (released["status"], released["context"]["deploymentId"]) == ("succeeded", "dep_payments")
    few = await start(client, "release", services=["payments", "broken"])
    assert (await follow(client, few, "test_all"))["context"] == {"tested": 2}


def arguments_of(link: Data) -> Data:
    """The arguments of the call that a link describes."""
    return {"tool": link["method"], **link["args"]}


@of("workflows/capabilities.yaml")
async def exercise_capabilities(client: TestClient, hub: Hub) -> None:
    fixed = await start(client, "hotfix")
    link = next(link for link in fixed["links"] if link["title"] == "Deploy the fix")
    assert link["inputSchema"]["required"] == ["service"]
    refused = await follow(client, fixed, "deploy", arguments={"service": "payments"})
    assert refused["error"]["guards"][0]["operands"] == {"human_approval": 0}
    waiting = await follow(client, fixed, "ask")
    for person in (ADA, Principal("ben", ("human",))):
        await engine(hub).approvals.approve(waiting["approval"]["id"], person, "cli")
    approved = await call(client, "workflow.get", workflowId=fixed["workflowId"])
    ended = await follow(client, approved, "deploy", arguments={"service": "payments"})
    assert (ended["status"], ended["context"]) == ("succeeded", {"deploymentId": "dep_payments"})


@of("workflows/pipeline.py")
async def exercise_pipeline(client: TestClient, hub: Hub) -> None:
    ready = await start(client, service="payments")
    waiting = await follow(client, ready, "ask")
    await engine(hub).approvals.approve(waiting["approval"]["id"], ADA, "cli")
    approved = await call(client, "workflow.get", workflowId=ready["workflowId"])
    assert (await follow(client, approved, "deploy"))["context"]["deploymentId"] == "dep_payments"
    broken = await start(client, service="broken")
    assert (await follow(client, broken, "ask"))["error"]["code"] == "GUARD_REJECTED"


@of("workflows/steps.yaml")
async def exercise_steps(client: TestClient, _hub: Hub) -> None:
    for mail, result, ran in (
        ("Fire in the kitchen!", "Fire in", ["clean", "sort", "headline"]),
        ("How are you doing today, my friend", "How are you doing today,", ["clean", "sort", "summary"]),
        ("", '{"error":"Tool crashed: ValueError: there is no mail"}', ["clean", "sort", "report"]),
    ):
        answer = await call(client, "workflow:answer_mail", input=mail)
        assert (answer["status"], answer["result"]) == ("completed", result)
        assert [one["name"] for one in answer["context"]["step_results"].values()] == ran
