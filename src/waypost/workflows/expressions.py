"""Expressions such as `$.context.tests == true && $.context.coverage >= 80`: parsed, compiled, evaluated, rendered.

    any   = every { "||" every }
    every = one { "&&" one }
    one   = "!" one | "(" any ")" | operand [ operator operand ]

An operand is a path, a JSON literal or a list of literals; texts stand in double or single quotes.

Values are compared as JSON: a missing path is null, booleans are not numbers, 1 equals 1.0, lists and objects are
compared by value. `<` and its like compare two numbers or two texts; `contains` finds a text in a text or a value in a
list, `in` is the same the other way round. An operand that does not fit its operator makes the comparison false;
evaluation never raises.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.workflows.scope import (
    GUARD_ROOTS,
    LONGEST,
    MISSING,
    Path,
    Scope,
    Unreadable,
    is_number,
    quote,
    scan_path,
    scan_text,
)

# The parser and the compiler are recursive; this keeps them far from Python's limit.
DEEPEST: Final = 64
"""How deep parentheses, negations and lists may be nested."""
ORDERED: Final = frozenset(("<", "<=", ">", ">="))
_MAX_COMPILED: Final = 10_000
"""Nodes whose tests are kept: definitions repeat their guards, and a rejection looks at the parts again."""
OPERATORS: Final = ORDERED | {"==", "!=", "starts_with", "contains", "in", "matches"}


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in the expression itself."""

    value: Any = field(compare=False)
    text: str
    """The value as JSON; what makes two literals equal, since to Python `true` is 1."""

    @classmethod
    def of(cls, value: Any) -> Literal:
        """The literal of a JSON value."""
        return cls(value, json.dumps(value, ensure_ascii=False))


Operand: TypeAlias = Literal | Path


@dataclass(frozen=True, slots=True)
class Compare:
    """Two operands and what is to be between them."""

    op: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """Holds when its part does not."""

    part: Node


@dataclass(frozen=True, slots=True)
class And:
    """Holds when all parts do; there are at least two."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Holds when one of the parts does; there are at least two."""

    parts: tuple[Node, ...]


Node: TypeAlias = And | Or | Not | Compare | Literal | Path
"""A part of an expression; an operand by itself holds if it is `true`."""


def parse(text: str, roots: Set[str]) -> Node:
    """The tree of an expression, whose paths begin with one of `roots`."""
    try:
        if len(text) > LONGEST:
            raise Unreadable(LONGEST, f"it is longer than {LONGEST} characters")
        parser = _Parser(list(_tokens(text, roots)))
        tree = parser.any(0)
        parser.expect_end()
        return tree
    except Unreadable as error:
        raise error.within("expression", text) from None


def render(node: Node) -> str:
    """The text of a tree, which reads as the same tree."""
    match node:
        case And(parts):
            return " && ".join(_render_wrapped(part, And | Or) for part in parts)
        case Or(parts):
            return " || ".join(_render_wrapped(part, Or) for part in parts)
        case Not(part):
            return f"!{_render_wrapped(part, And | Or | Compare)}"
        case Compare(op, left, right):
            return f"{left.text} {op} {right.text}"
        case _:
            return node.text


def paths_of(node: Node) -> Iterator[Path]:
    """The paths in a tree, from left to right."""
    match node:
        case Path():
            yield node
        case And(parts) | Or(parts):
            for part in parts:
                yield from paths_of(part)
        case Not(part):
            yield from paths_of(part)
        case Compare(_, left, right):
            yield from paths_of(left)
            yield from paths_of(right)


def matcher(pattern: str) -> Callable[[Any], bool]:
    """Whether a text has a place that fits a regular expression, in time linear in the text whatever the pattern."""
    # The validator's engine does not backtrack, as Python's `re` does.
    return Validator({"type": "string", "pattern": pattern}).is_valid


def _render_wrapped(node: Node, loose: Any) -> str:
    return f"({render(node)})" if isinstance(node, loose) else render(node)


