"""The three ways to write a schema, behind one interface: data form, raw JSON Schema, JSON text."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from waypost.capabilities.schemas.fields import Fields, parse
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvalidArguments

_RAW_KEYS = frozenset(("properties", "oneOf", "anyOf", "allOf"))


class Arguments(Protocol):
    """What a capability takes: a schema to publish and a way to admit arguments."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema to publish; its root type is object."""

    @property
    def cast_plan(self) -> Fields | None:
        """The data form's fields; None where arguments are not cast by fields."""

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validates and converts; raises `InvalidArguments` with every problem."""


class OpenForm:
    """Accepts any arguments unchanged."""

    cast_plan = None

    def __init__(self) -> None:
        self.schema: dict[str, Any] = {"type": "object"}

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments


class RawForm:
    """A raw JSON Schema: arguments are validated and delivered unchanged."""

    cast_plan = None

    def __init__(self, schema: dict[str, Any]) -> None:
        if schema.get("type", "object") != "object":
            raise DefinitionError(f'the root type of an input schema must be "object", not {schema["type"]!r}')
        self.schema = schema = schema if "type" in schema else {"type": "object", **schema}
        self._validator = Validator(schema)

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        require(self._validator, arguments)
        return arguments


class DataForm:
    """Fields: arguments are validated, cast, and freed of undeclared names."""

    def __init__(self, fields: Fields) -> None:
        self.schema = fields.schema
        self.cast_plan = fields
        self._validator = Validator.deferred(fields.schema)

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        require(self._validator, arguments)
        return self.cast_plan.cast(arguments)


OPEN: Arguments = OpenForm()


def require(validator: Validator, arguments: dict[str, Any]) -> None:
    """Raises `InvalidArguments` unless the arguments fit."""
    if not validator.is_valid(arguments):
        raise InvalidArguments(validator.problems(arguments))


def declared(spec: object, *, raw: bool) -> Arguments:
    """Reads an input written in any form; `raw` excludes the data form."""
    schema = _raw_schema(spec, raw=raw)
    return DataForm(parse(spec)) if schema is None else RawForm(schema)


def output(spec: object, *, raw: bool) -> Validator:
    """Reads an output schema written in any form; `raw` excludes the data form."""
    schema = _raw_schema(spec, raw=raw)
    return Validator.deferred(parse(spec).schema) if schema is None else Validator(schema)


def _raw_schema(spec: object, *, raw: bool) -> dict[str, Any] | None:
    if isinstance(spec, str):
        return _decoded(spec)
    if isinstance(spec, dict):
        return spec if raw or is_raw(spec) else None
    expected = "a schema map or JSON text" if raw else "a field spec, a schema map or JSON text"
    raise DefinitionError(f"expected {expected}, not {type(spec).__name__}")


def is_raw(spec: dict[Any, Any]) -> bool:
    """Whether a mapping is raw JSON Schema rather than the data form."""
    return spec.get("type") == "object" or any(
        key in _RAW_KEYS or (isinstance(key, str) and key.startswith("$")) for key in spec
    )


def _decoded(text: str) -> dict[str, Any]:
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise DefinitionError(f"malformed JSON text: {str(error).removeprefix('JSON is malformed: ')}") from None
    if not isinstance(schema, dict):
        raise DefinitionError("JSON text must decode to an object")
    return schema
