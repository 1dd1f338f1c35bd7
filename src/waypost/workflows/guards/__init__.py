"""Guards: conditions of transitions; one module for each kind, and the table of all kinds.

A kind that is not in the table is added with `register_guard`.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any, Final

import msgspec

from waypost.kinds import GuardModel
from waypost.workflows.guards.all_of import ALL_OF
from waypost.workflows.guards.any_of import ANY_OF
from waypost.workflows.guards.evidence import EVIDENCE
from waypost.workflows.guards.expr import EXPR, JSONPATH
from waypost.workflows.guards.kind import (
    CompiledGuard,
    Compiler,
    GuardKind,
    Guards,
    Reason,
    all_hold,
    expressions_of,
    kind_of,
    redact,
    register_guard,
    unregister_guard,
)
from waypost.workflows.guards.not_ import NOT
from waypost.workflows.guards.permission import PERMISSION
from waypost.workflows.guards.role import ROLE
from waypost.workflows.scope import GUARD_ROOTS

__all__ = [
    "GUARDS",
    "CompiledGuard",
    "GuardKind",
    "Guards",
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


def compile_guards(guards: Iterable[GuardModel], roots: Set[str] = GUARD_ROOTS) -> Guards:
    """Compile guards; `roots` are the allowed roots of the paths in their expressions."""
    compiled = tuple(compile_guard(guard, roots) for guard in guards)
    return Guards(compiled, all_hold(compiled), expressions_of(compiled))


def compile_guard(guard: GuardModel, roots: Set[str] = GUARD_ROOTS) -> CompiledGuard:
    """Compile a guard; `roots` are the allowed roots of the paths in its expressions."""
    return Compiler(roots).compile(guard)


def label_of(guard: GuardModel) -> str:
    """A guard as graphs show it: its text, or its kind."""
    kind = kind_of(guard)
    return kind.name if kind.text is None else kind.text(guard)


def record_of(guard: GuardModel) -> str:
    """A guard as histories show it: its text, or its JSON."""
    kind = kind_of(guard)
    return msgspec.json.encode(guard).decode() if kind.text is None else kind.text(guard)
