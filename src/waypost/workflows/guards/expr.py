"""The kinds `expr` and `jsonpath`, its old name: an expression has to be true."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct

from waypost.errors import DefinitionError
from waypost.kinds import GuardModel
from waypost.redaction import HIDDEN
from waypost.workflows.expressions import And, Compare, Literal, Node, Not, Or, compile_expression, paths_of, render
from waypost.workflows.guards.kind import (
    CompiledGuard,
    Compiler,
    Fact,
    GuardKind,
    Lack,
    Opaque,
    Ways,
    cut,
    join_ways,
    read_operands,
    redact_at,
)
from waypost.workflows.scope import Path, Scope


class ExprGuard(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="expr", tag_field="kind"):
    """Holds when an expression does."""

    expr: Annotated[str, Meta(description="The expression, such as `$.context.tests == true`.")]


class JsonPathGuard(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="jsonpath", tag_field="kind"):
    """The old name of `expr`."""

    expr: Annotated[str, Meta(description="The expression.")]


G = TypeVar("G", ExprGuard, JsonPathGuard)


def _compile(guard: ExprGuard | JsonPathGuard, compiler: Compiler) -> CompiledGuard:
    expression = compile_expression(guard.expr)
    concealed = _conceal(expression.tree)
    text = guard.expr if concealed == expression.tree else render(concealed)
    data = {"kind": guard.__struct_config__.tag, "expr": text}

    def lacks(scope: Scope) -> list[Lack]:
        parts = expression.false_parts(scope)
        texts = list(dict.fromkeys(cut(render(_conceal(part))) for part in parts))
        clause = f"it is not true that {texts[0]}" if len(texts) == 1 else f"none of this is true: {'; '.join(texts)}"
        paths = (path for part in parts for path in paths_of(part))
        return [Lack(data, clause, read_operands(paths, scope))]

    return CompiledGuard(data, expression.holds, lacks, (expression,))


def _conceal(node: Node) -> Node:
    """A tree without the values that secrets are compared with."""
    match node:
        case And(parts):
            return And(tuple(_conceal(part) for part in parts))
        case Or(parts):
            return Or(tuple(_conceal(part) for part in parts))
        case Not(part):
            return Not(_conceal(part))
        case Compare(op, Path() as path, Literal(value)) if _is_secret(path, value):
            return Compare(op, path, Literal.of(HIDDEN))
        case Compare(op, Literal(value), Path() as path) if _is_secret(path, value):
            return Compare(op, Literal.of(HIDDEN), path)
        case _:
            return node


def _is_secret(path: Path, value: Any) -> bool:
    return bool(redact_at(path.text, value) == HIDDEN)


def _ways(guard: ExprGuard | JsonPathGuard, holds: bool) -> Ways:
    try:
        return _ways_of_node(compile_expression(guard.expr).tree, holds)
    except DefinitionError:
        return [(Fact(Opaque(guard.expr), holds),)]


def _ways_of_node(node: Node, holds: bool) -> Ways:
    match node:
        case And(parts) | Or(parts):
            return join_ways([_ways_of_node(part, holds) for part in parts], every=isinstance(node, And) == holds)
        case Not(part):
            return _ways_of_node(part, not holds)
        # One atom for both, so that `==` and `!=` of the same operands are seen to contradict each other.
        case Compare("!=", left, right):
            return [(Fact(Compare("==", left, right), not holds),)]
        case _:
            return [(Fact(node, holds),)]


def _kind(model: type[G]) -> GuardKind[G]:
    return GuardKind(
        model=model,
        compile=_compile,
        expressions=("expr",),
        ways=_ways,
        needs_instance=lambda guard: False,
        text=lambda guard: guard.expr,
        truth=lambda guard, known: known.evaluate(guard),
    )


EXPR: Final = _kind(ExprGuard)
JSONPATH: Final = _kind(JsonPathGuard)
