"""A JSON Schema as a graph: its subschemas, where its references lead, and the limits on what it may cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from waypost.errors import DefinitionError

# The engine needs time linear in the text it searches, but the constant is the number of positions in the pattern that
# can match at once: `^[01]*1[01]{1000}x$` takes 15 µs a character.

_QUANTIFIER: Final = re.compile(r"([*+])|\?|\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}|\{\s*,\s*(\d{1,9})\s*\}")
# What follows a backslash and belongs to it: \p{L}, \x{61}, \u0061, \k<name>.
_ESCAPE: Final = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|k<[^>]*>|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LITERALS: Final = re.compile(r"[^\\\[\](){}|*+?^$.]{2,}")
_CLASS: Final = re.compile(r"\[\^?(?:\\.|[^\]\\])*\]?", re.DOTALL)

# Measured in the engine: a position of ASCII takes 72 bytes, one of any character 1 KB, a Unicode class 43 KB.
_ANY_CHARACTER_UNITS: Final = 4
_UNICODE_CLASS_UNITS: Final = 250
_HARMLESS_POSITIONS: Final = 12
"""So few positions have at most 4,096 combinations, which the engine remembers all."""


class PatternSize(NamedTuple):
    """What a pattern takes: `units` to compile it, and `checks` to search one character."""

    units: int
    checks: int


class _Run(Struct):
    """Elements in a row; `loose` counts the positions in and after the first loop, which can all match at once."""

    units: int = 0
    positions: int = 0
    loose: int = 0

    def add(self, other: _Run) -> None:
        self.units += other.units
        self.positions += other.positions
        self.loose = self.loose + other.positions if self.loose else other.loose

    def repeat(self, most: int | None, least: int) -> None:
        count = max(least if most is None else most, 1)
        self.units *= count
        self.positions *= count
        if most is None or self.loose:
            self.loose = self.positions


class _Group:
    """An open group: its alternatives so far, the current one, and the element that a quantifier may follow."""

    def __init__(self) -> None:
        self.whole, self.current, self.last = _Run(), _Run(), _Run()
        self.is_anchored = False

    def put(self, element: _Run) -> None:
        self.current.add(self.last)
        self.last = element

    def end_alternative(self, *, is_outermost: bool) -> None:
        self.put(_Run())
        if is_outermost and not self.is_anchored:  # it is searched from every character
            self.current.loose = self.current.positions
        self.whole = _Run(
            self.whole.units + self.current.units,
            self.whole.positions + self.current.positions,
            self.whole.loose + self.current.loose,
        )
        self.current, self.is_anchored = _Run(), False


@lru_cache(maxsize=512)
def measure_pattern(pattern: str) -> PatternSize:
    """Estimate an upper bound of a pattern's size; unknown syntax counts as ordinary characters."""
    groups = [_Group()]
    at = 0
    while at < len(pattern):
        group, sign = groups[-1], pattern[at]
        if quantifier := _QUANTIFIER.match(pattern, at):
            _quantify(group.last, quantifier)
            at = quantifier.end()
            continue
        if literals := _LITERALS.match(pattern, at):  # a quantifier is for the last of them
            at = literals.end() - 1
            count = at - literals.start()
            units = count if literals.group().isascii() else count * _ANY_CHARACTER_UNITS
            group.put(_Run(units, count, 0))
            sign = pattern[at]
        at += 1
        if sign == "(":
            groups.append(_Group())
        elif sign == ")" and len(groups) > 1:
            group.end_alternative(is_outermost=False)
            groups.pop()
            groups[-1].put(group.whole)
        elif sign == "|":
            group.end_alternative(is_outermost=len(groups) == 1)
        elif sign == "^":
            group.is_anchored = group.is_anchored or not (group.current.positions or group.last.positions)
        elif sign != "$":
            found = (_CLASS if sign == "[" else _ESCAPE).match(pattern, at - 1) if sign in "[\\" else None
            text = found.group() if found else sign
            at += len(text) - 1
            group.put(_Run(_units(text), 1, 0))
    while len(groups) > 1:
        group = groups.pop()
        group.end_alternative(is_outermost=False)
        groups[-1].put(group.whole)
    groups[0].end_alternative(is_outermost=True)
    whole = groups[0].whole
    # Letters in both cases, some of which have further forms.
    units = whole.units * 4 if "(?" in pattern and re.search(r"\(\?[a-zA-Z]*i", pattern) else whole.units
    return PatternSize(units, 75 + whole.loose if whole.loose > _HARMLESS_POSITIONS else 1)


