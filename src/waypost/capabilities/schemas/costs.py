"""The cost of checking a value against a schema, estimated without unfolding the schema.

The cost of a subschema is the checks that one application of it causes along one path into a value. Subschemas that
are applied to the same value add up; of those that are applied to different members only the most expensive one lies
on a path. Every reference is followed once, and its cost is taken as often as it is referred to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from waypost.capabilities.schemas.graph import (
    EACH_MEMBER,
    IN_PLACE,
    MAX_CHECKS_PER_PLACE,
    ONE_ITEM,
    ONE_MEMBER,
    Schema,
    SchemaGraph,
)

# Measured, in checks of 20 ns. The engine compares numbers exactly, with as many digits as they take.
_FRACTION_MULTIPLE: Final = 5_000
_MULTIPLE: Final = 150
_INTEGER: Final = 75
_BOUND: Final = 24
_FLOAT: Final = 350
_CONTAINER: Final = 50
_UNIQUE_ITEM: Final = 25
_KEY: Final = 3
_FORMAT: Final = 10
_RECURSION: Final = 3
_UNEVALUATED: Final = 3
"""How much longer all checks take that note what they apply to."""
_HARMLESS_PATTERNS: Final = 8
"""Patterns of few positions that search a character in the time of one check."""
_WEIGHTY: Final = frozenset(
    (
        "enum", "const", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems",
        "format", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties",
    )
)  # fmt: skip


class Cost(NamedTuple):
    """What a schema costs at most: checks at one place of a value, and for one character of its strings."""

    per_place: int
    per_character: int
    heads: dict[int, Schema]
    """Subschemas that contain themselves, by identity; every cycle of references goes through one of them."""
    per_head: int
    """Checks of one application of such a subschema, down to the next."""
    is_multiplying: bool
    """Whether one application of such a subschema can cause several others on one path, each with several more, and
    the engine does not remember their answers."""
    loses_annotations: bool
    """Whether `unevaluated...` depends on a subschema that contains itself."""


def assess(graph: SchemaGraph) -> Cost:
    """Estimate from above what a schema costs."""
    order, heads = _sort(graph)
    checks = _Measure(graph, heads, own_checks, _RECURSION)
    recursions = _Measure(graph, heads, lambda _: 0, 1)
    factor = entries = 0
    if heads:
        recursions.take_in(order)
        factor = max(map(recursions.of, heads.values()))
        entries = max(1, recursions.of(graph.root)) * max(1, factor)
    checks.take_in(order)
    per_head = max(map(checks.of, heads.values()), default=0)
    per_place = (checks.of(graph.root) + entries * per_head) * (_UNEVALUATED if checks.has_unevaluated else 1)
    per_character = per_place // _HARMLESS_PATTERNS if graph.patterns else 0
    if any(size.checks > 1 for size in graph.patterns.values()):
        characters = _Measure(graph, heads, lambda schema: _character_checks(graph, schema), 0)
        characters.take_in(order)
        per_character = characters.of(graph.root)
        per_character += entries * max(map(characters.of, heads.values()), default=0)
    # The engine remembers the answers of a subschema that refers to itself, if no other one refers to it in turn.
    is_remembered = len(heads) == 1 and not any(
        recursions.of(one) for one in order if one is not graph.root and id(one) not in heads
    )
    return Cost(
        per_place=per_place,
        per_character=per_character,
        heads=heads,
        per_head=per_head,
        is_multiplying=factor > 1 and not is_remembered,
        loses_annotations=recursions.has_unevaluated_recursion,
    )


def _sort(graph: SchemaGraph) -> tuple[list[Schema], dict[int, Schema]]:
    """All reference targets in dependency order, and the references to cut to make that possible."""
    definitions = graph.definitions()
    order: list[Schema] = []
    heads: dict[int, Schema] = {}
    done: set[int] = set()
    opened = {id(graph.root)}
    stack = [(graph.root, True, _edges(graph, graph.root, definitions))]
    while stack:
        schema, _, edges = stack[-1]
        for is_reference, target in edges:
            if id(target) in done:
                continue
            if id(target) not in opened:
                opened.add(id(target))
                stack.append((target, is_reference, _edges(graph, target, definitions)))
                break
            # What contains a schema cannot be cut from it; then the reference is cut that led to what contains it.
            head = target if is_reference else next(one for one, by_reference, _ in reversed(stack) if by_reference)
            heads[id(head)] = head
        else:
            stack.pop()
            done.add(id(schema))
            order.append(schema)
    return order, heads


def _edges(graph: SchemaGraph, top: Schema, definitions: dict[int, Schema]) -> Iterator[tuple[bool, Schema]]:
    """The definitions that a definition refers to or contains, and which of both."""
    waiting = [top]
    while waiting:
        schema = waiting.pop()
        if schema is not top and id(schema) in definitions:
            yield False, schema
            continue
        yield from ((True, target) for target in graph.targets(schema) if isinstance(target, dict))
        waiting += [child for _, child in graph.applied[id(schema)]]


class _Sum(Struct):
    """Checks at a value itself, at its members, and at its items."""

    here: int = 0
    members: int = 0
    items: int = 0

    def add(self, other: _Sum) -> None:
        self.here += other.here
        self.members += other.members
        self.items += other.items

    @property
    def on_path(self) -> int:
        return self.here + max(self.members, self.items)


class _Measure:
    """Adds up a weight over the subschemas of a graph; heads are not entered again, but weigh something themselves."""

    def __init__(
        self, graph: SchemaGraph, heads: dict[int, Schema], weigh: Callable[[Schema], int], recursion: int
    ) -> None:
        self._graph = graph
        self._heads = heads
        self._weigh = weigh
        self._recursion = recursion
        self._known: dict[int, tuple[_Sum, _Sum]] = {}
        self.has_unevaluated = self.has_unevaluated_recursion = False

    def take_in(self, order: list[Schema]) -> None:
        """Visit schemas in an order in which each finds what it refers to visited already."""
        for schema in order:
            self._visit(schema)

    def of(self, schema: Schema) -> int:
        """What one application of a subschema causes on one path into a value."""
        return self._visit(schema)[0].on_path

    def _visit(self, schema: Schema) -> tuple[_Sum, _Sum]:
        """The sum of a subschema, and of asking again which of its parts fit, as `unevaluated...` does."""
        known = self._known.get(id(schema))
        if known is not None:
            return known
        whole, again = _Sum(self._weigh(schema)), _Sum()
        for target in self._graph.targets(schema):
            if id(target) in self._heads:
                whole.here += self._recursion
            elif isinstance(target, dict):
                self._add(target, whole, again)
        member = item = 0
        for keyword, child in self._graph.applied[id(schema)]:
            if keyword in IN_PLACE:
                self._add(child, whole, again)
            elif keyword in ONE_MEMBER:
                member = max(member, self.of(child))
            elif keyword in EACH_MEMBER:
                whole.members += self.of(child)
            elif keyword in ONE_ITEM:
                item = max(item, self.of(child))
            else:
                whole.items += self.of(child)
        whole.add(_Sum(0, member, item))
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            self.has_unevaluated = True
            self.has_unevaluated_recursion |= whole.here > 0
            whole.add(again)
        self._known[id(schema)] = whole, again
        return whole, again

    def _add(self, part: Schema, whole: _Sum, again: _Sum) -> None:
        inner, inner_again = self._visit(part)
        whole.add(inner)
        again.add(inner)
        again.add(inner_again)


def own_checks(schema: Schema) -> int:
    """The checks that a subschema's own keywords take."""
    checks = 1
    if schema.keys().isdisjoint(_WEIGHTY):
        return checks
    if isinstance(schema.get("enum"), list | tuple):
        checks += _comparisons(schema["enum"])
    if "const" in schema:
        checks += _comparison(schema["const"])
    if "multipleOf" in schema:
        checks += _MULTIPLE if isinstance(schema["multipleOf"], int) else _FRACTION_MULTIPLE
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if keyword in schema:
            checks += _BOUND
    if schema.get("uniqueItems") is True:
        checks += _UNIQUE_ITEM
    if "format" in schema:
        checks += _FORMAT
    for keyword in ("dependentRequired", "dependentSchemas", "dependencies", "patternProperties"):
        if isinstance(schema.get(keyword), dict):
            checks += _KEY * len(schema[keyword])
    return checks


def _comparisons(options: Sequence[Any]) -> int:
    if all(isinstance(option, str | bool | None) for option in options):
        return _KEY  # looked up by hash
    checks = 0
    for option in options:
        checks += _comparison(option)
        if checks > MAX_CHECKS_PER_PLACE:  # refused in any case, however many follow
            break
    return checks


def _comparison(option: Any) -> int:
    if isinstance(option, dict | list | tuple):
        inner = option.values() if isinstance(option, dict) else option
        return _CONTAINER + sum(_FLOAT for one in inner if not isinstance(one, str | bool | None))
    if isinstance(option, str | bool | None):
        return _KEY
    return _INTEGER if isinstance(option, int) else _FLOAT


def _character_checks(graph: SchemaGraph, schema: Schema) -> int:
    patterns = schema.get("patternProperties")
    written = (schema.get("pattern"), *(patterns if isinstance(patterns, dict) else ()))
    return sum(graph.patterns[pattern].checks for pattern in written if isinstance(pattern, str))
