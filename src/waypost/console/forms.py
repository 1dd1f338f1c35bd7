"""Forms made of a JSON schema: one field for each property, and the arguments that a person typed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from waypost.errors import WaypostError

MAX_FIELDS: Final = 60
PREFIX: Final = "arg."
"""Before the names of fields, so that no property is confused with a field of the console."""
WHOLE: Final = "arguments"
"""The field with all arguments as JSON, for a schema that has no properties to make fields of."""
Input = Literal["text", "number", "integer", "boolean", "choice", "json"]


class InvalidForm(WaypostError):
    """What was typed is not a value of the field's type."""


class Field(msgspec.Struct, frozen=True):
    """One field of a form."""

    name: str
    label: str
    input: Input
    value: str = ""
    is_required: bool = False
    description: str = ""
    choices: tuple[str, ...] = ()
    is_long: bool = False


def make_fields(schema: Any, form: Mapping[str, str] | None = None) -> list[Field]:
    """The fields for the properties of an object schema, with what was typed before or the defaults."""
    typed = form or {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not properties or len(properties) > MAX_FIELDS:
        return [Field(WHOLE, "Arguments", "json", typed.get(WHOLE, "{}"), description="A JSON object.", is_long=True)]
    needed = schema.get("required") or ()
    return [_make_field(name, one, name in needed, typed) for name, one in properties.items()]


def _make_field(name: str, schema: Any, is_required: bool, typed: Mapping[str, str]) -> Field:
    schema = schema if isinstance(schema, dict) else {}
    kind, default = _input_of(schema), schema.get("default")
    given = typed.get(PREFIX + name)
    if given is None:
        given = "" if default is None else default if isinstance(default, str) else json.dumps(default)
    return Field(
        PREFIX + name,
        str(schema.get("title") or name),
        kind,
        given,
        is_required,
        str(schema.get("description") or ""),
        tuple(one if isinstance(one, str) else json.dumps(one) for one in schema.get("enum") or ()),
        kind == "json" or schema.get("maxLength", 0) > 200,
    )


def _input_of(schema: dict[str, Any]) -> Input:
    if schema.get("enum"):
        return "choice"
    kind = schema.get("type")
    if kind == "string":
        return "text"
    if kind in ("integer", "number", "boolean"):
        return kind  # type: ignore[no-any-return]
    return "json"


def read_arguments(schema: Any, form: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that a form sent; what was left empty is left out. Raises `InvalidForm` with the field's name."""
    fields = make_fields(schema)
    if fields and fields[0].name == WHOLE:
        found = _read_json(WHOLE, form.get(WHOLE) or "{}")
        if not isinstance(found, dict):
            raise InvalidForm("Arguments: a JSON object is needed, such as {}.")
        return found
    return {
        field.name.removeprefix(PREFIX): _read_value(field, form[field.name])
        for field in fields
        if form.get(field.name, "") != ""
    }


def _read_value(field: Field, text: str) -> Any:
    if field.input == "text" or (field.input == "choice" and text in field.choices and not _is_json(text)):
        return text
    if field.input == "boolean":
        return text == "true"
    return _read_json(field.label, text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _read_json(label: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidForm(f"{label}: {text[:80]!r} is not JSON: {error}.") from None
