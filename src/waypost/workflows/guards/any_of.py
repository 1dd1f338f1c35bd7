"""The kind `any_of`: one of the guards in it has to hold."""

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
    expressions_of,
    kind_of,
    ways_of,
    ways_of_any,
    ways_together,
)
from waypost.workflows.scope import Scope


class AnyOf(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="any_of", tag_field="kind"):
    """Holds when one of the guards does."""

    guards: Annotated[list[GuardModel], Meta(description="The guards.")]


def _compile(guard: AnyOf, compiler: Compiler) -> CompiledGuard:
    guards = [compiler.compile(inner) for inner in guard.guards]
    data = {"kind": "any_of", "guards": [inner.data for inner in guards]}

    def holds(scope: Scope) -> bool:
        return any(inner.holds(scope) for inner in guards)

    def lacks(scope: Scope) -> list[Lack]:
        if not guards:
            return [Lack(data, "there is no guard of which one could hold")]
        inner = [lack for one in guards for lack in one.lacks(scope)]
        operands = {text: value for lack in inner for text, value in lack.operands.items()}
        return [Lack(data, f"no guard of several holds: {'; '.join(lack.clause for lack in inner)}", operands)]

    return CompiledGuard(data, holds, lacks, expressions_of(guards))


def _ways(guard: AnyOf, holds: bool) -> Ways:
    parts = [ways_of(inner, holds) for inner in guard.guards]
    return ways_of_any(parts) if holds else ways_together(parts)


def _needs_instance(guard: AnyOf) -> bool:
    return bool(guard.guards) and all(kind_of(inner).needs_instance(inner) for inner in guard.guards)


ANY_OF: Final = GuardKind(
    model=AnyOf,
    compile=_compile,
    expressions=(),
    ways=_ways,
    needs_instance=_needs_instance,
    text=None,
)