class _Token(NamedTuple):
    kind: str
    """`operator`, `operand`, `end`, or the symbol itself."""
    text: str
    at: int
    operand: Operand | None = None


_SPACE: Final = re.compile(r"\s*")
_SYMBOL: Final = re.compile(r"&&|\|\||[!=<>]=|[<>!()\[\],]")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.])", re.ASCII)
_WORD: Final = re.compile(r"\w+")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_LIKELY_MEANT: Final = {"=": "==", "&": "&&", "|": "||", "and": "&&", "or": "||", "not": "!"}


def _tokens(text: str, roots: Set[str]) -> Iterator[_Token]:
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at >= len(text):
            break
        token, at = _token(text, at, roots)
        yield token
    yield _Token("end", "the end", at)


def _token(text: str, at: int, roots: Set[str]) -> tuple[_Token, int]:
    if text[at] == "$":
        path, end = scan_path(text, at, roots)
        return _Token("operand", path.text, at, path), end
    if text[at] in "\"'":
        value, end = scan_text(text, at)
        return _Token("operand", text[at:end], at, Literal.of(value)), end
    if found := _SYMBOL.match(text, at):
        return _Token("operator" if found[0] in OPERATORS else found[0], found[0], at), found.end()
    if found := _NUMBER.match(text, at):
        return _Token("operand", found[0], at, Literal.of(_number(found))), found.end()
    if found := _WORD.match(text, at):
        word = found[0]
        if word in OPERATORS:
            return _Token("operator", word, at), found.end()
        if word in _CONSTANTS:
            return _Token("operand", word, at, Literal.of(_CONSTANTS[word])), found.end()
        raise Unreadable(at, _describe_unknown(word))
    raise Unreadable(at, _describe_unknown(text[at]))


def _number(found: re.Match[str]) -> int | float:
    if found[1] is None and found[2] is None:
        return int(found[0])
    value = float(found[0])
    if value in (float("inf"), float("-inf")):
        raise Unreadable(found.start(), f"the number {found[0]} is too large")
    return value


def _describe_unknown(text: str) -> str:
    if text.lower() in _LIKELY_MEANT:
        return f"{quote(text)} means nothing here; write {_LIKELY_MEANT[text.lower()]}"
    return f"{quote(text)} means nothing here; texts stand in quotes, and paths begin with `$.`"


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def any(self, depth: int) -> Node:
        parts = [self._every(depth)]
        while self._take("||"):
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def expect_end(self) -> None:
        token = self._tokens[self._next]
        if token.kind == "operator":
            raise Unreadable(token.at, "a comparison has one operator, between two operands; join several with &&")
        if token.kind != "end":
            raise Unreadable(token.at, f"&&, || or the end is missing before {quote(token.text)}")

    def _every(self, depth: int) -> Node:
        parts = [self._one(depth)]
        while self._take("&&"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self, depth: int) -> Node:
        if self._take("!"):
            return Not(self._one(self._deeper(depth)))
        if self._take("("):
            inner = self.any(self._deeper(depth))
            self._expect(")", "a closing parenthesis")
            return inner
        return self._comparison(depth)

    def _comparison(self, depth: int) -> Node:
        left = self._operand(depth)
        operator = self._take("operator")
        if operator is None:
            return left
        right = self._operand(depth)
        _check_types(operator.text, left, right, operator.at)
        return Compare(operator.text, left, right)

    def _operand(self, depth: int) -> Operand:
        if self._take("["):
            return self._list(self._deeper(depth))
        return self._expect("operand", "a path or a value").operand  # type: ignore[return-value]

    def _list(self, depth: int) -> Literal:
        values: list[Any] = []
        while not self._take("]"):
            if values:
                self._expect(",", "a comma or a closing bracket")
            at = self._tokens[self._next].at
            item = self._operand(depth)
            if isinstance(item, Path):
                raise Unreadable(at, "a list holds values, not paths")
            values.append(item.value)
        return Literal.of(values)

    def _deeper(self, depth: int) -> int:
        if depth >= DEEPEST:
            raise Unreadable(self._tokens[self._next].at, f"it is nested deeper than {DEEPEST} levels")
        return depth + 1

    def _take(self, kind: str) -> _Token | None:
        token = self._tokens[self._next]
        if token.kind != kind:
            return None
        self._next += 1
        return token

    def _expect(self, kind: str, name: str) -> _Token:
        taken = self._take(kind)
        if taken is None:
            token = self._tokens[self._next]
            found = token.text if token.kind == "end" else quote(token.text)
            raise Unreadable(token.at, f"{name} is missing before {found}")
        return taken


