"""Guards: conditions of transitions; one module for each kind, and the table of all kinds.

A kind that is not in the table is added with `register_guard`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.kinds import GuardModel
from waypost.workflows.guards.all_of import ALL_OF, AllOf
from waypost.workflows.guards.any_of import ANY_OF
from waypost.workflows.guards.evidence import EVIDENCE
from waypost.workflows.guards.expr import EXPR, JSONPATH
from waypost.workflows.guards.kind import (
    CompiledGuard,
    Compiler,
    GuardKind,
    Reason,
    kind_of,
    redact,
    register_guard,
    unregister_guard,
)
from waypost.workflows.guards.not_ import NOT
from waypost.workflows.guards.permission import PERMISSION
from waypost.workflows.guards.role import ROLE

__all__ = [
    "GUARDS",
    "CompiledGuard",
    "GuardKind",
    "Reason",
    "compile_guard",
    "compile_guards",
    "label_of",
    "record_of",
    "redact",
    "register_guard",
    "unregister_guard",
]

GUARDS: Final[tuple[GuardKind[Any], ...]] = (EXPR, JSONPATH, PERMISSION, ROLE, EVIDENCE, ALL_OF, ANY_OF, NOT)
"""The kinds that ship with Waypost."""

for _kind in GUARDS:
    register_guard(_kind)


def compile_guards(guards: list[GuardModel]) -> CompiledGuard:
    """Compile guards that all have to hold, evaluated in order."""
    return compile_guard(AllOf(guards=guards))


def compile_guard(guard: GuardModel) -> CompiledGuard:
    """Compile a guard."""
    return Compiler().compile(guard)


def label_of(guard: GuardModel) -> str:
    """A guard as graphs show it: its text, or its kind."""
    kind = kind_of(guard)
    return kind.name if kind.text is None else kind.text(guard)


def record_of(guard: GuardModel) -> str:
    """A guard as histories show it: its text, or its JSON."""
    kind = kind_of(guard)
    return msgspec.json.encode(guard).decode() if kind.text is None else kind.text(guard)
