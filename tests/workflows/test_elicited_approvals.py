"""Where the person behind the client may approve, they are asked right there, in both eras of the protocol."""

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
    """Somebody who answers what they are asked."""

    def __init__(self, *answers: Json) -> None:
        self._answers = list(answers)
        self.asked: list[Json] = []

    def __call__(self, params: Json) -> Json:
        self.asked.append(params)
        return self._answers[len(self.asked) - 1]


def says(decision: str, reason: str = "") -> Json:
    return {"action": "accept", "content": {"decision": decision, "reason": reason}}


@asynccontextmanager
async def office(**definitions: Json) -> AsyncIterator[tuple[Hub, str]]:
    """A hub over HTTP that knows two people and a robot."""
    keys = [Key(name, digest(key), roles=() if name == "robot" else ("human",)) for name, key in KEYS.items()]
    hub = Hub("office", version="1", auth=Authentication(keys), audit="store")
    for name, given in definitions.items():
        hub.workflow(name, model(given))
    async with served(hub) as url:
        yield hub, url


@asynccontextmanager
async def as_somebody(url: str, name: str, version: str, person: Person | None = None) -> AsyncIterator[TestClient]:
    """A client with a key."""
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
    """Start the workflow and submit the transition that waits for people."""
    told = (await client.call_tool("workflow.start", {"definitionId": "flow"}))["structuredContent"]
    answer = await client.call_tool("workflow.submit", {**told["links"][0]["args"], **more})
    found: Json = answer["structuredContent"]
    return found


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_who_may_approve_is_asked_and_a_yes_moves_it_on(version: str) -> None:
    person = Person(says("approve", "fine"))
    async with office(flow=definition()) as (hub, url), as_somebody(url, "ann", version, person) as client:
        told = await asks(client)
        assert (told["state"], told["version"], told["context"]) == ("done", 2, {"n": 1})
        (asked,) = person.asked
        assert asked["message"].startswith("Deploy?")
        row = (await hub.store.instances.history(told["workflowId"]))[-1].value
        assert [(one["by"], one["via"], one["reason"]) for one in row["approvals"]] == [("ann", "elicitation", "fine")]


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_no_leaves_the_instance(version: str) -> None:
    person = Person(says("reject", "too early"))
    async with office(flow=definition()) as (hub, url), as_somebody(url, "ann", version, person) as client:
        told = await asks(client)
        assert (told["state"], told["version"], told["status"]) == ("a", 1, "waiting_for_action")
        assert (told["error"]["code"], told["error"]["reason"]) == ("APPROVAL_REJECTED", "too early")
        notes = await hub.store.instances.notes(told["workflowId"])
        assert [note.value["outcome"] for note in notes] == ["rejected"]


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}])
@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_who_does_not_decide_leaves_it_to_others(version: str, answer: Json) -> None:
    async with office(flow=definition()) as (_, url), as_somebody(url, "ann", version, Person(answer)) as client:
        told = await asks(client)
        assert (told["status"], told["version"]) == ("waiting_for_approval", 1)


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_nobody_is_asked_who_may_not_approve(version: str) -> None:
    person = Person(says("approve"))
    async with office(flow=definition()) as (_, url):
        async with as_somebody(url, "robot", version, person) as client:
            assert (await asks(client))["status"] == "waiting_for_approval"
        async with as_somebody(url, "ann", version) as client:
            assert (await asks(client))["status"] == "waiting_for_approval"
    async with office(flow=definition(role="lead")) as (_, url), as_somebody(url, "ann", version, person) as client:
        assert (await asks(client))["status"] == "waiting_for_approval"
    assert person.asked == []


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_one_person_is_not_a_quorum(version: str) -> None:
    async with office(flow=definition(approvals=2)) as (hub, url):
        async with as_somebody(url, "ann", version, Person(says("approve"))) as client:
            told = await asks(client)
            assert (told["status"], told["approval"]["given"]) == ("waiting_for_approval", 1)
        await hub.workflows.engine.approvals.approve(told["approval"]["id"], BOB, "cli")
        kept = await hub.store.instances.get(told["workflowId"])
        assert kept is not None
        assert kept.state == "done"


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_start_that_comes_to_people_asks_them_too(version: str) -> None:
    states = {
        "a": {"transitions": {"ask": {"target": "done", "actor": "deterministic", "executor": {"kind": "human"}}}},
        "done": DONE,
    }
    person = Person(says("approve"))
    async with office(flow=flow(states)) as (hub, url), as_somebody(url, "ann", version, person) as client:
        told = (await client.call_tool("workflow.start", {"definitionId": "flow"}))["structuredContent"]
        assert told["state"] == "done"
        assert len(await hub.store.instances.page()) == 1


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_submit_that_asked_is_done_once_and_answered_again(version: str) -> None:
    person = Person(says("approve"), says("approve"))
    async with office(flow=definition()) as (hub, url), as_somebody(url, "ann", version, person) as client:
        told = (await client.call_tool("workflow.start", {"definitionId": "flow"}))["structuredContent"]
        arguments = {**told["links"][0]["args"], "requestId": "once"}
        first, second = [await client.call_tool("workflow.submit", arguments) for _ in range(2)]
        assert first["structuredContent"] == second["structuredContent"]
        assert first["structuredContent"]["state"] == "done"
        assert len(person.asked) == 1
        assert len(await hub.store.instances.history(told["workflowId"])) == 2


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_what_a_form_cannot_show_whole_is_decided_elsewhere(version: str) -> None:
    """A person who sees the beginning must not approve the rest: nothing is asked, and the answer says what to do."""
    person = Person(says("approve"))
    given = definition(presents={"first": "harmless", "last": "x" * 4000})
    async with office(flow=given) as (hub, url), as_somebody(url, "ann", version, person) as client:
        told = await asks(client)
        assert (told["status"], told["version"], person.asked) == ("waiting_for_approval", 1, [])
        approval = told["approval"]
        for part in ("more than the 4,000 of a form", f"approvals approve {approval['id']}", approval["digest"]):
            assert part in approval["note"]

        await hub.workflows.engine.approvals.approve(approval["id"], BOB, "cli", digest=approval["digest"])
        found = await client.call_tool("workflow.get", {"workflowId": told["workflowId"]})
        assert found["structuredContent"]["state"] == "done"