def _quantify(element: _Run, quantifier: re.Match[str]) -> None:
    loop, least, comma, most, only_most = quantifier.groups()
    if loop:
        element.repeat(None, 1)
    elif least or only_most:
        is_endless = comma and not most
        element.repeat(None if is_endless else int(only_most or most or least), int(least or 0))
        element.units += len(quantifier.group())  # where braces mean themselves


def _units(text: str) -> int:
    """What an element takes, in positions of ASCII."""
    if classes := text.count("\\p") + text.count("\\P"):
        return _UNICODE_CLASS_UNITS * classes
    is_wide = text == "." or text.startswith("[^") or not text.isascii() or any(f"\\{one}" in text for one in "DSWsuUx")
    return (_ANY_CHARACTER_UNITS if is_wide else 1) * (1 + len(text) // 8)


# The engine checks most values in a few hundred nanoseconds, but its worst cases multiply: references that double at
# every level, unions whose branches are all tried, patterns with many states, exact arithmetic on large numbers. What a
# schema may cost is estimated before it is used, in *checks* of about 20 ns, the time of one `type`.

MAX_SCHEMA_BYTES: Final = 1024 * 1024
"""Maximum size of the JSON text of a schema; compiling a long `enum` or `required` takes about 40 ns a byte."""

MAX_DEPTH: Final = 64
"""Maximum nesting of subschemas."""

MAX_SUBSCHEMAS: Final = 4_000
"""Measuring and compiling takes up to 25 µs a subschema, on the event loop: at most 100 ms."""

MAX_LOOKUPS: Final = 100_000
"""References times embedded `$id`s, for a reference may lead into each of them."""

MAX_PATTERNS: Final = 500
"""Different patterns in one schema; each has its own cache once it is used."""

MAX_PATTERN_SIZE: Final = 40_000
"""Positions in all patterns of a schema, see `PatternSize.units`: at most 80 ms to compile, and 10 MB."""

MAX_PATTERN_CACHE_BYTES: Final = 64 * 1024
"""What the engine may keep of each pattern while it searches; its default of 2 MB is not faster."""

MAX_CHECKS: Final = 50_000_000
"""Checks that one value may need: a second in the worst case, for which a schema and a value must be made."""

MAX_CHECKS_PER_PLACE: Final = MAX_CHECKS // 100
"""Checks that a schema may need at one place of a value; beyond that not even 100 places could be checked."""

FREE_CHECKS_PER_PLACE: Final = 60
"""Schemas up to this cost are used without counting the places of a value first."""

FREE_CHECKS_PER_CHARACTER: Final = 10
"""Patterns up to this cost are used without counting the characters of a value first."""

MAX_PROBLEM_STEPS: Final = 10_000
"""Steps in which the reasons for a refusal are sought, of a few microseconds each; a costly check is several."""

MAX_PROBLEM_SECONDS: Final = 0.03
"""Processor time after which the search ends in any case, as a step may be an expensive one."""

MAX_PROBLEMS: Final = 100
"""Problems reported of one value."""

MAX_PROBLEMS_BYTES: Final = 16 * 1024
"""What the reported problems of one value may have together."""

MAX_BLAMED_BYTES: Final = 16 * 1024
"""A larger schema that is invalid is refused without the place: the engine copies the schema at every level."""


Schema = dict[str, Any]

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
IN_PLACE: Final = frozenset(
    ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
)  # fmt: skip
"""Keywords whose subschemas are applied to the same value."""
ONE_MEMBER: Final = frozenset(("properties", "additionalProperties"))
EACH_MEMBER: Final = frozenset(("patternProperties", "unevaluatedProperties", "propertyNames"))
ONE_ITEM: Final = frozenset(("items", "prefixItems", "additionalItems"))
EACH_ITEM: Final = frozenset(("contains", "unevaluatedItems"))
_APPLIED: Final = IN_PLACE | ONE_MEMBER | EACH_MEMBER | ONE_ITEM | EACH_ITEM
_MAPS: Final = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)  # fmt: skip
_SCHEMAS: Final = _APPLIED | _MAPS | {"contentSchema"}
_NOTED: Final = frozenset(
    (*REFERENCES, "$anchor", "$dynamicAnchor", "$id", "id", "pattern", "patternProperties")
)  # fmt: skip
_OLD_DRAFTS: Final = ("draft-04", "draft-06", "draft-07")
_DIALECTS: Final = ("https://json-schema.org/draft", "http://json-schema.org/draft")
"""Prefix of the schemas that are built into the engine."""


