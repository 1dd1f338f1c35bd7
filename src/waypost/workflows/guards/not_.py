"""The kind `not`: the guard in it must not hold."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import CompiledGuard, Compiler, GuardKind, Lack, negate, read_operands, ways_of
from waypost.workflows.scope import Scope


class Not(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="not", tag_field="kind"):
    """Holds when a guard does not."""

    guard: Annotated[GuardModel, Meta(description="The guard.")]


def _compile(guard: Not, compiler: Compiler) -> CompiledGuard:
    inner = compiler.compile(guard.guard)
    data = {"kind": "not", "guard": inner.data}

    def lacks(scope: Scope) -> list[Lack]:
        paths = (path for expression in inner.expressions for path in expression.paths)
        clause = f"a guard of the kind {inner.data['kind']} holds that must not"
        return [Lack(data, clause, read_operands(paths, scope))]

    return CompiledGuard(data, lambda scope: not inner.holds(scope), lacks, inner.expressions)


NOT: Final = GuardKind(
    model=Not,
    compile=_compile,
    expressions=(),
    ways=lambda guard, holds: ways_of(guard.guard, not holds),
    needs_instance=lambda guard: False,
    text=None,
    truth=lambda guard, known: negate(known.truth(guard.guard)),
)
