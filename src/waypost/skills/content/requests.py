"""What workers send, read field by field; a field that is missing or of another type is told as their SDK would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from waypost.skills.content.ports import Data
from waypost.skills.content.records import Argument
from waypost.skills.content.refusals import quoted, refused

REQUIRED: Final = object()
Read: TypeAlias = Callable[[Any], Any]


class Field(NamedTuple):
    """One field of a request: how it is read, and what it is where it is missing."""

    read: Read
    default: Any = REQUIRED


def fields(payload: Any, title: str, known: Mapping[str, Field]) -> Data:
    """The fields of a request; others are left alone."""
    if not isinstance(payload, dict):
        raise _unexpected(payload, f"struct {title}")
    given = {name: known[name].read(value) for name, value in payload.items() if name in known}
    for name, field in known.items():
        if name not in given:
            if field.default is REQUIRED:
                raise refused(f"missing field `{name}`")
            given[name] = field.default
    return given


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise _unexpected(value, "a string")
    return value


def optional(read: Read) -> Read:
    """The same, or null."""
    return lambda value: None if value is None else read(value)


def texts(value: Any) -> list[str]:
    """A list of strings."""
    return [text(item) for item in _sequence(value)]


def anything(value: Any) -> Any:
    """Whatever comes."""
    return value


def arguments(value: Any) -> list[Argument]:
    """The arguments of a prompt."""
    return [Argument(**fields(item, "PromptArgument", _ARGUMENT)) for item in _sequence(value)]


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unexpected(value, "a boolean")
    return value


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _unexpected(value, "a sequence")
    return value


_ARGUMENT: Final = {"name": Field(text), "description": Field(optional(text), None), "required": Field(_truth, False)}


def _unexpected(value: Any, expected: str) -> Exception:
    return refused(f"invalid type: {_told(value)}, expected {expected}")


def _told(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f"string {quoted(value)}"
        case list():
            return "sequence"
        case _:
            return "map"
