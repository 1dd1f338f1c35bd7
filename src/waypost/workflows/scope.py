"""What expressions, mappings and templates can look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal

GUARD_ROOTS: Final = frozenset({"context", "arguments", "input", "workflow"})
"""What a path may begin with, behind `$.`, wherever there is nothing else to look at."""
OUTPUT_ROOTS: Final = GUARD_ROOTS | {"output"}
NESTED_ROOTS: Final = GUARD_ROOTS | {"branch", "steps", "previous"}
WORKFLOW_FIELDS: Final = ("id", "state", "version", "input")


class Proof(msgspec.Struct, frozen=True):
    """Evidence that something was done: of which kind, by whom, and with which version of the instance."""

    kind: str
    by: str
    version: int


class Scope:
    """One moment of one instance, and who is acting in it."""

    __slots__ = (
        *("arguments", "branch", "context", "evidence", "id", "input", "output", "previous", "principal", "state"),
        *("steps", "version"),
    )

    def __init__(
        self,
        context: dict[str, Any],
        arguments: dict[str, Any],
        input: dict[str, Any],
        *,
        id: str = "",
        state: str = "",
        version: int = 0,
        principal: Principal = ANONYMOUS,
        evidence: Sequence[Proof] = (),
        output: Any = None,
        branch: dict[str, Any] | None = None,
        steps: Sequence[Any] = (),
        previous: Any = None,
    ) -> None:
        self.context = context
        self.arguments = arguments
        self.input = input
        self.id = id
        self.state = state
        self.version = version
        self.principal = principal
        self.evidence = evidence
        self.output = output
        self.branch = branch
        """`{"value": ..., "index": ...}` of the branch of a parallel executor that is looking."""
        self.steps = steps
        """What the steps of a pipeline before this one left: `{"status": ..., "output": ...}` each."""
        self.previous = previous
        """The output of the step before."""

    def within(self, **changes: Any) -> Scope:
        """The same moment, with some of it seen differently."""
        other = Scope.__new__(Scope)
        for name in Scope.__slots__:
            setattr(other, name, changes.get(name, getattr(self, name)))
        return other
