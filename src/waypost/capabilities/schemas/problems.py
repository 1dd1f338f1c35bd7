"""What is wrong with a value, in short sentences that a model can act on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jsonschema_rs import ValidationError

ECHO = 80

_BROKEN: dict[str, Callable[[Any, str], str]] = {
    "type": lambda types, got: f"must be of type {' or '.join(sorted(types, key='null'.__eq__))}, got {got}",
    "enum": lambda options, got: f"must be one of {clipped(', '.join(map(shown, options)))}, got {got}",
    "const": lambda expected, _: f"must be {shown(expected)}",
    "minimum": lambda limit, got: f"must be at least {limit}, got {got}",
    "maximum": lambda limit, got: f"must be at most {limit}, got {got}",
    "exclusiveMinimum": lambda limit, got: f"must be greater than {limit}, got {got}",
    "exclusiveMaximum": lambda limit, got: f"must be less than {limit}, got {got}",
    "multipleOf": lambda factor, got: f"must be a multiple of {factor}, got {got}",
    "minLength": lambda limit, _: f"must have at least {counted(limit, 'character')}",
    "maxLength": lambda limit, _: f"must have at most {counted(limit, 'character')}",
    "minItems": lambda limit, _: f"must have at least {counted(limit, 'item')}",
    "maxItems": lambda limit, _: f"must have at most {counted(limit, 'item')}",
    "minProperties": lambda limit, _: f"must have at least {counted(limit, 'property', 'properties')}",
    "maxProperties": lambda limit, _: f"must have at most {counted(limit, 'property', 'properties')}",
    "pattern": lambda pattern, got: f"must match the pattern {clipped(pattern)}, got {got}",
    "format": lambda name, got: f"must be a valid {name}, got {got}",
    "uniqueItems": lambda _, __: "must not hold an item twice",
    "contains": lambda _, __: "must contain a fitting item",
    "propertyNames": lambda error, _: f"has a property name that does not fit: {message(error)}",
    "not": lambda _, __: "has a form that is not allowed",
    "falseSchema": lambda _, __: "is not allowed",
}


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 item`, `2 items`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def clipped(text: str) -> str:
    """The text, cut where it would drown the message."""
    return text if len(text) <= ECHO else text[: ECHO - 3] + "..."


def shown(value: Any) -> str:
    """A value as short JSON text; large containers are only named."""
    if isinstance(value, dict) and len(value) > ECHO:
        return f"an object of {counted(len(value), 'property', 'properties')}"
    if isinstance(value, list) and len(value) > ECHO:
        return f"an array of {counted(len(value), 'item')}"
    if isinstance(value, str):
        value = value[:ECHO]
    return clipped(json.dumps(value, ensure_ascii=False, default=str))


def location(path: Sequence[str | int | None]) -> str:
    """A path as people write it: `address.street`, `rows[0].id`, `headers["x.y"]`; None is any item, `rows[].id`."""
    written = ""
    for part in path:
        if part is None or isinstance(part, int):
            written += f"[{'' if part is None else part}]"
        elif part.replace("_", "a").replace("-", "a").replace("$", "a").isalnum():
            written += f".{clipped(part)}"
        else:
            written += f"[{shown(part)}]"
    return written.removeprefix(".")


def problem(path: Sequence[str | int], text: str) -> str:
    """One line: where, and what."""
    return f"{location(path)}: {text}" if path else text


def message(error: ValidationError) -> str:
    """What one broken keyword asks for, without its place."""
    describe = _BROKEN.get(error.kind.name)
    if describe is None:
        return clipped(error.message)
    return describe(error.kind.value, shown(error.instance))


def problems(error: ValidationError) -> list[str]:
    """The lines that report an error; a missing or surplus property is reported at its own place."""
    keyword, path = error.kind.name, error.instance_path
    if keyword == "required":
        return [problem([*path, error.kind.value], "is required")]
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        return [problem([*path, name], "is not allowed") for name in error.kind.value]
    if keyword in ("anyOf", "oneOf"):
        return _alternatives(path, error.kind.value, error.instance)
    return [problem(path, message(error))]


def _alternatives(path: list[str | int], branches: list[list[ValidationError]], instance: Any) -> list[str]:
    if not all(branches):
        return [problem(path, "fits more than one of the allowed forms")]
    near = [branch for branch in branches if not _of_another_type(branch, path)]
    if len(near) == 1:
        return [line for error in near[0] for line in problems(error)]
    if near:
        return [problem(path, f"fits none of the allowed forms, got {shown(instance)}")]
    types = dict.fromkeys(name for branch in branches for error in branch[:1] for name in error.kind.value)
    return [problem(path, _BROKEN["type"](types, shown(instance)))]


def _of_another_type(branch: list[ValidationError], path: list[str | int]) -> bool:
    return branch[0].kind.name == "type" and branch[0].instance_path == path
