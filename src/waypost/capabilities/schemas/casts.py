"""How validated JSON values become the Python values a handler receives."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import Enum

Cast = Callable[[Any], Any]

to_date: Cast = partial(msgspec.convert, type=date)
to_time: Cast = partial(msgspec.convert, type=time)
to_datetime: Cast = partial(msgspec.convert, type=datetime)


class Member(NamedTuple):
    """One declared name of an object; `cast` None delivers the value unchanged, `fallback` None means no default."""

    name: str
    cast: Cast | None
    fallback: Callable[[], Any] | None


def to_integer(value: Any) -> Any:
    """JSON Schema counts 1.0 as an integer; handlers should not have to."""
    return int(value) if isinstance(value, float) else value


def to_member(enum: type[Enum]) -> Cast:
    """Replaces a value by the enum's member."""
    return {member.value: member for member in enum}.__getitem__


def to_list(cast: Cast) -> Cast:
    """Casts every item."""
    return lambda values: [cast(value) for value in values]


def to_record(members: Sequence[Member]) -> Cast:
    """Keeps declared names only and fills in defaults for absent ones."""

    def cast(values: dict[str, Any]) -> dict[str, Any]:
        result = {}
        for name, convert, fallback in members:
            if name in values:
                result[name] = values[name] if convert is None else convert(values[name])
            elif fallback is not None:
                result[name] = fallback()
        return result

    return cast


def fallback(default: Any) -> Callable[[], Any]:
    """Hands out a default, a fresh copy each time."""
    return partial(deepcopy, default)


def with_defaults(value: Any) -> Any:
    """`value`, whose dataclasses hold the defaults that msgspec leaves on their class, where no encoder looks."""
    if isinstance(value, dict):
        inner: Any = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = value
    elif isinstance(value, msgspec.Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
    elif is_dataclass(value) and hasattr(value, "__dict__"):
        held = vars(value)
        inner = list(held.values())
        held.update({one.name: getattr(value, one.name) for one in fields(value) if one.name not in held})
    else:
        return value
    for part in inner:
        with_defaults(part)
    return value
