"""Whose call it is: by the stream something came on, else by there being no doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from waypost import RemoteError
from waypost.upstreams.server_requests import HERE, Calls, on_stream_of

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

    def tell(self, note: Mapping[str, Any]) -> None:
        """Hear it."""


def test_the_only_call_is_meant() -> None:
    calls, ada = Calls(), Person("ada")
    call = calls.begin(ada)
    HERE.set(None)
    assert calls.asked(FORM, {}) is ada
    assert calls.told() is ada
    calls.end(call)
    with pytest.raises(RemoteError, match="Method not found"):
        calls.asked(FORM, {})
    assert calls.told() is None


def test_of_several_calls_of_one_caller_the_newest_that_can_answer_is_meant() -> None:
    calls = Calls()
    able, newest = Person("ada", FORM), Person("ada")
    calls.begin(Person("ada", FORM))
    calls.begin(able)
    calls.begin(newest)
    HERE.set(None)
    assert calls.asked(FORM, {}) is able
    assert calls.asked("roots/list", {}) is newest
    assert calls.told() is newest


@pytest.mark.parametrize("other", [Person("bob"), None])
def test_nobody_is_meant_where_it_could_be_somebody_else(other: Person | None) -> None:
    calls = Calls()
    calls.begin(Person("ada", FORM))
    calls.begin(other)
    HERE.set(None)
    with pytest.raises(RemoteError, match="nobody can tell who is asked"):
        calls.asked(FORM, {})
    assert calls.told() is None


def test_the_stream_of_a_call_leaves_no_doubt() -> None:
    calls, ada, bob = Calls(), Person("ada"), Person("bob")
    first = calls.begin(ada)
    calls.begin(bob)
    HERE.set(None)
    seen: list[object] = []
    on_stream_of(first, lambda _: seen.append(calls.asked(FORM, {})))(b"")
    assert seen == [ada]
    assert HERE.get() is None


def test_the_stream_of_a_call_that_is_over_tells_nothing() -> None:
    calls, bob = Calls(), Person("bob")
    over = calls.begin(Person("ada"))
    calls.end(over)
    calls.begin(bob)
    seen: list[object] = []
    on_stream_of(over, lambda _: seen.append(calls.told()))(b"")
    assert seen == [bob]


def of_task(name: str) -> dict[str, Any]:
    return {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": name}}}


def test_a_task_that_is_named_leaves_no_doubt() -> None:
    calls, ada, bob = Calls(), Person("ada"), Person("bob")
    calls.begin(ada, "t1")
    calls.begin(bob, "t2")
    assert calls.asked(FORM, of_task("t1")) is ada
    assert calls.told(of_task("t2")) is bob


def test_nobody_is_asked_about_a_task_that_nobody_waits_for() -> None:
    calls = Calls()
    calls.begin(Person("ada"), "t1")
    HERE.set(None)
    with pytest.raises(RemoteError, match="Method not found"):
        calls.asked(FORM, of_task("gone"))
    assert calls.told(of_task("gone")) is None


@asynchronous
async def test_a_question_may_come_before_it_is_known_whose_task_it_is_about() -> None:
    calls, ada = Calls(), Person("ada")
    calls.begin(Person("bob"))
    waiting = asyncio.get_running_loop().create_task(calls.told_apart(of_task("t1")))
    await asyncio.sleep(0)
    assert not waiting.done()
    calls.begin(ada, "t1")
    await waiting
    assert calls.asked(FORM, of_task("t1")) is ada
