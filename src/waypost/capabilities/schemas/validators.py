"""Checks JSON values against raw JSON Schemas, in time linear in the value and without touching the network."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

import msgspec

from waypost.capabilities.schemas.problems import clipped, message, problem, problems
from waypost.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import jsonschema_rs

MAX_DEPTH = 64
MAX_SUBSCHEMAS = 10_000
MAX_PROBLEMS = 100
# Collecting every error costs about 12 µs an error; a larger value is answered with its first error only.
MAX_REPORTED_NODES = 10_000

_SCHEMA_MAPS = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
_SCHEMAS = frozenset(
    (
        "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if",
        "items", "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    )
)  # fmt: skip


class Validator:
    """A compiled JSON Schema, 2020-12 unless its `$schema` says otherwise."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        _ = self._compiled

    @classmethod
    def deferred(cls, schema: dict[str, Any]) -> Self:
        """For schemas that Waypost derived itself: compiled when first asked."""
        validator = cls.__new__(cls)
        validator.schema = schema
        return validator

    @cached_property
    def _compiled(self) -> jsonschema_rs.Validator:
        _check_bounds(self.schema)
        return _compiled(_text(self.schema))

    def is_valid(self, value: Any) -> bool:
        """Whether the value fits; where the schema looks, a value that JSON cannot express does not."""
        try:
            return self._compiled.is_valid(value)
        except ValueError:
            return False

    def problems(self, value: Any) -> list[str]:
        """Every problem as `<path>: <message>`, in a stable order; empty when the value fits."""
        try:
            errors = self._errors(value)
        except ValueError as error:
            return [f"is not a JSON value: {clipped(str(error))}"]
        lines = list(dict.fromkeys(line for error in errors for line in problems(error)))
        if len(lines) > MAX_PROBLEMS:
            lines[MAX_PROBLEMS:] = [f"and {len(lines) - MAX_PROBLEMS} more problems"]
        return lines

    def _errors(self, value: Any) -> list[jsonschema_rs.ValidationError]:
        if not _is_large(value):
            return list(self._compiled.iter_errors(value))
        import jsonschema_rs

        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


@lru_cache(maxsize=1024)
def _compiled(text: str) -> jsonschema_rs.Validator:
    # Loading the engine takes 40 ms, which a hub without raw schemas need not spend.
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            json.loads(text),
            formats=_FORMATS,
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            retriever=_refuse_to_fetch,
        )
    except jsonschema_rs.ValidationError as error:
        raise DefinitionError(f"invalid JSON Schema: {_blame(error)}") from None
    except ValueError as error:
        raise DefinitionError(f"invalid JSON Schema: {error}") from None


def _text(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DefinitionError(f"invalid JSON Schema: not expressible in JSON: {error}") from None


def _blame(error: jsonschema_rs.ValidationError) -> str:
    if error.kind.name == "format" and error.kind.value == "regex":
        return problem(error.instance_path, f"{message(error)} (look-around and back-references are not supported)")
    if error.instance_path:
        return "; ".join(problems(error))
    return error.message


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"the external reference {uri} is not followed")


def _check_bounds(schema: dict[str, Any]) -> None:
    count = 0
    waiting = [(1, schema)]
    while waiting:
        depth, current = waiting.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise DefinitionError(f"invalid JSON Schema: nested deeper than {MAX_DEPTH} levels")
        if count > MAX_SUBSCHEMAS:
            raise DefinitionError(f"invalid JSON Schema: more than {MAX_SUBSCHEMAS} subschemas")
        waiting.extend((depth + 1, child) for child in _subschemas(current))


def _subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for keyword, value in schema.items():
        if keyword in _SCHEMA_MAPS and isinstance(value, dict):
            yield from (child for child in value.values() if isinstance(child, dict))
        elif keyword in _SCHEMAS:
            yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, dict))


def _is_large(value: Any) -> bool:
    count = 0
    waiting = [value]
    while waiting and count <= MAX_REPORTED_NODES:
        current = waiting.pop()
        if isinstance(current, dict | list):
            count += len(current)
            if count <= MAX_REPORTED_NODES:
                waiting.extend(current.values() if isinstance(current, dict) else current)
    return count > MAX_REPORTED_NODES


def _parses_as(kind: type[date] | type[time]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return False
        return True

    return check


# Checked by the parser that later reads them, so that a valid date always parses; the UTC offset may be left out.
_FORMATS = {"date": _parses_as(date), "time": _parses_as(time), "date-time": _parses_as(datetime)}
