"""Which options each type of the data form takes, and the refusal of everything else."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

from waypost.capabilities.schemas.limits import MAX_DEPTH
from waypost.capabilities.schemas.problems import location
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

# Names of fields; None stands for the items of an array.
Path = tuple[str | None, ...]

TYPES: dict[str, tuple[str, ...]] = {
    "string": ("min_length", "max_length", "pattern", "format"),
    "integer": ("min", "max"),
    "number": ("min", "max"),
    "boolean": (),
    "enum": ("values",),
    "object": ("fields",),
    "array": ("items", "fields", "values", "min", "max"),
    "any": (),
    "date": (),
    "time": (),
    "datetime": (),
}
_COMMON = ("type", "title", "description")
_MEMBER = ("required", "default")


def fail(path: Path, sentence: str) -> NoReturn:
    """Refuses a field, naming it."""
    raise DefinitionError(f"{f'field {location(path)}' if path else 'field spec'}: {sentence}")


def checked(path: Path, given: object) -> dict[str, Any]:
    """The options of one field, written out and checked, but for what `items`, `fields` and `values` hold."""
    if len(path) > MAX_DEPTH:
        fail(path[:1], f"nested deeper than {MAX_DEPTH} levels")
    options = {"type": given} if isinstance(given, str) else given
    if not isinstance(options, Mapping):
        fail(path, f"expected a type name or a map of options, not {given!r}")
    if "type" not in options:
        fail(path, f"has no type; known types are {', '.join(TYPES)}")
    kind = options["type"]
    if not isinstance(kind, str) or kind not in TYPES:
        fail(path, f"unknown type {kind!r}{_hint(kind, TYPES)}; known types are {', '.join(TYPES)}")
    allowed = (*_COMMON, *(() if path[-1] is None else _MEMBER), *TYPES[kind])
    for option, value in options.items():
        if option not in allowed:
            fail(path, f"unknown option {option!r}{_hint(option, allowed)}; {kind} takes {', '.join(allowed)}")
        _check_value(path, kind, option, value)
    _check_order(path, options, "min", "max")
    _check_order(path, options, "min_length", "max_length")
    return dict(options)


def _hint(name: object, known: Iterable[str]) -> str:
    return did_you_mean(name, known, ", ") if isinstance(name, str) else ""


def _check_value(path: Path, kind: str, option: str, value: Any) -> None:
    if option in ("title", "description", "format", "pattern") and not isinstance(value, str):
        fail(path, f"{option} must be a string, not {value!r}")
    if option == "required" and not isinstance(value, bool):
        fail(path, f"required must be True or False, not {value!r}")
    if option in ("min", "max", "min_length", "max_length"):
        _check_bound(path, kind, option, value)
    if option == "pattern":
        _check_pattern(path, value)


def _check_bound(path: Path, kind: str, option: str, value: Any) -> None:
    if kind == "number":
        if type(value) not in (int, float) or not isfinite(value):
            fail(path, f"{option} must be a number, not {value!r}")
    elif type(value) is not int:
        fail(path, f"{option} must be an integer, not {value!r}")
    elif kind != "integer" and value < 0:
        fail(path, f"{option} must not be negative, got {value}")


def _check_pattern(path: Path, pattern: str) -> None:
    try:
        Validator({"pattern": pattern})
    except DefinitionError:
        fail(path, f"pattern {pattern!r} is no regular expression (look-around and back-references are not supported)")


def _check_order(path: Path, options: Mapping[str, Any], least: str, most: str) -> None:
    if least in options and most in options and options[least] > options[most]:
        fail(path, f"{least} {options[least]} is greater than {most} {options[most]}")
