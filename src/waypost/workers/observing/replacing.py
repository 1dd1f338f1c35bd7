"""Which functions take the place of which kinds of triggers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from waypost.workers.functions import Function
from waypost.workers.observing.legacy import Source
from waypost.workers.observing.observing import Observing
from waypost.workers.triggers import Kind, Triggers

Key: TypeAlias = tuple[str, str]
"""A namespace, and the id of a kind of trigger."""


class Replacing:
    """All functions that would stand in for providers; of several for one kind the first does."""

    def __init__(self, triggers: Triggers, observing: Observing) -> None:
        self._triggers = triggers
        self._observing = observing
        self._rows: dict[Key, dict[str, Kind]] = {}

    def exchange(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        """Functions are offered no longer, or others are offered."""
        leaving = {(key, one.id): one for one in old if (key := _key(one)) is not None}
        arriving = {(key, one.id): one for one in new if (key := _key(one)) is not None}
        for place, function in leaving.items():
            other = arriving.get(place)
            if other is not None and other.owner is function.owner:
                del arriving[place]  # it is the same to whoever is bound to it
            else:
                self._rows[place[0]].pop(place[1], None)
        for (key, function_id), function in arriving.items():
            self._rows.setdefault(key, {})[function_id] = self._kind(key, function)
        for key in {key for key, _ in (*leaving, *arriving)}:
            self._triggers.lend(key, next(iter(self._rows[key].values()), None))
            if not self._rows[key]:
                del self._rows[key]

    def _kind(self, key: Key, function: Function) -> Kind:
        terms = function.observable
        return Kind(
            key[1],
            function.description or "",
            None if terms is None else terms.args_format,
            namespace=key[0],
            worker=function.owner,
            stand_in=Source(self._observing, function),
        )


def _key(function: Function) -> Key | None:
    """The kind that a function takes the place of, if any."""
    terms = function.observable
    return None if terms is None or not terms.legacy_trigger_type else (function.namespace, terms.legacy_trigger_type)
