"""Assigning server requests to calls: by their stream, or if only one call is possible."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from waypost import RemoteError
from waypost.upstreams.jsonrpc import CURRENT_CALL, ServerRequests, run_as_call
from waypost.wire.messages import parse

FORM = "elicitation/create"


class Person:
    """A caller."""

    def __init__(self, owner: str, *can: str) -> None:
        self.owner = owner
        self._can = can

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        return method in self._can

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        return self.owner

    def log(self, params: Mapping[str, Any]) -> None:
        """Accept a log message."""


def test_a_request_is_for_the_only_call() -> None:
    calls, ada = ServerRequests(None), Person("ada")
    call = calls.start_call(ada)
    CURRENT_CALL.set(None)
    assert calls.find_recipient(FORM, {}) is ada
    assert calls.find_log_recipient({}) is ada
    calls.end_call(call)
    with pytest.raises(RemoteError, match="Method not found"):
        calls.find_recipient(FORM, {})
    assert calls.find_log_recipient({}) is None


def test_a_request_is_for_the_newest_call_of_a_caller_that_can_answer() -> None:
    calls = ServerRequests(None)
    able, newest = Person("ada", FORM), Person("ada")
    calls.start_call(Person("ada", FORM))
    calls.start_call(able)
    calls.start_call(newest)
    CURRENT_CALL.set(None)
    assert calls.find_recipient(FORM, {}) is able
    assert calls.find_recipient("roots/list", {}) is newest
    assert calls.find_log_recipient({}) is newest


@pytest.mark.parametrize("other", [Person("bob"), None])
def test_a_request_that_could_be_for_several_callers_is_refused(other: Person | None) -> None:
    calls = ServerRequests(None)
    calls.start_call(Person("ada", FORM))
    calls.start_call(other)
    CURRENT_CALL.set(None)
    with pytest.raises(RemoteError, match="could be for any of them"):
        calls.find_recipient(FORM, {})
    assert calls.find_log_recipient({}) is None


def test_a_request_on_the_stream_of_a_call_is_for_that_call() -> None:
    calls, ada, bob = ServerRequests(None), Person("ada"), Person("bob")
    first = calls.start_call(ada)
    calls.start_call(bob)
    CURRENT_CALL.set(None)
    seen: list[object] = []
    run_as_call(first, lambda _: seen.append(calls.find_recipient(FORM, {})))(b"")
    assert seen == [ada]
    assert CURRENT_CALL.get() is None


def test_the_stream_of_an_ended_call_is_ignored() -> None:
    calls, bob = ServerRequests(None), Person("bob")
    over = calls.start_call(Person("ada"))
    calls.end_call(over)
    calls.start_call(bob)
    seen: list[object] = []
    run_as_call(over, lambda _: seen.append(calls.find_log_recipient({})))(b"")
    assert seen == [bob]


def of_task(name: str) -> dict[str, Any]:
    return {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": name}}}


def test_a_request_that_names_a_task_is_for_the_call_of_that_task() -> None:
    calls, ada, bob = ServerRequests(None), Person("ada"), Person("bob")
    calls.start_call(ada, "t1")
    calls.start_call(bob, "t2")
    assert calls.find_recipient(FORM, of_task("t1")) is ada
    assert calls.find_log_recipient(of_task("t2")) is bob


def test_a_request_for_an_unknown_task_is_refused() -> None:
    calls = ServerRequests(None)
    calls.start_call(Person("ada"), "t1")
    CURRENT_CALL.set(None)
    with pytest.raises(RemoteError, match="Method not found"):
        calls.find_recipient(FORM, of_task("gone"))
    assert calls.find_log_recipient(of_task("gone")) is None


@asynchronous
async def test_a_request_may_arrive_before_its_task_is_registered() -> None:
    calls, ada = ServerRequests(None), Person("ada")
    calls.start_call(Person("bob"))
    waiting = asyncio.get_running_loop().create_task(calls.wait_for_task_owner(of_task("t1")))
    await asyncio.sleep(0)
    assert not waiting.done()
    calls.start_call(ada, "t1")
    await waiting
    assert calls.find_recipient(FORM, of_task("t1")) is ada


@pytest.mark.parametrize("params", [b'["a", "list"]', b'"text"', b'{"message": 1e999}'])
@asynchronous
async def test_a_request_whose_parameters_are_not_an_object_is_refused(params: bytes) -> None:
    calls = ServerRequests(None)
    calls.start_call(Person("ada", FORM))
    message = parse(b'{"jsonrpc": "2.0", "id": 7, "method": "%b", "params": %b}' % (FORM.encode(), params))
    response = json.loads(await calls.respond(message))
    assert (response["id"], response["error"]["code"]) == (7, -32602)


@asynchronous
async def test_two_requests_of_a_server_with_one_id_are_both_answered() -> None:
    calls = ServerRequests({FORM: lambda _: asyncio.sleep(0, {"action": "decline"})})
    message = parse(b'{"jsonrpc": "2.0", "id": 7, "method": "%b", "params": {}}' % FORM.encode())
    responses = await asyncio.gather(calls.respond(message), calls.respond(message))
    assert [json.loads(response)["result"] for response in responses] == [{"action": "decline"}] * 2
