"""The three ways to write a schema, behind one interface: data form, raw JSON Schema, JSON text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import msgspec

from waypost.capabilities.schemas.graph import MAX_DEPTH
from waypost.capabilities.schemas.problems import location
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvalidArguments
from waypost.suggestions import did_you_mean

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


# Names of fields; None stands for the items of an array.
Path = tuple[str | None, ...]

_COMMON = ("type", "title", "description")
_MEMBER = ("required", "default")


class Fields(msgspec.Struct, frozen=True):
    """A parsed data form; `cast` takes arguments that fit the schema."""

    schema: dict[str, Any]
    cast: Callable[[dict[str, Any]], dict[str, Any]]


class _Shape(NamedTuple):
    schema: dict[str, Any]
    cast: Cast | None = None


def parse(spec: object) -> Fields:
    """Converts a data form to its JSON Schema and cast plan, or raises an error."""
    schema, cast = _record((), spec)
    assert cast is not None
    return Fields(schema, cast)


def _record(path: Path, spec: object) -> _Shape:
    if not isinstance(spec, Mapping):
        fail(path, "expected a map from field names to types")
    properties, required, members = {}, [], []
    for name, given in spec.items():
        if not isinstance(name, str):
            fail(path, f"field names must be strings, not {name!r}")
        options = checked((*path, name), given)
        shape = _shape((*path, name), options)
        properties[name] = shape.schema
        if options.get("required"):
            required.append(name)
        members.append(Member(name, shape.cast, _fallback((*path, name), shape, options)))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return _Shape(schema, to_record(members))


def _fallback(path: Path, shape: _Shape, options: dict[str, Any]) -> Callable[[], Any] | None:
    if options.get("default") is None:
        return None
    try:
        default = msgspec.to_builtins(options["default"], str_keys=True)
    except (TypeError, RecursionError) as error:
        fail(path, f"the default has no JSON form: {error}")
    if problems := Validator(shape.schema).problems(default):
        fail(path, f"the default does not fit: {'; '.join(problems)}")
    shape.schema["default"] = default
    return fallback(default if shape.cast is None else shape.cast(default))


def _shape(path: Path, options: dict[str, Any]) -> _Shape:
    schema, cast = TYPES[options["type"]][0](path, options)
    schema |= {key: options[key] for key in options if key in ("title", "description")}
    return _Shape(schema, cast)


def _plain(path: Path, options: dict[str, Any]) -> _Shape:
    schema = {"type": options["type"]}
    schema |= {keyword: options[option] for option, keyword in _KEYWORDS.items() if option in options}
    return _Shape(schema, to_integer if options["type"] == "integer" else None)


def _array(path: Path, options: dict[str, Any]) -> _Shape:
    bounds = {keyword: options[option] for option, keyword in _ARRAY_KEYWORDS.items() if option in options}
    if not options.keys() & {"items", "fields", "values"}:
        return _Shape({"type": "array"} | bounds)
    item = _shape((*path, None), _item_options(path, options))
    schema = {"type": "array", "items": item.schema} | bounds
    return _Shape(schema, None if item.cast is None else to_list(item.cast))


def _item_options(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    items = options.get("items")
    moved = {option: options[option] for option in ("fields", "values") if option in options}
    if moved and not isinstance(items, str):
        fail(path, f"{' and '.join(moved)} must stand inside items")
    return checked((*path, None), moved | {"type": items} if moved else items)


def _enum(path: Path, options: dict[str, Any]) -> _Shape:
    given = options.get("values")
    if isinstance(given, type) and issubclass(given, Enum):
        return _Shape(_enum_schema(path, [member.value for member in given]), to_member(given))
    return _Shape(_enum_schema(path, given))


def _enum_schema(path: Path, values: object) -> dict[str, Any]:
    if not isinstance(values, list | tuple) or not values or not all(map(_is_scalar, values)):
        fail(path, "an enum needs values: a non-empty list of strings, numbers, booleans or None, or an Enum class")
    types = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values))
    if "number" in types and "integer" in types:
        types.remove("integer")
    return {"type": types[0] if len(types) == 1 else types, "enum": list(values)}


def _is_scalar(value: object) -> bool:
    return type(value) in _TYPE_NAMES and not (isinstance(value, float) and not isfinite(value))


def _object(path: Path, options: dict[str, Any]) -> _Shape:
    if "fields" not in options:
        fail(path, "an object needs fields: a map from field names to types")
    return _record(path, options["fields"])


def _dated(format: str, cast: Cast) -> Callable[[Path, dict[str, Any]], _Shape]:
    return lambda path, options: _Shape({"type": "string", "format": format}, cast)


_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

_KEYWORDS = {
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "format": "format",
    "min": "minimum",
    "max": "maximum",
}
_ARRAY_KEYWORDS = {"min": "minItems", "max": "maxItems"}

TYPES: dict[str, tuple[Callable[[Path, dict[str, Any]], _Shape], tuple[str, ...]]] = {
    "string": (_plain, ("min_length", "max_length", "pattern", "format")),
    "integer": (_plain, ("min", "max")),
    "number": (_plain, ("min", "max")),
    "boolean": (_plain, ()),
    "enum": (_enum, ("values",)),
    "object": (_object, ("fields",)),
    "array": (_array, ("items", "fields", "values", "min", "max")),
    "any": (lambda path, options: _Shape({}), ()),
    "date": (_dated("date", to_date), ()),
    "time": (_dated("time", to_time), ()),
    "datetime": (_dated("date-time", to_datetime), ()),
}
"""How each type is built, and the options that it takes beside the common ones."""


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
    allowed = (*_COMMON, *(() if path[-1] is None else _MEMBER), *TYPES[kind][1])
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
    """A raw JSON Schema: arguments are validated and delivered unchanged, after `defaults` for those left out."""

    cast_plan = None

    def __init__(self, schema: dict[str, Any], **defaults: Any) -> None:
        if schema.get("type", "object") != "object":
            raise DefinitionError(f'the root type of an input schema must be "object", not {schema["type"]!r}')
        self.schema = schema = schema if "type" in schema else {"type": "object", **schema}
        self._validator = Validator(schema)
        self._defaults = defaults

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._defaults:
            arguments = self._defaults | arguments
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
    try:
        if validator.check(arguments):
            return
    except ValueError:  # JSON cannot express them, or it takes too long to check them: `problems` says which
        pass
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
