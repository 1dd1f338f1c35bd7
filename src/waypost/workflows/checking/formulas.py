"""Guards as formulas: every way in which all of them could hold.

A way is a list of facts that would have to be so together; a fact is an atom and whether it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from waypost.config import workflows as models
from waypost.errors import DefinitionError
from waypost.workflows.expression_parsing import And, Compare, Literal, Node, Not, Or
from waypost.workflows.expressions import compile_expression
from waypost.workflows.paths import Path

MOST_WAYS: Final = 256
"""Beyond so many ways it is not said whether guards can hold."""


class Has(NamedTuple):
    """The caller, or the instance, has something: a role, a permission, evidence of a kind."""

    what: str
    name: str
    at_least: int = 1


class Opaque(NamedTuple):
    """Something of which nothing is known."""

    text: str


Atom: TypeAlias = Compare | Literal | Path | Has | Opaque


class Fact(NamedTuple):
    """An atom, and whether it holds."""

    atom: Atom
    holds: bool


Ways: TypeAlias = list[tuple[Fact, ...]]


class TooMany(Exception):
    """There are more ways than are looked at."""


def ways_to_hold(guards: Iterable[models.Guard]) -> Ways:
    """Every way in which all guards hold, as far as their form says; raises `TooMany`."""
    return _every([_guard(guard, True) for guard in guards])


def _every(parts: list[Ways]) -> Ways:
    ways: Ways = [()]
    for part in parts:
        if len(ways) * len(part) > MOST_WAYS:
            raise TooMany
        ways = [(*one, *other) for one, other in product(ways, part)]
    return ways


def _any(parts: list[Ways]) -> Ways:
    ways = [way for part in parts for way in part]
    if len(ways) > MOST_WAYS:
        raise TooMany
    return ways


def _guard(guard: models.Guard, holds: bool) -> Ways:
    match guard:
        case models.ExprGuard() | models.JsonPathGuard():
            return _expression(guard.expr, holds)
        case models.AllOf():
            parts = [_guard(inner, holds) for inner in guard.guards]
            return _every(parts) if holds else _any(parts)
        case models.AnyOf():
            parts = [_guard(inner, holds) for inner in guard.guards]
            return _any(parts) if holds else _every(parts)
        case models.Not():
            return _guard(guard.guard, not holds)
        case models.RoleGuard():
            return [(Fact(Has("role", guard.role), holds),)]
        case models.PermissionGuard():
            return [(Fact(Has("permission", guard.permission), holds),)]
        case models.EvidenceGuard():
            needs = [[(Fact(_evidence(need), holds),)] for need in guard.requires]
            return _every([list(need) for need in needs]) if holds else _any([list(need) for need in needs])


def _evidence(need: str | models.EvidenceNeed) -> Has:
    return Has("evidence", need) if isinstance(need, str) else Has("evidence", need.kind, need.count)


def _expression(text: str, holds: bool) -> Ways:
    try:
        return _node(compile_expression(text).tree, holds)
    except DefinitionError:
        return [(Fact(Opaque(text), holds),)]


def _node(node: Node, holds: bool) -> Ways:
    match node:
        case And(parts):
            inner = [_node(part, holds) for part in parts]
            return _every(inner) if holds else _any(inner)
        case Or(parts):
            inner = [_node(part, holds) for part in parts]
            return _any(inner) if holds else _every(inner)
        case Not(part):
            return _node(part, not holds)
        case Compare("!=", left, right):
            return [(Fact(Compare("==", left, right), not holds),)]
        case _:
            return [(Fact(node, holds),)]
