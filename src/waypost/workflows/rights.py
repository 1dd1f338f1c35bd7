"""What rules say about workflows and about what they run, asked without doing anything."""

from __future__ import annotations

from typing import Final

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry
from waypost.errors import PolicyDenied
from waypost.policy.guard import PolicyGuard
from waypost.wire.definitions import ToolDefinition
from waypost.workflows.library import tool_name
from waypost.workflows.records import PROXY

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
        """Why somebody would be refused something now, or at any time; empty where nothing is against it."""
        if name == _SINGLE:
            return ""
        tool, known = self._row(name)
        if not tool.open_to(caller.principal.scopes):
            return f"{known} takes the scopes {', '.join(tool.scopes)}"
        decision = self._guard.decide(tool, known, caller, counts=False, steady=steady)
        return "" if decision.allowed else decision.reason

    def is_hidden(self, name: str, caller: Caller) -> bool:
        """Whether something is kept out of somebody's lists."""
        tool, known = self._row(name)
        principal, policy = caller.principal, self._guard.policy
        return not tool.open_to(principal.scopes) or (policy.hides and policy.is_hidden(principal, known))

    def finds(self, name: str, caller: Caller) -> bool:
        """Whether somebody finds something: it is in their lists, and nothing is always against its use."""
        return not self.is_hidden(name, caller) and not self.against(name, caller, steady=True)
