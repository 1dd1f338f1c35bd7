"""The kind `all_of`: all guards in it have to hold."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import (
    CompiledGuard,
    Compiler,
    GuardKind,
    Lack,
    Ways,
    all_hold,
    expressions_of,
    kind_of,
    ways_of,
    ways_of_any,
    ways_together,
)
from waypost.workflows.scope import Scope


class AllOf(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="all_of", tag_field="kind"):
    """Holds when all guards do."""

    guards: Annotated[list[GuardModel], Meta(description="The guards.")]


def _compile(guard: AllOf, compiler: Compiler) -> CompiledGuard:
    guards = [compiler.compile(inner) for inner in guard.guards]
    data = {"kind": "all_of", "guards": [inner.data for inner in guards]}

    def lacks(scope: Scope) -> list[Lack]:
        return [lack for inner in guards if not inner.holds(scope) for lack in inner.lacks(scope)]

    return CompiledGuard(data, all_hold(guards), lacks, expressions_of(guards))


def _ways(guard: AllOf, holds: bool) -> Ways:
    parts = [ways_of(inner, holds) for inner in guard.guards]
    return ways_together(parts) if holds else ways_of_any(parts)


ALL_OF: Final = GuardKind(
    model=AllOf,
    compile=_compile,
    expressions=(),
    ways=_ways,
    needs_instance=lambda guard: any(kind_of(inner).needs_instance(inner) for inner in guard.guards),
    text=None,
)
