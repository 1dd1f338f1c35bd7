"""Forms for people: which schemas a client can show, what older clients understand, and whether an answer fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waypost.capabilities.schemas.fields import parse
from waypost.capabilities.schemas.forms import is_raw
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import InvalidAnswer, SchemaNotAllowed
from waypost.wire.versions import V2025_11_25, at_least

_COMMON: Final = frozenset({"type", "title", "description", "default"})
_ALLOWED: Final = {
    "string": _COMMON | {"minLength", "maxLength", "format", "pattern", "enum", "enumNames", "oneOf"},
    "number": _COMMON | {"minimum", "maximum"},
    "integer": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"items", "minItems", "maxItems"},
}
_FORMATS: Final = ("email", "uri", "date", "date-time")
_ROOT: Final = frozenset({"type", "properties", "required", "title", "description", "$schema"})


class ElicitationAnswer(msgspec.Struct, frozen=True):
    """What the person did: accept with the content of the form, decline, or cancel."""

    action: str
    content: dict[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        """Whether the person agreed."""
        return self.action == "accept"


def form(schema: Any) -> dict[str, Any]:
    """The schema of a form, written raw or in the data form; what no client can show is `SchemaNotAllowed`."""
    if not isinstance(schema, dict):
        raise SchemaNotAllowed("The schema of a form must be a mapping.")
    raw: dict[str, Any] = schema if is_raw(schema) or isinstance(schema.get("type"), str) else parse(schema).schema
    if raw.get("type") != "object" or not isinstance(raw.get("properties"), dict):
        raise SchemaNotAllowed('The schema of a form must be {"type": "object", "properties": {...}}.')
    _only(raw, _ROOT, "the form")
    for name, part in raw["properties"].items():
        _check_property(name, part)
    required = raw.get("required", [])
    if (required and not _are_texts(required)) or not isinstance(required, list):
        raise SchemaNotAllowed("What a form requires must be a list of its properties.")
    for name in required:
        if name not in raw["properties"]:
            raise SchemaNotAllowed(f"The form requires {name!r}, which is not among its properties.")
    return raw


def _check_property(name: str, part: Any) -> None:
    kind = part.get("type", "string" if "enum" in part else None) if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _ALLOWED:
        raise SchemaNotAllowed(f"{name}: a form field is a string, number, integer, boolean or a choice of strings.")
    _only(part, _ALLOWED[kind], name)
    if part.get("format", "email") not in _FORMATS:
        raise SchemaNotAllowed(f"{name}: the format must be one of {', '.join(_FORMATS)}, not {part['format']!r}.")
    if kind == "string":
        _check_choices(name, part)
    elif kind == "array":
        _check_multiple_choice(name, part.get("items"))


def _check_choices(name: str, part: Mapping[str, Any]) -> None:
    if "enum" in part and not _are_texts(part["enum"]):
        raise SchemaNotAllowed(f"{name}: the choices must be a list of strings.")
    if "enumNames" in part and not (
        _are_texts(part["enumNames"]) and len(part["enumNames"]) == len(part.get("enum", ()))
    ):
        raise SchemaNotAllowed(f"{name}: enumNames must name each of the choices.")
    if "oneOf" in part:
        _check_titled(name, part["oneOf"])


def _check_multiple_choice(name: str, items: Any) -> None:
    if isinstance(items, dict) and "anyOf" in items:
        _only(items, frozenset({"anyOf"}), name)
        _check_titled(name, items["anyOf"])
    elif not isinstance(items, dict) or items.get("type") != "string" or not _are_texts(items.get("enum")):
        raise SchemaNotAllowed(f"{name}: a list must be a choice of strings: items with enum or anyOf.")
    else:
        _only(items, frozenset({"type", "enum"}), name)


def _check_titled(name: str, options: Any) -> None:
    fine = isinstance(options, list) and bool(options)
    if not fine or any(not isinstance(option, dict) or set(option) != {"const", "title"} for option in options):
        raise SchemaNotAllowed(f"{name}: each titled choice needs exactly a const and a title.")
    if not all(_are_texts(list(option.values())) for option in options):
        raise SchemaNotAllowed(f"{name}: the const and title of a choice must be strings.")


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


def _only(part: Mapping[str, Any], allowed: frozenset[str], name: str) -> None:
    for key in part:
        if key not in allowed:
            raise SchemaNotAllowed(f"{name}: {key!r} is not allowed in a form.")


def for_version(schema: dict[str, Any], version: str) -> dict[str, Any]:
    """The form as a client of `version` can show it."""
    if at_least(version, V2025_11_25):
        return schema
    return schema | {"properties": {name: _older(name, part) for name, part in schema["properties"].items()}}


def _older(name: str, part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "array":
        raise SchemaNotAllowed(f"{name}: this client cannot show a choice of several; ask for one.")
    known = {key: value for key, value in part.items() if key != "oneOf"}
    if "oneOf" in part:
        known["enum"] = [option["const"] for option in part["oneOf"]]
        known["enumNames"] = [option["title"] for option in part["oneOf"]]
    if known.get("type") != "boolean":
        known.pop("default", None)
    return known


def answer(result: Any, schema: dict[str, Any] | None) -> ElicitationAnswer:
    """The person's answer: only one that accepts a form has content, and that fits the form or is `InvalidAnswer`."""
    try:
        given = msgspec.convert(result, ElicitationAnswer)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"The client's answer is malformed: {error}.") from None
    if given.action not in ("accept", "decline", "cancel"):
        raise InvalidAnswer(f"The client's answer has an unknown action: {given.action!r}.")
    if not given.accepted or schema is None:
        return ElicitationAnswer(given.action)
    problems = Validator.deferred(_closed(schema)).problems(given.content or {})
    if problems:
        raise InvalidAnswer(f"The answer does not fit the form: {'; '.join(problems)}.")
    return given


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: {key: value for key, value in part.items() if key != "enumNames"}
        for name, part in schema["properties"].items()
    }
    return schema | {"properties": properties, "additionalProperties": False}