def _check_types(op: str, left: Operand, right: Operand, at: int) -> None:
    """Refuse a value that its operator can never use."""
    if op in ORDERED:
        _check_type(left, (int, float, str), f"{op} compares numbers or texts", at)
        _check_type(right, (int, float, str), f"{op} compares numbers or texts", at)
    elif op == "starts_with":
        _check_type(left, (str,), "starts_with compares texts", at)
        _check_type(right, (str,), "starts_with compares texts", at)
    elif op in ("contains", "in"):
        _check_type(left if op == "contains" else right, (str, list), f"{op} looks into a text or a list", at)
    elif op == "matches":
        _check_type(left, (str,), "matches looks at a text", at)
        _check_pattern(right, at)


def _check_type(operand: Operand, types: tuple[type, ...], rule: str, at: int) -> None:
    if isinstance(operand, Literal) and type(operand.value) not in types:
        raise Unreadable(at, f"{rule}, not {operand.text}")


def _check_pattern(operand: Operand, at: int) -> None:
    # A pattern from the data would have to be compiled while a caller waits.
    if not (isinstance(operand, Literal) and isinstance(operand.value, str)):
        raise Unreadable(at, "matches needs a regular expression in quotes on its right side")
    if "\b" in operand.value:
        raise Unreadable(at, r"`\b` in quotes is a backspace; write `\\b` for the edge of a word")
    try:
        matcher(operand.value)
    except DefinitionError:
        why = "is not a regular expression without look-around and back-references"
        raise Unreadable(at, f"{operand.text} {why}") from None


Test = Callable[[Scope], bool]
Relation = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression."""

    text: str
    tree: Node
    paths: tuple[Path, ...]
    """Where it looks, each place once."""
    holds: Test = field(compare=False, repr=False)

    def false_parts(self, scope: Scope) -> list[Node]:
        """The parts that make it false: of `&&` the false ones, of `||` all, of `!` the whole."""
        return _false_parts(self.tree, scope)


def compile_expression(text: str) -> Expression:
    """An expression out of its text, as guards have it."""
    tree = parse(text, GUARD_ROOTS)
    return Expression(text, tree, tuple(dict.fromkeys(paths_of(tree))), _compile_node(tree))


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same."""
    # Not recursive, for data that is nested deeper than Python's stack.
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict):
            if not isinstance(other, dict) or one.keys() != other.keys():
                return False
            pairs.extend((value, other[key]) for key, value in one.items())
        elif isinstance(one, list | tuple):
            if not isinstance(other, list | tuple) or len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif one is True or one is False or other is True or other is False:
            if one is not other:
                return False
        elif one != other:
            return False
    return True


def _compare_ordered(compare: Relation, left: Any, right: Any) -> bool:
    if type(left) is str:
        return type(right) is str and compare(left, right)
    return is_number(left) and is_number(right) and compare(left, right)


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    return isinstance(left, list | tuple) and any(equal(item, right) for item in left)


