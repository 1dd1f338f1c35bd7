"""Guards: what has to hold before a transition is taken, and why it does not.

Reasons are for the caller to see: values and texts whose keys look secret are hidden, and long ones are clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, assert_never

import msgspec

from waypost.config import workflows as models
from waypost.errors import DefinitionError
from waypost.redaction import HIDDEN, is_secret_name
from waypost.workflows.expressions import (
    And,
    Compare,
    Expression,
    Literal,
    Node,
    Not,
    Or,
    compile_expression,
    paths_of,
    render,
)
from waypost.workflows.scope import GUARD_ROOTS, MISSING, Path, Proof, Scope, quoted

DEEPEST: Final = 64
"""How deep guards may be nested."""

_LONGEST_TEXT: Final = 200
_MOST_ITEMS: Final = 10
_DEEPEST_VALUE: Final = 4
_MEANS: Final = {"human_request": "human_approval"}
"""Kinds of evidence that mcp-flowgate calls otherwise."""

Test = Callable[[Scope], bool]


class Reason(TypedDict):
    """Why a guard does not hold: the guard as it is written, one sentence, and the values it looked at."""

    guard: dict[str, Any]
    message: str
    operands: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Lack:
    """A reason, as part of a sentence."""

    guard: dict[str, Any]
    clause: str
    operands: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledGuard:
    """One guard, ready to be asked."""

    data: dict[str, Any]
    """The guard as it is written."""
    holds: Test
    lacks: Callable[[Scope], list[_Lack]] = field(repr=False)
    """What is missing; only asked where it does not hold."""
    expressions: tuple[Expression, ...] = ()

    def failures(self, scope: Scope) -> list[Reason]:
        """Why it does not hold; empty when it does."""
        return [] if self.holds(scope) else [_reason(lack) for lack in self.lacks(scope)]


@dataclass(frozen=True, slots=True)
class Guards:
    """Guards that all have to hold, asked in order."""

    guards: tuple[CompiledGuard, ...]
    holds: Test
    expressions: tuple[Expression, ...]

    def failures(self, scope: Scope) -> list[Reason]:
        """Why they do not hold, of each that does not; empty when all do."""
        return [reason for guard in self.guards for reason in guard.failures(scope)]


def compile_guards(guards: Iterable[models.Guard], roots: Set[str] = GUARD_ROOTS) -> Guards:
    """Guards out of their models; `roots` is what the paths of their expressions may begin with."""
    compiled = tuple(compile_guard(guard, roots) for guard in guards)
    return Guards(compiled, _all(compiled), _expressions(compiled))


def compile_guard(guard: models.Guard, roots: Set[str] = GUARD_ROOTS) -> CompiledGuard:
    """A guard out of its model; `roots` is what the paths of its expressions may begin with."""
    return _compiled(guard, roots, 0)


def redacted(value: Any, depth: int = 0) -> Any:
    """A value as a caller may see it: without what stands under keys that look secret, and clipped."""
    if isinstance(value, str):
        return _clipped(value)
    if isinstance(value, dict | list | tuple) and depth >= _DEEPEST_VALUE:
        return "…"
    if isinstance(value, dict):
        shown = {_clipped(str(key)): _under(str(key), item, depth) for key, item in list(value.items())[:_MOST_ITEMS]}
        return shown if len(value) <= _MOST_ITEMS else {**shown, "…": f"{len(value) - _MOST_ITEMS} more"}
    if isinstance(value, list | tuple):
        items = [redacted(item, depth + 1) for item in value[:_MOST_ITEMS]]
        return items if len(value) <= _MOST_ITEMS else [*items, f"… {len(value) - _MOST_ITEMS} more"]
    return None if value is MISSING else value


def _under(name: str, value: Any, depth: int = -1) -> Any:
    # What is only there, or only true, gives no secret away, and guards ask for little else.
    if is_secret_name(name) and value is not None and value is not MISSING and not isinstance(value, bool):
        return HIDDEN
    return redacted(value, depth + 1)


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _reason(lack: _Lack) -> Reason:
    return Reason(guard=lack.guard, message=f"{lack.clause[0].upper()}{lack.clause[1:]}.", operands=lack.operands)


def _compiled(guard: models.Guard, roots: Set[str], depth: int) -> CompiledGuard:
    if depth >= DEEPEST:
        raise DefinitionError(f"guards are nested deeper than {DEEPEST} levels")
    match guard:
        case models.ExprGuard() | models.JsonPathGuard():
            return _expr(guard, roots)
        case models.PermissionGuard():
            return _permission(guard)
        case models.RoleGuard():
            return _role(guard)
        case models.EvidenceGuard():
            return _evidence(guard)
        case models.AllOf():
            return _all_of([_compiled(inner, roots, depth + 1) for inner in guard.guards])
        case models.AnyOf():
            return _any_of([_compiled(inner, roots, depth + 1) for inner in guard.guards])
        case models.Not():
            return _not(_compiled(guard.guard, roots, depth + 1))
        case _:
            assert_never(guard)


def _expr(guard: models.ExprGuard | models.JsonPathGuard, roots: Set[str]) -> CompiledGuard:
    expression = compile_expression(guard.expr, roots)
    concealed = _concealed(expression.tree)
    text = guard.expr if concealed == expression.tree else render(concealed)
    data = {"kind": "expr" if isinstance(guard, models.ExprGuard) else "jsonpath", "expr": text}

    def lacks(scope: Scope) -> list[_Lack]:
        parts = expression.false_parts(scope)
        texts = list(dict.fromkeys(_clipped(render(_concealed(part))) for part in parts))
        clause = f"it is not true that {texts[0]}" if len(texts) == 1 else f"none of this is true: {'; '.join(texts)}"
        paths = (path for part in parts for path in paths_of(part))
        return [_Lack(data, clause, _operands(paths, scope))]

    return CompiledGuard(data, expression.holds, lacks, (expression,))


def _operands(paths: Iterable[Path], scope: Scope) -> dict[str, Any]:
    return {path.text: _under(path.text, path.get(scope)) for path in paths}


def _concealed(node: Node) -> Node:
    """A tree without the values that secrets are compared with."""
    match node:
        case And(parts):
            return And(tuple(_concealed(part) for part in parts))
        case Or(parts):
            return Or(tuple(_concealed(part) for part in parts))
        case Not(part):
            return Not(_concealed(part))
        case Compare(op, Path() as path, Literal(value)) if _is_secret(path, value):
            return Compare(op, path, Literal.of(HIDDEN))
        case Compare(op, Literal(value), Path() as path) if _is_secret(path, value):
            return Compare(op, Literal.of(HIDDEN), path)
        case _:
            return node


def _is_secret(path: Path, value: Any) -> bool:
    return bool(_under(path.text, value) == HIDDEN)


def _permission(guard: models.PermissionGuard) -> CompiledGuard:
    data, permission = msgspec.to_builtins(guard), guard.permission
    lack = _Lack(data, f"the caller lacks the permission {quoted(permission)}")
    return CompiledGuard(data, lambda scope: permission in scope.principal.permissions, lambda scope: [lack])


def _role(guard: models.RoleGuard) -> CompiledGuard:
    data, role = msgspec.to_builtins(guard), guard.role
    lack = _Lack(data, f"the caller lacks the role {quoted(role)}")
    return CompiledGuard(data, lambda scope: role in scope.principal.roles, lambda scope: [lack])


def _evidence(guard: models.EvidenceGuard) -> CompiledGuard:
    data = msgspec.to_builtins(guard)
    needs = [(need, 1) if isinstance(need, str) else (need.kind, need.count) for need in guard.requires]

    def holds(scope: Scope) -> bool:
        return all(_givers(scope.evidence, kind) >= count for kind, count in needs)

    def lacks(scope: Scope) -> list[_Lack]:
        given = {kind: _givers(scope.evidence, kind) for kind, _ in needs}
        clauses = [_unmet(kind, count, given[kind]) for kind, count in needs if given[kind] < count]
        return [_Lack(data, "; ".join(clauses), given)]

    return CompiledGuard(data, holds, lacks)


def _givers(evidence: Sequence[Proof], kind: str) -> int:
    meant = _MEANS.get(kind, kind)
    return len({proof.by for proof in evidence if proof.kind == kind or proof.kind == meant})


def _unmet(kind: str, count: int, given: int) -> str:
    if count == 1:
        return f"there is no evidence of the kind {quoted(kind)}"
    return f"evidence of the kind {quoted(kind)} is needed from {count} different people or agents, and is from {given}"


def _all_of(guards: list[CompiledGuard]) -> CompiledGuard:
    def lacks(scope: Scope) -> list[_Lack]:
        return [lack for guard in guards if not guard.holds(scope) for lack in guard.lacks(scope)]

    return CompiledGuard(_nested("all_of", guards), _all(guards), lacks, _expressions(guards))


def _any_of(guards: list[CompiledGuard]) -> CompiledGuard:
    data = _nested("any_of", guards)

    def holds(scope: Scope) -> bool:
        return any(guard.holds(scope) for guard in guards)

    def lacks(scope: Scope) -> list[_Lack]:
        inner = [lack for guard in guards for lack in guard.lacks(scope)]
        operands = {text: value for lack in inner for text, value in lack.operands.items()}
        if not guards:
            return [_Lack(data, "there is no guard of which one could hold")]
        return [_Lack(data, f"no guard of several holds: {'; '.join(lack.clause for lack in inner)}", operands)]

    return CompiledGuard(data, holds, lacks, _expressions(guards))


def _not(guard: CompiledGuard) -> CompiledGuard:
    data = {"kind": "not", "guard": guard.data}

    def lacks(scope: Scope) -> list[_Lack]:
        paths = (path for expression in guard.expressions for path in expression.paths)
        clause = f"a guard of the kind {guard.data['kind']} holds that must not"
        return [_Lack(data, clause, _operands(paths, scope))]

    return CompiledGuard(data, lambda scope: not guard.holds(scope), lacks, guard.expressions)


def _nested(kind: str, guards: list[CompiledGuard]) -> dict[str, Any]:
    return {"kind": kind, "guards": [guard.data for guard in guards]}


def _all(guards: Sequence[CompiledGuard]) -> Test:
    tests = [guard.holds for guard in guards]
    if len(tests) == 1:
        return tests[0]

    def holds(scope: Scope) -> bool:
        for test in tests:  # noqa: SIM110 - a generator costs more than the tests
            if not test(scope):
                return False
        return True

    return holds


def _expressions(guards: Iterable[CompiledGuard]) -> tuple[Expression, ...]:
    return tuple(expression for guard in guards for expression in guard.expressions)
