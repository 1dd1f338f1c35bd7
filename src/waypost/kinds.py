"""Kinds of executors and guards: open unions of models that packages above the configuration register.

`Transition.executor` and its like are annotated with a marker class instead of a union, since only `waypost.workflows`
knows the kinds. Reading a file, converting data (`convert`) and the JSON Schema look the models up here. A kind that
is registered later is known from then on.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec import Struct

from waypost.errors import DefinitionError

_T = TypeVar("_T")
_PLACE: Final = re.compile(r" - at `\$([^`]*)`")


class ExecutorModel:
    """Marks a struct that is the YAML form of an executor."""

    __slots__ = ()

    idempotent: bool
    idempotency_key: bool | str


class GuardModel:
    """Marks a struct that is the YAML form of a guard."""

    __slots__ = ()


class Kinds:
    """The models of one marker by their tag, and their kinds."""

    def __init__(self, marker: type, noun: str, provider: str) -> None:
        self.marker = marker
        self.noun = noun
        self._provider = provider
        """The module that registers the built-in kinds; imported when a model is first looked up."""
        self._models: dict[str, type[Struct]] = {}
        self.by_model: dict[type, Any] = {}

    def add(self, kind: Any) -> None:
        """Register a kind under the tag of its model; a tag that is taken is a `ValueError`."""
        model: type[Struct] = kind.model
        tag = model.__struct_config__.tag
        if not isinstance(tag, str) or not issubclass(model, self.marker):
            raise TypeError(f"{model.__name__} has no tag, or is not marked as {self.marker.__name__}")
        if tag in self._models:
            raise ValueError(f"There is a kind {tag!r} already: {self._models[tag].__name__}.")
        self._models[tag], self.by_model[model] = model, kind

    def remove(self, kind: Any) -> None:
        """Forget a kind that was registered."""
        if self.by_model.pop(kind.model, None) is not None:
            del self._models[kind.model.__struct_config__.tag]

    def kind_of(self, model: Any) -> Any:
        """The kind of a model; raises `DefinitionError` if it is not registered."""
        kind = self.by_model.get(type(model))
        if kind is None:
            raise DefinitionError(f"{type(model).__name__} is not a registered kind of {self.noun}")
        return kind

    @property
    def models(self) -> dict[str, type[Struct]]:
        """The registered models by tag."""
        if self._provider:
            provider, self._provider = self._provider, ""
            importlib.import_module(provider)
        return self._models

    def convert(self, data: Any) -> Any:
        """The model of plain data; a `ValueError` names what does not fit."""
        if isinstance(data, self.marker):
            return data
        if not isinstance(data, dict):
            raise ValueError(f"Expected `object`, got `{_JSON_TYPES.get(type(data), 'str')}`")
        if "kind" not in data:
            raise ValueError("Object missing required field `kind`")
        model = self.models.get(data["kind"]) if isinstance(data["kind"], str) else None
        if model is None:
            raise ValueError(f"Invalid value {data['kind']!r} - at `$.kind`")
        try:
            return msgspec.convert(data, model, dec_hook=_convert_marked)
        except msgspec.ValidationError as error:
            # Only to a plain ValueError does msgspec append the place around this model.
            raise ValueError(str(error)) from None


_JSON_TYPES: Final = {type(None): "null", bool: "bool", int: "int", float: "float", list: "array"}

# The configuration decodes executors and guards without knowing their package, which is imported for the first of them.
EXECUTORS: Final = Kinds(ExecutorModel, "executor", "waypost.workflows.executors")
GUARDS: Final = Kinds(GuardModel, "guard", "waypost.workflows.guards")
BY_MARKER: Final[dict[Any, Kinds]] = {kinds.marker: kinds for kinds in (EXECUTORS, GUARDS)}


def convert(data: Any, type: type[_T]) -> _T:
    """`msgspec.convert` for models with executors and guards in them; raises `msgspec.ValidationError`."""
    try:
        return msgspec.convert(data, type, dec_hook=_convert_marked)
    except msgspec.ValidationError as error:
        places = _PLACE.findall(str(error))
        if len(places) < 2:
            raise
        # msgspec appends a place for every level of markers, innermost first.
        message = f"{_PLACE.sub('', str(error))} - at `${''.join(reversed(places))}`"
        raise msgspec.ValidationError(message) from None


_WORDS: Final = {
    "str": "text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "object": "a mapping",
    "array": "a list",
}
_TYPES: Final = re.compile(r"`([a-z| ]+)`")


def name_types(sentence: str) -> str:
    """An error text of msgspec with its types in words: `an integer` for `int`."""
    return _TYPES.sub(lambda it: " or ".join(_WORDS.get(name, f"`{name}`") for name in it[1].split(" | ")), sentence)


def _convert_marked(marker: type, data: Any) -> Any:
    kinds = BY_MARKER.get(marker)
    if kinds is None:
        raise NotImplementedError(f"{marker} is not the marker of a kind")
    return kinds.convert(data)


def nested_in(model: Any, marker: type) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The models of a marker directly inside of a model, each with the key it stands under."""
    kind: Any = type(model)
    for name, key in nesting_fields(kind, marker).items():
        value = getattr(model, name)
        if isinstance(value, list):
            yield from (((key, index), one) for index, one in enumerate(value))
        elif value is not None:
            yield (key,), value


@cache
def nesting_fields(model: type[Struct], marker: type) -> dict[str, str]:
    """The fields of a model that hold models of a marker, each with its key."""
    return {one.name: one.encode_name for one in msgspec.structs.fields(model) if _mentions(one.type, marker)}


def _mentions(annotation: Any, marker: type) -> bool:
    return annotation is marker or any(_mentions(part, marker) for part in get_args(annotation))
