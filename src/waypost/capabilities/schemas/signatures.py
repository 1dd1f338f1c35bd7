"""Schemas from type hints: what parameters and fields take, and what a return annotation promises."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from contextlib import suppress
from copy import deepcopy
from dataclasses import is_dataclass
from functools import lru_cache, partial
from pathlib import PurePath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin

import msgspec

from waypost.capabilities.schemas.forms import with_defaults
from waypost.capabilities.schemas.problems import MAX_SENTENCE
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvalidArguments, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from waypost.capabilities.schemas.forms import Arguments


_PYDANTIC_PACKAGES = frozenset(("pydantic", "pydantic_core", "annotated_types"))


def parts(annotation: Any) -> Iterator[Any]:
    """Everything an annotation is made of: types, their arguments, the metadata of Annotated."""
    yield annotation
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    for argument in get_args(annotation):
        yield from parts(argument)


def text(annotation: Any) -> str | None:
    """The words in `Annotated[int, "words"]`."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((item for item in annotation.__metadata__ if isinstance(item, str)), None)


def needs_pydantic(annotations: Iterable[Any]) -> bool:
    """Whether only pydantic can read these; never so before the user has imported it."""
    return "pydantic" in sys.modules and any(_is_pydantic(part) for given in annotations for part in parts(given))


def _is_pydantic(part: Any) -> bool:
    if isinstance(part, type):
        return hasattr(part, "__get_pydantic_core_schema__") or hasattr(part, "__pydantic_validator__")
    return type(part).__module__.partition(".")[0] in _PYDANTIC_PACKAGES


def underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function that a partial or a callable object runs."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def resolved(function: Callable[..., Any], skip: frozenset[str]) -> dict[str, Any]:
    """The resolved type hints of the parameters that are not skipped."""
    parameters = inspect.signature(function).parameters.values()
    given = {p.name: p.annotation for p in parameters if p.name not in skip and p.annotation is not p.empty}
    namespace = getattr(inspect.unwrap(underlying(function)), "__globals__", {})
    try:
        # Not of the function itself, which would fail on an annotation that is left out here.
        return typing.get_type_hints(SimpleNamespace(__annotations__=given), namespace, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise DefinitionError(f"an annotation cannot be resolved at run time: {error}") from None


MISSING: Final[Any] = msgspec.NODEFAULT

_REMEMBERED: Final = 1024
_WRAPPED_TYPES = frozenset(("integer", "number", "boolean", "array"))
_UNDESCRIBED = (TypeError, ValueError, NameError, AttributeError, RuntimeError)


class TypedForm:
    """Arguments read by msgspec; the JSON Schema is used only to explain a refusal."""

    cast_plan = None

    def __init__(self, struct: type[msgspec.Struct], schema: dict[str, Any]) -> None:
        self.schema = schema
        self._struct = struct
        self._may_hold_records = "$defs" in schema
        self._validator = Validator.deferred(schema)

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The declared names with converted values and defaults."""
        try:
            admitted = msgspec.structs.asdict(msgspec.convert(arguments, self._struct, dec_hook=_decode))
        except msgspec.ValidationError as error:
            admitted = self._reconsider(arguments, error)
        return with_defaults(admitted) if self._may_hold_records else admitted

    def _reconsider(self, arguments: dict[str, Any], refusal: msgspec.ValidationError) -> dict[str, Any]:
        try:
            problems = self._validator.problems(arguments)
        except DefinitionError:  # a pattern that only Python's own engine reads
            raise InvalidArguments([_problem(refusal)]) from None
        if problems:
            raise InvalidArguments(problems)
        try:
            # What is left is 1.0 for an integer, or a refusal by the type's own code.
            return msgspec.structs.asdict(msgspec.convert(arguments, self._struct, strict=False, dec_hook=_decode))
        except msgspec.ValidationError as error:
            raise InvalidArguments([_problem(error)]) from None


class Returned(msgspec.Struct, frozen=True):
    """The schema of a result; `wrapped` if the value is under the key `result`."""

    schema: dict[str, Any]
    wrapped: bool


def from_fields(name: str, fields: Sequence[tuple[str, Any, Any]]) -> Arguments:
    """Arguments from (name, annotation, default or MISSING); words in an annotation are the description."""
    hinted = [part for _, annotation, default in fields for part in (annotation, default)]
    form = _modelled(name, fields) if needs_pydantic(hinted) else _typed(name, fields)
    properties = form.schema["properties"]
    for field, annotation, _ in fields:
        if field in properties and (words := text(annotation)):
            properties[field]["description"] = words
    return form


def from_function(function: Callable[..., Any], skip: frozenset[str] = frozenset()) -> Arguments:
    """Arguments from the parameters of a function, without those in `skip`; no annotation means anything goes."""
    name = getattr(function, "__name__", type(function).__name__)
    known = resolved(function, skip)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in skip]
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise DefinitionError(f"{name}: the parameter {parameter} cannot be given by name")
    fields = [(p.name, known.get(p.name, Any), MISSING if p.default is p.empty else p.default) for p in parameters]
    with suppress(TypeError, DefinitionError):  # what cannot be a key, or is wrong, is looked at under its own name
        # Defaults that are equal and not the same, such as 1 and True, are distinguished by their types.
        return _remembered(tuple((*field, type(field[2])) for field in fields))
    return from_fields(name, fields)


@lru_cache(_REMEMBERED)
def _remembered(fields: tuple[tuple[str, Any, Any, type], ...]) -> Arguments:
    """Arguments from fields; functions that take the same share them."""
    return from_fields("arguments", [field[:3] for field in fields])


def returns(annotation: Any, opaque: tuple[type, ...] = ()) -> Returned | None:
    """The output schema a return annotation promises, if any; an annotation that mentions an opaque type has none."""
    try:
        if any(part in opaque for part in parts(annotation)):
            return None
        if needs_pydantic([annotation]):
            from waypost.capabilities.schemas import models

            schema = models.describe(annotation, mode="serialization")
        else:
            schema = msgspec.json.schema(annotation)
    except _UNDESCRIBED:
        return None
    root = _inlined(schema)
    if "properties" in root:
        return Returned(root, wrapped=False)
    if not _is_wrapped(root, schema.get("$defs", {})):
        return None
    definitions = {key: schema[key] for key in ("$defs",) if key in schema}
    value = {key: schema[key] for key in schema if key != "$defs"}
    return Returned({"type": "object", "properties": {"result": value}, "required": ["result"], **definitions}, True)


def _typed(name: str, fields: Sequence[tuple[str, Any, Any]]) -> Arguments:
    try:
        struct = msgspec.defstruct(name, [_struct_field(*field) for field in fields], kw_only=True)
        schema = _inlined(msgspec.json.schema(struct, schema_hook=_describe))
    except _UNDESCRIBED as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise DefinitionError(f"{name}: {_blamed(fields)}{reason}") from None
    for field, _, default in fields:
        if default is not MISSING:
            _publish_default(schema["properties"][field], default)
    if not schema["required"]:
        del schema["required"]
    return TypedForm(struct, schema)


def _modelled(name: str, fields: Sequence[tuple[str, Any, Any]]) -> Arguments:
    from waypost.capabilities.schemas import models

    try:
        form = models.ModelForm(name, [(n, hint, models.REQUIRED if d is MISSING else d) for n, hint, d in fields])
    except _UNDESCRIBED as error:
        raise DefinitionError(f"{name}: pydantic cannot describe the parameters: {error}") from None
    form.schema = {"type": "object", "properties": {}} | _inlined(form.schema)
    return form


def _struct_field(name: str, annotation: Any, default: Any) -> Any:
    # msgspec has no schema for `object`.
    annotation = Any if annotation is object else annotation
    if default is MISSING:
        return name, annotation
    is_mutable = isinstance(default, (list, dict, set, msgspec.Struct)) or is_dataclass(default)
    # A copy for each call: a handler that changes its argument must not change the default of later calls.
    make = partial(deepcopy, default) if is_mutable else lambda: default
    return name, annotation, msgspec.field(default_factory=make)


def _publish_default(described: dict[str, Any], default: Any) -> None:
    try:
        described["default"] = msgspec.to_builtins(default, str_keys=True, enc_hook=_encode)
    except TypeError:
        described.pop("default", None)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The root schema itself instead of a reference to it, without its name; other definitions stay."""
    definitions = dict(schema.get("$defs", {}))
    root = {key: value for key, value in schema.items() if key not in ("$defs", "$ref")}
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        root = definitions[name] | root
        if not _mentions(definitions, schema["$ref"]):
            del definitions[name]
    root.pop("title", None)
    return root | {"$defs": definitions} if definitions else root


def _mentions(node: Any, reference: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == reference or any(_mentions(value, reference) for value in node.values())
    return isinstance(node, list) and any(_mentions(item, reference) for item in node)


def _is_wrapped(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    if "$ref" in schema:
        return _is_wrapped(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return all(_is_wrapped(branch, definitions) for branch in schema["anyOf"])
    if "enum" in schema:
        return all(isinstance(value, int | float) for value in schema["enum"])
    if schema.get("type") == "array" and "prefixItems" not in schema and schema.get("items", {}) == {}:
        return False  # what may hold anything may hold content blocks
    return schema.get("type") in _WRAPPED_TYPES


def _problem(error: msgspec.ValidationError) -> str:
    what, _, where = str(error).rpartition(" - at `$")
    where = where.removeprefix(".").removesuffix("`")
    return shorten(f"{where}: {what}" if what and where else what or str(error), MAX_SENTENCE)


def _blamed(fields: Sequence[tuple[str, Any, Any]]) -> str:
    for name, annotation, _ in fields:
        try:
            msgspec.json.schema(annotation, schema_hook=_describe)
        except _UNDESCRIBED:
            return f"the type of {name} cannot be described: "
    return ""


def _describe(kind: type) -> dict[str, Any]:
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError


def _decode(kind: type, value: Any) -> Any:
    return kind(value)


def _encode(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError
