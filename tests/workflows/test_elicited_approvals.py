"""A person who may approve is asked by elicitation, in both eras of the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import served
from tests.workflows.conftest import BOB, Json, flow, model
from waypost import Hub
from waypost.identity import Authentication
from waypost.identity.keys import Key, digest
from waypost.testing import TestClient
from waypost.upstreams.http import HttpTransport
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
KEYS = {name: f"key-of-{name}-{'x' * 32}" for name in ("ann", "bob", "robot")}
DONE: Json = {"terminal": True}


def definition(**executor: Any) -> Json:
    ask = {"target": "done", "executor": {"kind": "human", "prompt": "Deploy?", **executor}, "output": {"n": 1}}
    return flow({"a": {"transitions": {"ask": ask, "other": {"target": "done"}}}, "done": DONE})


class Person:
    """A person who answers each elicitation in turn."""

    def __init__(self, *answers: Json) -> None:
        self._answers = list(answers)
        self.asked: list[Json] = []

    def __call__(self, params: Json) -> Json:
        self.asked.append(params)
        return self._answers[len(self.asked) - 1]


def says(decision: str, reason: str = "") -> Json:
    return {"action": "accept", "content": {"decision": decision, "reason": reason}}


@asynccontextmanager
async def office(role: str = "human", **definitions: Json) -> AsyncIterator[tuple[Hub, str]]:
    """A hub over HTTP with the keys of two people with a role, and of a robot."""
    keys = [Key(name, digest(key), roles=() if name == "robot" else (role,)) for name, key in KEYS.items()]
    hub = Hub("office", version="1", auth=Authentication(keys), audit="store")
    for name, given in definitions.items():
        hub.workflow(name, model(given))
    async with served(hub) as url:
        yield hub, url


@asynccontextmanager
async def client_of(url: str, name: str, version: str, person: Person | None = None) -> AsyncIterator[TestClient]:
    """A client with the key of this principal."""
    client = TestClient(
        HttpTransport(url, {"Authorization": f"Bearer {KEYS[name]}"}),
        version=version,
        answers={} if person is None else {"elicitation/create": person},
    )
    await client.open()
    try:
        yield client
    finally:
        await client.close()


async def asks(client: TestClient, **more: Any) -> Json:
    """Start the workflow and submit the transition that waits for approval."""
    view = (await client.call_tool("workflow.start", {"definitionId": "flow"}))["structuredContent"]
    answer = await client.call_tool("workflow.submit", {**view["links"][0]["args"], **more})
    found: Json = answer["structuredContent"]
    return found


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_person_who_may_approve_is_asked_and_an_approval_moves_the_instance(version: str) -> None:
    person = Person(says("approve", "fine"))
    async with office(flow=definition()) as (hub, url), client_of(url, "ann", version, person) as client:
        view = await asks(client)
        assert (view["state"], view["version"], view["context"]) == ("done", 2, {"n": 1})
        (asked,) = person.asked
        assert asked["message"].startswith("Deploy?")
        row = (await hub.store.instances.history(view["workflowId"]))[-1].value
        assert [(one["by"], one["via"], one["reason"]) for one in row["approvals"]] == [("ann", "elicitation", "fine")]


@pytest.mark.parametrize("role", ["approver", "admin"])
@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_approvers_and_administrators_are_asked_where_a_workflow_names_no_role(version: str, role: str) -> None:
    person = Person(says("approve"))
    async with office(role, flow=definition()) as (_, url), client_of(url, "ann", version, person) as client:
        assert (await asks(client))["state"] == "done"
    assert len(person.asked) == 1


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_rejection_leaves_the_instance(version: str) -> None:
    person = Person(says("reject", "too early"))
    async with office(flow=definition()) as (hub, url), client_of(url, "ann", version, person) as client:
        view = await asks(client)
        assert (view["state"], view["version"], view["status"]) == ("a", 1, "waiting_for_action")
        assert (view["error"]["code"], view["error"]["reason"]) == ("APPROVAL_REJECTED", "too early")
        notes = await hub.store.instances.notes(view["workflowId"])
        assert [note.value["outcome"] for note in notes] == ["rejected"]


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}])
@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_an_undecided_elicitation_leaves_the_approval_open(version: str, answer: Json) -> None:
    async with office(flow=definition()) as (_, url), client_of(url, "ann", version, Person(answer)) as client:
        view = await asks(client)
        assert (view["status"], view["version"]) == ("waiting_for_approval", 1)


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_clients_that_may_not_approve_are_not_asked(version: str) -> None:
    person = Person(says("approve"))
    async with office(flow=definition()) as (_, url):
        async with client_of(url, "robot", version, person) as client:
            assert (await asks(client))["status"] == "waiting_for_approval"
        async with client_of(url, "ann", version) as client:
            assert (await asks(client))["status"] == "waiting_for_approval"
    async with office(flow=definition(role="lead")) as (_, url), client_of(url, "ann", version, person) as client:
        assert (await asks(client))["status"] == "waiting_for_approval"
    assert person.asked == []


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_one_elicited_approval_does_not_complete_a_quorum(version: str) -> None:
    async with office(flow=definition(approvals=2)) as (hub, url):
        async with client_of(url, "ann", version, Person(says("approve"))) as client:
            view = await asks(client)
            assert (view["status"], view["approval"]["given"]) == ("waiting_for_approval", 1)
        await hub.workflows.engine.approvals.approve(view["approval"]["id"], BOB, "cli")
        kept = await hub.store.instances.get(view["workflowId"])
        assert kept is not None
        assert kept.state == "done"


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_start_that_reaches_an_approval_asks_too(version: str) -> None:
    states = {
        "a": {"transitions": {"ask": {"target": "done", "actor": "deterministic", "executor": {"kind": "human"}}}},
        "done": DONE,
    }
    person = Person(says("approve"))
    async with office(flow=flow(states)) as (hub, url), client_of(url, "ann", version, person) as client:
        view = (await client.call_tool("workflow.start", {"definitionId": "flow"}))["structuredContent"]
        assert view["state"] == "done"
        assert len(await hub.store.instances.page()) == 1


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_repeated_submit_is_not_asked_again(version: str) -> None:
    person = Person(says("approve"), says("approve"))
    async with office(flow=definition()) as (hub, url), client_of(url, "ann", version, person) as client:
        view = (await client.call_tool("workflow.start", {"definitionId": "flow"}))["structuredContent"]
        arguments = {**view["links"][0]["args"], "requestId": "once"}
        first, second = [await client.call_tool("workflow.submit", arguments) for _ in range(2)]
        assert first["structuredContent"] == second["structuredContent"]
        assert first["structuredContent"]["state"] == "done"
        assert len(person.asked) == 1
        assert len(await hub.store.instances.history(view["workflowId"])) == 2


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_an_approval_too_large_for_a_form_is_not_elicited(version: str) -> None:
    """A person must not approve what the form truncates, so the response says how to approve elsewhere."""
    person = Person(says("approve"))
    given = definition(presents={"first": "harmless", "last": "x" * 4000})
    async with office(flow=given) as (hub, url), client_of(url, "ann", version, person) as client:
        view = await asks(client)
        assert (view["status"], view["version"], person.asked) == ("waiting_for_approval", 1, [])
        approval = view["approval"]
        for part in ("more than the 4,000 of a form", f"approvals approve {approval['id']}", approval["digest"]):
            assert part in approval["note"]

        await hub.workflows.engine.approvals.approve(approval["id"], BOB, "cli", digest=approval["digest"])
        found = await client.call_tool("workflow.get", {"workflowId": view["workflowId"]})
        assert found["structuredContent"]["state"] == "done"
