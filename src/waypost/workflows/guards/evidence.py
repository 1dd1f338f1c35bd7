"""The kind `evidence`: earlier transitions have to have left evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from waypost.config.models import EvidenceNeed, Name
from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import CompiledGuard, Compiler, Fact, GuardKind, Has, Lack, Ways, join_ways
from waypost.workflows.scope import Proof, Scope, quote

_ALIASES: Final = {"human_request": "human_approval"}
"""Kinds of evidence that mcp-flowgate calls otherwise."""


class EvidenceGuard(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="evidence", tag_field="kind"):
    """Holds when earlier transitions left evidence."""

    requires: Annotated[list[Name | EvidenceNeed], Meta(min_length=1, description="Which evidence.")]


def _compile(guard: EvidenceGuard, compiler: Compiler) -> CompiledGuard:
    data = msgspec.to_builtins(guard)
    needs = _needs(guard)

    def holds(scope: Scope) -> bool:
        return all(_count_givers(scope.evidence, kind) >= count for kind, count in needs)

    def lacks(scope: Scope) -> list[Lack]:
        given = {kind: _count_givers(scope.evidence, kind) for kind, _ in needs}
        clauses = [_describe(kind, count, given[kind]) for kind, count in needs if given[kind] < count]
        return [Lack(data, "; ".join(clauses), given)]

    return CompiledGuard(data, holds, lacks)


def _needs(guard: EvidenceGuard) -> list[tuple[str, int]]:
    return [(need, 1) if isinstance(need, str) else (need.kind, need.count) for need in guard.requires]


def _count_givers(evidence: Sequence[Proof], kind: str) -> int:
    meant = _ALIASES.get(kind, kind)
    # By giver: evidence that one principal gave twice counts once.
    return len({proof.by for proof in evidence if proof.kind == kind or proof.kind == meant})


def _describe(kind: str, count: int, given: int) -> str:
    if count == 1:
        return f"there is no evidence of the kind {quote(kind)}"
    return f"evidence of the kind {quote(kind)} is needed from {count} different people or agents, and is from {given}"


def _ways(guard: EvidenceGuard, holds: bool) -> Ways:
    return join_ways([[(Fact(Has("evidence", kind, count), holds),)] for kind, count in _needs(guard)], every=holds)


EVIDENCE: Final = GuardKind(
    model=EvidenceGuard,
    compile=_compile,
    expressions=(),
    ways=_ways,
    needs_instance=lambda guard: True,
    text=None,
    truth=lambda guard, known: known.evaluate(guard),
)
