"""Whose call it is: by the stream something came on, else by there being no doubt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from waypost import RemoteError
from waypost.upstreams.calls import HERE, Calls, on_stream_of

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
