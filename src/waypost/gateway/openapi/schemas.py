"""Schemas of an OpenAPI document as JSON Schema: only words that JSON Schema has, and references kept local.

What a schema refers to stands beside it, under `$defs`, once; so one that contains itself stays small.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from waypost.errors import DefinitionError

MAX_VALUES: Final = 5_000
"""How much one operation may bring along."""
MAX_DEPTH: Final = 40
MAX_HOPS: Final = 10
Data = dict[str, Any]

_AS_THEY_ARE: Final = frozenset(
    (
        "type", "enum", "const", "default", "title", "description", "format", "multipleOf", "maximum", "minimum",
        "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems",
        "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties", "required", "examples",
        "deprecated", "dependentRequired", "contentEncoding", "contentMediaType",
    )
)  # fmt: skip
_ONE: Final = frozenset(
    (
        "additionalProperties", "items", "not", "contains", "propertyNames", "if", "then", "else",
        "unevaluatedItems", "unevaluatedProperties",
    )
)  # fmt: skip
_SEVERAL: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))
_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def mapping(value: Any, what: str) -> Data:
    """A mapping out of a document; anything else is a `DefinitionError`."""
    if not isinstance(value, dict):
        raise DefinitionError(f"{what} is not a mapping")
    return value


def followed(document: Data, value: Any, what: str) -> Data:
    """What stands at the end of a value's references."""
    for _ in range(MAX_HOPS):
        found = mapping(value, what)
        reference = found.get("$ref")
        if reference is None:
            return found
        value = pointed(document, reference)
    raise DefinitionError(f"{what} refers to itself, or from one reference to the next without an end")


def pointed(document: Data, reference: Any) -> Any:
    """What a reference inside of the document points to."""
    if not isinstance(reference, str):
        raise DefinitionError("a reference is not text")
    if not reference.startswith("#/"):
        raise DefinitionError(f"the reference {reference[:100]!r} leads out of the document, and is not followed")
    value: Any = document
    for part in reference[2:].split("/")[:50]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdecimal() and len(key) < 6 and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            raise DefinitionError(f"the reference {reference[:100]!r} leads nowhere")
    return value


class Schemas:
    """Turns the schemas of one operation into JSON Schema."""

    def __init__(self, document: Data, *, patterns: bool = True) -> None:
        self._document = document
        self._is_old = str(document.get("openapi")).startswith("3.0")
        self._patterns = patterns
        self._names: dict[str, str] = {}
        self._waiting: list[str] = []
        self._count = 0

    def convert(self, schema: Any) -> Any:
        """A schema; what it refers to is given by `definitions` afterwards."""
        return self._schema(schema, 0)

    def definitions(self) -> Data:
        """Everything the schemas so far refer to, by name."""
        made: Data = {}
        while self._waiting:
            reference = self._waiting.pop()
            made[self._names[reference]] = self._schema(pointed(self._document, reference), 0)
        return made

    def _grow(self, depth: int) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise DefinitionError(f"its schema holds more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise DefinitionError("its schema is nested too deeply")

    def _schema(self, schema: Any, depth: int) -> Any:
        self._grow(depth)
        if isinstance(schema, bool):
            return schema
        found = mapping(schema, "a schema")
        made: Data = {}
        if "$ref" in found:
            made["$ref"] = self._reference(found["$ref"])
            if self._is_old:
                return made
        for word, value in found.items():
            if word in _AS_THEY_ARE:
                made[word] = self._value(value, depth + 1)
            elif word in _ONE:
                made[word] = self._schema(value, depth + 1)
            elif word in _SEVERAL:
                made[word] = [self._schema(item, depth + 1) for item in _listed(value, word)]
            elif word in _NAMED:
                named = mapping(value, f"`{word}`")
                made[word] = {name: self._schema(item, depth + 1) for name, item in named.items()}
        self._adjust(found, made)
        return made

    def _adjust(self, found: Data, made: Data) -> None:
        if not self._patterns:
            made.pop("pattern", None)
            made.pop("patternProperties", None)
        read_only = _read_only(found.get("properties"))
        required = made.pop("required", None)
        if isinstance(required, list):  # many write `required: true` at a property, which says nothing
            made["required"] = [name for name in required if name not in read_only]
        _modernise(found, made)

    def _reference(self, reference: Any) -> str:
        if reference not in self._names if isinstance(reference, str) else True:
            pointed(self._document, reference)
            plain = base = _ODD.sub("_", reference.rpartition("/")[2])[:60] or "schema"
            taken, number = set(self._names.values()), 2
            while plain in taken:
                plain, number = f"{base}_{number}", number + 1
            self._names[reference] = plain
            self._waiting.append(reference)
        return f"#/$defs/{self._names[reference]}"

    def _value(self, value: Any, depth: int) -> Any:
        """A copy of plain data, counted: an alias of YAML may stand for far more than it seems."""
        self._grow(depth)
        if isinstance(value, dict):
            return {name: self._value(item, depth + 1) for name, item in value.items()}
        return [self._value(item, depth + 1) for item in value] if isinstance(value, list) else value


def _listed(value: Any, word: str) -> list[Any]:
    if not isinstance(value, list):
        raise DefinitionError(f"`{word}` of a schema is not a list")
    return value


def _read_only(properties: Any) -> list[str]:
    """Properties that only answers have; nobody can be asked for them."""
    if not isinstance(properties, dict):
        return []
    return [name for name, one in properties.items() if isinstance(one, dict) and one.get("readOnly") is True]


def _modernise(found: Data, made: Data) -> None:
    """What OpenAPI 3.0 says in words of its own, which are also found in documents of 3.1."""
    for word, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(word), bool):
            is_exclusive = made.pop(word)
            if is_exclusive and limit in made:
                made[word] = made.pop(limit)
    if found.get("nullable") is not True:
        return
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    if isinstance(made.get("enum"), list) and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
