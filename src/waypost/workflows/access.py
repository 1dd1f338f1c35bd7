"""Access: which tools exist, what a caller may do with them, and which tools a workflow depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry
from waypost.errors import PolicyDenied
from waypost.kinds import ExecutorModel
from waypost.policy.guard import PolicyGuard
from waypost.skills.tools import tool_name as skill_name
from waypost.wire.definitions import ToolDefinition
from waypost.workflows.definitions import Definition, tool_name
from waypost.workflows.executors.kind import Reference, names_in, names_in_data, walk
from waypost.workflows.instance import Instance
from waypost.workflows.records import ENTER, PROXY

_GONE: Final = Capability(
    kind=Kind.TOOL, id="", definition=ToolDefinition(""), handler=lambda _, __: None, is_async=False
)
"""Stands in for what is not there: an instance may outlive its workflow, and the rules about it still hold."""
_SINGLE: Final = tool_name(PROXY)
"""What a single capability is used through, which is what rules are asked about."""


class Rights:
    """What callers may do and see, by the name of a tool, whether it is there or not."""

    def __init__(self, registry: Registry, guard: PolicyGuard) -> None:
        self._registry = registry
        self._guard = guard

    def canonical(self, name: str) -> str:
        """The name of a tool that is called by another of its names."""
        tool = self._registry.find_tool(name)
        return name if tool is None else tool.id

    def is_there(self, name: str) -> bool:
        """Whether there is a tool of that name."""
        return self._registry.find_tool(name) is not None

    def _row(self, name: str) -> tuple[Capability, str]:
        """A tool, and the name that rules know it by."""
        tool = self._registry.find_tool(name)
        return (_GONE, name) if tool is None else (tool, tool.id)

    def check(self, name: str, caller: Caller) -> None:
        """Refuse what a rule is against; it counts."""
        if not self._guard.is_on or name == _SINGLE:
            return
        decision = self._guard.decide(*self._row(name), caller)
        if not decision.allowed:
            raise PolicyDenied(decision.reason, decision.rule_type, decision.rule)

    def against(self, name: str, caller: Caller, *, steady: bool = False) -> str:
        """Why a caller would be refused a tool now, or at any time (`steady`); empty if nothing is against it."""
        if name == _SINGLE:
            return ""
        tool, known = self._row(name)
        if not tool.is_open_to(caller.principal.scopes):
            return f"{known} takes the scopes {', '.join(tool.scopes)}"
        decision = self._guard.decide(tool, known, caller, counts=False, steady=steady)
        return "" if decision.allowed else decision.reason

    def is_hidden(self, name: str, caller: Caller) -> bool:
        """Whether a tool is left out of a caller's lists."""
        tool, known = self._row(name)
        principal, policy = caller.principal, self._guard.policy
        return not tool.is_open_to(principal.scopes) or (policy.hides and policy.is_hidden(principal, known))

    def finds(self, name: str, caller: Caller) -> bool:
        """Whether a caller finds a tool: it is in their lists, and no rule is always against its use."""
        return not self.is_hidden(name, caller) and not self.against(name, caller, steady=True)


Data = dict[str, Any]


class Dependencies:
    """The tools that executors call."""

    def __init__(self, rights: Rights, function: Callable[[str], str | None]) -> None:
        self._rights = rights
        self._function = function

    def are_met(self, instance: Instance, move: str) -> bool:
        """Whether everything is there that a move calls."""
        model = instance.state.model.on_enter if move == ENTER else instance.state.transitions[move].model
        called = (
            *self.of(None if model is None else model.executor),
            *step_tools(instance.definition, instance.state.name),
        )
        return all(map(self._rights.is_there, called))

    def of(self, executor: ExecutorModel | None) -> Iterator[str]:
        """The tools that an executor calls, and those nested in it."""
        for one in () if executor is None else walk(executor):
            yield from self._tools(names_in(one))

    def own(self, written: Data) -> Iterator[str]:
        """The tools that an executor or a step, given as plain data, calls itself."""
        if "kind" in written:
            yield from self._tools(names_in_data(written))
        elif "on_missing_skill" in written:
            yield from (skill_name(one) for key in ("skill", "fallback_skill") if (one := written.get(key)))
            yield from (one for one in (written.get("capability"),) if one)

    def _tools(self, references: Iterable[Reference]) -> Iterator[str]:
        for _, target, name in references:
            match target:
                case "capability":
                    yield name
                case "function":
                    yield self._function(name) or name
                case "workflow":
                    yield tool_name(name)


def step_tools(definition: Definition, state: str) -> Iterator[str]:
    """The tool that the step of a state runs."""
    steps = dict(zip(definition.names, definition.model.steps, strict=False))
    if (found := steps.get(state)) is not None:
        yield skill_name(found.skill) if found.skill else found.capability or ""
