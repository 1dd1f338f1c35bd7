"""Whose call it is: by the stream something came on, else by there being no doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from waypost import RemoteError
from waypost.upstreams.jsonrpc import CURRENT_CALL, ServerRequests, run_as_call

FORM = "elicitation/create"


class Person:
    """Somebody who calls."""

    def __init__(self, owner: str, *can: str) -> None:
        self.owner = owner
        self._can = can

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        return method in self._can

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        return self.owner

    def log(self, params: Mapping[str, Any]) -> None:
        """Hear it."""


def test_the_only_call_is_meant() -> None:
    calls, ada = ServerRequests(None), Person("ada")
    call = calls.start_call(ada)
    CURRENT_CALL.set(None)
    assert calls.find_recipient(FORM, {}) is ada
    assert calls.find_log_recipient({}) is ada
    calls.end_call(call)
    with pytest.raises(RemoteError, match="Method not found"):
        calls.find_recipient(FORM, {})
    assert calls.find_log_recipient({}) is None


def test_of_several_calls_of_one_caller_the_newest_that_can_answer_is_meant() -> None:
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
def test_nobody_is_meant_where_it_could_be_somebody_else(other: Person | None) -> None:
    calls = ServerRequests(None)
    calls.start_call(Person("ada", FORM))
    calls.start_call(other)
    CURRENT_CALL.set(None)
    with pytest.raises(RemoteError, match="could be for any of them"):
        calls.find_recipient(FORM, {})
    assert calls.find_log_recipient({}) is None


def test_the_stream_of_a_call_leaves_no_doubt() -> None:
    calls, ada, bob = ServerRequests(None), Person("ada"), Person("bob")
    first = calls.start_call(ada)
    calls.start_call(bob)
    CURRENT_CALL.set(None)
    seen: list[object] = []
    run_as_call(first, lambda _: seen.append(calls.find_recipient(FORM, {})))(b"")
    assert seen == [ada]
    assert CURRENT_CALL.get() is None


def test_the_stream_of_a_call_that_is_over_tells_nothing() -> None:
    calls, bob = ServerRequests(None), Person("bob")
    over = calls.start_call(Person("ada"))
    calls.end_call(over)
    calls.start_call(bob)
    seen: list[object] = []
    run_as_call(over, lambda _: seen.append(calls.find_log_recipient({})))(b"")
    assert seen == [bob]


def of_task(name: str) -> dict[str, Any]:
    return {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": name}}}


def test_a_task_that_is_named_leaves_no_doubt() -> None:
    calls, ada, bob = ServerRequests(None), Person("ada"), Person("bob")
    calls.start_call(ada, "t1")
    calls.start_call(bob, "t2")
    assert calls.find_recipient(FORM, of_task("t1")) is ada
    assert calls.find_log_recipient(of_task("t2")) is bob


def test_nobody_is_asked_about_a_task_that_nobody_waits_for() -> None:
    calls = ServerRequests(None)
    calls.start_call(Person("ada"), "t1")
    CURRENT_CALL.set(None)
    with pytest.raises(RemoteError, match="Method not found"):
        calls.find_recipient(FORM, of_task("gone"))
    assert calls.find_log_recipient(of_task("gone")) is None


@asynchronous
async def test_a_question_may_come_before_it_is_known_whose_task_it_is_about() -> None:
    calls, ada = ServerRequests(None), Person("ada")
    calls.start_call(Person("bob"))
    waiting = asyncio.get_running_loop().create_task(calls.wait_for_task_owner(of_task("t1")))
    await asyncio.sleep(0)
    assert not waiting.done()
    calls.start_call(ada, "t1")
    await waiting
    assert calls.find_recipient(FORM, of_task("t1")) is ada
