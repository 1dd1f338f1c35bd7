"""A JSON Schema as a graph: its subschemas, and where its references lead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import unquote

from waypost.capabilities.schemas.limits import (
    MAX_DEPTH,
    MAX_LOOKUPS,
    MAX_PATTERN_SIZE,
    MAX_PATTERNS,
    MAX_SUBSCHEMAS,
)
from waypost.capabilities.schemas.patterns import PatternSize, measure_pattern
from waypost.errors import DefinitionError

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
            if id(top) in self.pointers:
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
            found = [one for resource in named for one in _pointed(resource, fragment)]
        if place.startswith(_DIALECTS) and not any(_is_dialect(one) for one in self._resources):
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


def _is_dialect(resource: Schema) -> bool:
    return any(str(resource.get(keyword)).startswith(_DIALECTS) for keyword in ("$id", "id"))


def _pointed(resource: Any, pointer: str) -> list[Any]:
    """The target of a JSON pointer in a resource: one value or none."""
    value = resource
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list | tuple) and key.isdecimal() and len(key) < 7 and int(key) < len(value):
            value = value[int(key)]
        else:
            return []
    return [value]
