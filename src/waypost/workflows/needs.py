"""What moves call by name, and whether that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from waypost.skills.tools import tool_name as skill_name
from waypost.workflows import explaining
from waypost.workflows.definition import Definition
from waypost.workflows.library import tool_name
from waypost.workflows.live import Live
from waypost.workflows.records import ENTER
from waypost.workflows.rights import Rights

_NAMED_BY: Final = {"capability": "capability", "worker": "function", "workflow": "definitionId"}
"""The field of an executor, by its kind, that names what it calls."""

Data = dict[str, Any]


class Needs:
    """The tools that executors call."""

    def __init__(self, rights: Rights, function: Callable[[str], str | None]) -> None:
        self._rights = rights
        self._function = function

    def are_met(self, live: Live, move: str) -> bool:
        """Whether everything is there that a move calls."""
        model = live.state.model.on_enter if move == ENTER else live.state.transitions[move].model
        called = (*self.of(None if model is None else model.executor), *step(live.definition, live.state.name))
        return all(map(self._rights.is_there, called))

    def of(self, executor: Any) -> Iterator[str]:
        """The tools that an executor calls, and those inside of it."""
        return self._used(explaining.plain(executor))

    def _used(self, told: Any) -> Iterator[str]:
        inner = told if isinstance(told, list) else []
        if isinstance(told, dict):
            yield from self.own(told)
            inner = list(told.values())
        for one in inner:
            yield from self._used(one)

    def own(self, told: Data) -> Iterator[str]:
        """The tool that an executor or a step calls itself."""
        name = told.get(_NAMED_BY.get(str(told.get("kind")), ""))
        if isinstance(name, str):
            match told["kind"]:
                case "worker":
                    yield self._function(name) or name
                case "workflow":
                    yield tool_name(name)
                case _:
                    yield name
        elif "kind" not in told and "on_missing_skill" in told:
            yield from (skill_name(one) for key in ("skill", "fallback_skill") if (one := told.get(key)))
            yield from (one for one in (told.get("capability"),) if one)


def step(definition: Definition, state: str) -> Iterator[str]:
    """The tool that the step of a state runs."""
    steps = dict(zip(definition.names, definition.model.steps, strict=False))
    if (found := steps.get(state)) is not None:
        yield skill_name(found.skill) if found.skill else found.capability or ""