_ORDER: Final[dict[str, Relation]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_RELATIONS: Final[dict[str, Relation]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "starts_with": lambda left, right: isinstance(left, str) and isinstance(right, str) and left.startswith(right),
    "contains": _contains,
    "in": lambda left, right: _contains(right, left),
    **{op: partial(_compare_ordered, compare) for op, compare in _ORDER.items()},
}
MIRRORED: Final = {
    "==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "contains": "in", "in": "contains",
}  # fmt: skip


@lru_cache(_MAX_COMPILED)
def _compile_node(node: Node) -> Test:
    match node:
        case And(parts):
            return all_of([_compile_node(part) for part in parts])
        case Or(parts):
            return _any([_compile_node(part) for part in parts])
        case Not(inner):
            return _negate(_compile_node(inner))
        case Compare():
            return _comparison(node)
        case Literal():
            constant = node.value is True
            return lambda scope: constant
        case Path():
            return _is_identical(node.get, True)


def all_of(tests: list[Test]) -> Test:
    """Whether all tests hold."""
    if len(tests) == 1:
        return tests[0]
    # Two parts are the usual case, and a loop around them costs more than they do.
    if len(tests) == 2:
        first, second = tests
        return lambda scope: first(scope) and second(scope)

    def holds(scope: Scope) -> bool:
        for test in tests:  # noqa: SIM110 - a generator costs more than the tests
            if not test(scope):
                return False
        return True

    return holds


def _any(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda scope: first(scope) or second(scope)

    def holds(scope: Scope) -> bool:
        for test in tests:  # noqa: SIM110 - a generator costs more than the tests
            if test(scope):
                return True
        return False

    return holds


def _negate(test: Test) -> Test:
    return lambda scope: not test(scope)


def _is_identical(get: Callable[[Scope], Any], wanted: bool) -> Test:
    return lambda scope: get(scope) is wanted


def _comparison(node: Compare) -> Test:
    op, left, right = node.op, node.left, node.right
    if op == "matches":
        read_text, fits = _reader(left), matcher(str(right.value if isinstance(right, Literal) else ""))
        return lambda scope: type(found := read_text(scope)) is str and fits(found)
    # With the path on the left, as most expressions have it, the comparison gets a specialised test.
    if isinstance(left, Literal) and isinstance(right, Path) and op in MIRRORED:
        op, left, right = MIRRORED[op], right, left
    if isinstance(left, Path) and isinstance(right, Literal):
        return _path_and_value(op, left, right.value)
    relation, read_left, read_right = _RELATIONS[op], _reader(left), _reader(right)
    return lambda scope: relation(read_left(scope), read_right(scope))


def _path_and_value(op: str, path: Path, value: Any) -> Test:
    """The shape nearly every comparison has, without what it does not need."""
    get = path.get
    if op in ("==", "!=") and not isinstance(value, list):
        test = _compare_equal(get, value)
        return test if op == "==" else _negate(test)
    if op in ORDERED:
        compare = _ORDER[op]
        if not isinstance(value, str):
            return _compare_number(get, compare, value)
        return lambda scope: type(found := get(scope)) is str and compare(found, value)
    if op == "in" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        values = frozenset(value)
        return lambda scope: type(found := get(scope)) is str and found in values
    relation, read = _RELATIONS[op], _reader(path)
    return lambda scope: relation(read(scope), value)


def _compare_equal(get: Callable[[Scope], Any], value: Any) -> Test:
    if isinstance(value, bool):
        return _is_identical(get, value)
    if value is None:
        return lambda scope: (found := get(scope)) is None or found is MISSING
    if isinstance(value, str):
        return lambda scope: bool(get(scope) == value)
    # To Python `True == 1`, to JSON it is not.
    return lambda scope: (found := get(scope)) == value and found is not True and found is not False


def _compare_number(get: Callable[[Scope], Any], compare: Relation, bound: Any) -> Test:
    def holds(scope: Scope) -> bool:
        found = get(scope)
        # The exact type, because to Python booleans are integers.
        kind = type(found)
        return (kind is int or kind is float) and compare(found, bound)

    return holds


def _reader(operand: Operand) -> Callable[[Scope], Any]:
    if isinstance(operand, Literal):
        value = operand.value
        return lambda scope: value
    get = operand.get
    return lambda scope: None if (found := get(scope)) is MISSING else found


def _false_parts(node: Node, scope: Scope) -> list[Node]:
    if _compile_node(node)(scope):
        return []
    if isinstance(node, And | Or):
        return [part for inner in node.parts for part in _false_parts(inner, scope)]
    return [node]