class SchemaGraph:
    """The subschemas of a schema, whose number, depth and patterns are within the limits, or a `DefinitionError`."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.patterns: dict[str, PatternSize] = {}
        self.pointers: dict[int, str] = {}
        """The location of each subschema, by its identity."""
        self.applied: dict[int, list[tuple[str, Schema]]] = {}
        """What each subschema applies to a value or to what is in it, with the keywords, by its identity."""
        self.unresolved: str | None = None
        """A reference that does not resolve here; the engine may resolve it."""
        self._count = self._pattern_size = 0
        self._anchors: dict[str, list[Schema]] = {}
        self._resources = [root]
        self._targets: dict[str, list[Any]] = {}
        waiting = [("", root)]
        while waiting:
            pointer, top = waiting.pop()
            if id(top) in self.pointers:  # several references lead here
                continue
            new = [one for one in dict.fromkeys(self._collect(pointer, top)) if one not in self._targets]
            if len(self._resources) * (len(self._targets) + len(new)) > MAX_LOOKUPS:
                raise DefinitionError(
                    f"invalid JSON Schema: its references and embedded `$id`s have more than {MAX_LOOKUPS} combinations"
                )
            for reference in new:
                self._targets[reference] = self._resolve(reference)
                # A pointer may also lead to what stands under an unknown keyword.
                pointer = unquote(reference.partition("#")[2])
                waiting += [(pointer, one) for one in self._targets[reference] if isinstance(one, dict)]

    @property
    def ignores_siblings(self) -> bool:
        """Whether `$ref` disables its sibling keywords, as in the dialects up to draft 7."""
        return any(draft in str(self.root.get("$schema")) for draft in _OLD_DRAFTS)

    @property
    def is_one_resource(self) -> bool:
        """Whether every reference is relative to the root, because no subschema has an `$id`."""
        return len(self._resources) == 1

    def targets(self, schema: Schema) -> Sequence[Any]:
        """The targets of a subschema's references, one schema or flag each unless there are several `$id`s."""
        if schema.keys().isdisjoint(REFERENCES):
            return ()
        written = [schema[keyword] for keyword in REFERENCES if keyword in schema]
        return [one for reference in written if isinstance(reference, str) for one in self._targets[reference]]

    def definitions(self) -> dict[int, Schema]:
        """The schema itself and everything that is referred to, by identity."""
        found = [one for targets in self._targets.values() for one in targets if isinstance(one, dict)]
        return {id(one): one for one in (self.root, *found)}

    def _collect(self, pointer: str, top: Schema) -> list[str]:
        """Add a schema with all its subschemas, and return its references."""
        references: list[str] = []
        waiting = [(1, pointer, top)]
        while waiting:
            depth, pointer, schema = waiting.pop()
            if depth > MAX_DEPTH:
                raise DefinitionError(f"invalid JSON Schema: nested deeper than {MAX_DEPTH} levels")
            self._count += 1
            if self._count > MAX_SUBSCHEMAS:
                raise DefinitionError(f"invalid JSON Schema: more than {MAX_SUBSCHEMAS} subschemas")
            self.pointers[id(schema)] = pointer
            if not schema.keys().isdisjoint(_NOTED):
                self._note(schema)
                references += [one for keyword in REFERENCES if isinstance(one := schema.get(keyword), str)]
            applied: list[tuple[str, Schema]] = []
            for keyword, value in schema.items():
                if keyword in _SCHEMAS:
                    inner = subschemas(keyword, value)
                    start = f"{pointer}/{keyword}"
                    waiting += [(depth + 1, f"{start}{_step(key)}", child) for key, child in inner]
                    if keyword in _APPLIED:
                        applied += [(keyword, child) for _, child in inner]
            self.applied[id(schema)] = applied
        return references

    def _note(self, schema: Schema) -> None:
        for keyword in ("$anchor", "$dynamicAnchor", "$id", "id"):
            name = schema.get(keyword)
            if not isinstance(name, str):
                continue
            if keyword in ("$anchor", "$dynamicAnchor") or name.startswith("#"):
                self._anchors.setdefault(name.removeprefix("#"), []).append(schema)
            elif schema is not self.root:
                self._resources.append(schema)
        patterns = schema.get("patternProperties")
        for pattern in (schema.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
            if isinstance(pattern, str) and pattern not in self.patterns:
                self._add_pattern(pattern)

    def _add_pattern(self, pattern: str) -> None:
        if len(self.patterns) == MAX_PATTERNS:
            raise DefinitionError(f"invalid JSON Schema: more than {MAX_PATTERNS} patterns")
        size = measure_pattern(pattern) if len(pattern) <= MAX_PATTERN_SIZE else PatternSize(len(pattern), 0)
        self.patterns[pattern] = size
        self._pattern_size += max(size.units, len(pattern))
        if self._pattern_size > MAX_PATTERN_SIZE:
            raise DefinitionError(
                f"invalid JSON Schema: its patterns have more than {MAX_PATTERN_SIZE} positions, counting repetitions"
            )

    def _resolve(self, reference: str) -> list[Any]:
        place, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            found: list[Any] = list(self._anchors.get(fragment, ()))
        else:
            named = [one for one in self._resources if not place or "$id" in one or "id" in one]
            found = [one for resource in named for one in resolve_pointer(resource, fragment)]
        ids = (str(one.get(keyword)) for one in self._resources for keyword in ("$id", "id"))
        if place.startswith(_DIALECTS) and not any(one.startswith(_DIALECTS) for one in ids):
            return []
        if not found:
            self.unresolved = reference
        return [one for one in found if isinstance(one, dict | bool)]


def subschemas(keyword: str, value: Any) -> Sequence[tuple[str | int | None, Schema]]:
    """The subschemas that a keyword holds, without `true` and `false`, each with its key; None if it is only one."""
    if keyword in _MAPS:
        parts: Iterable[tuple[str | int | None, Any]] = value.items() if isinstance(value, dict) else ()
    elif isinstance(value, dict):
        return ((None, value),)
    else:
        parts = enumerate(value) if isinstance(value, list | tuple) else ()
    return [(key, part) for key, part in parts if isinstance(part, dict)]


def _step(key: str | int | None) -> str:
    return "" if key is None else f"/{str(key).replace('~', '~0').replace('/', '~1')}"


def follow_reference(schema: Schema, root: Schema) -> Schema | None:
    """The schema that the `$ref` of a schema leads to within its document; None if there is no such schema."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return next((one for one in resolve_pointer(root, unquote(reference[1:])) if isinstance(one, dict)), None)


def resolve_pointer(document: Any, pointer: str) -> list[Any]:
    """The target of a JSON pointer in a document: one value or none."""
    value = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list | tuple) and key.isdecimal() and len(key) < 7 and int(key) < len(value):
            value = value[int(key)]
        else:
            return []
    return [value]
