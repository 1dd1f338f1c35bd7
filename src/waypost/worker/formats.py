"""What the type hints of a handler say about its payload and its answer."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, get_origin

import msgspec

from waypost.capabilities.schemas import hints
from waypost.capabilities.schemas.casts import with_defaults
from waypost.capabilities.schemas.signatures import returns
from waypost.errors import InvocationFailed
from waypost.worker.channels import ChannelReader, ChannelWriter

Read: TypeAlias = Callable[[Any], Any]
_OPEN: Final = (Any, object, dict, Mapping)


def known_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function; none where they cannot be resolved."""
    try:
        return typing.get_type_hints(hints.underlying(function), include_extras=True)
    except (NameError, TypeError, SyntaxError):
        return {}


def request_format(annotation: Any) -> dict[str, Any] | None:
    """The schema of a payload, where its type says more than that it is an object."""
    if _is_open(annotation):
        return None
    if hints.needs_pydantic([annotation]):
        from waypost.capabilities.schemas import models

        return models.describe(annotation, mode="validation")
    found = returns(annotation)
    if found is None:
        return _with_channels(annotation)
    return None if found.wrapped else found.schema


def response_format(annotation: Any) -> dict[str, Any] | None:
    """The schema of an answer, where its type says any."""
    if _is_open(annotation) or annotation is type(None):
        return None
    found = returns(annotation)
    if found is None or not found.wrapped:
        return None if found is None else found.schema
    definitions = {key: found.schema[key] for key in ("$defs",) if key in found.schema}
    return {**found.schema["properties"]["result"], **definitions}


def reader(annotation: Any) -> Read | None:
    """Makes a payload into what its type says; nothing where the payload will do as it came."""
    if _is_open(annotation):
        return None
    if hints.needs_pydantic([annotation]):
        import pydantic

        validate = pydantic.TypeAdapter(annotation).validate_python
        return _reading(validate, pydantic.ValidationError)
    if returns(annotation) is None and _with_channels(annotation) is None:
        return None
    return _reading(lambda payload: with_defaults(msgspec.convert(payload, annotation)), msgspec.ValidationError)


def _with_channels(annotation: Any) -> dict[str, Any] | None:
    """The schema of a payload with ends of channels in it; nothing for any other."""
    ends: list[type] = []

    def describe(kind: type) -> dict[str, Any]:
        if not issubclass(kind, ChannelReader | ChannelWriter):
            raise NotImplementedError
        ends.append(kind)
        return kind.schema()

    try:
        schema = msgspec.json.schema(annotation, schema_hook=describe)
    except (TypeError, ValueError, NameError, AttributeError, RuntimeError):
        return None
    return schema if ends else None


def _reading(read: Read, wrong: type[Exception]) -> Read:
    def checked(payload: Any) -> Any:
        try:
            return read({} if payload is None else payload)
        except wrong as error:
            raise InvocationFailed(f"The payload does not fit: {error}") from None

    return checked


def _is_open(annotation: Any) -> bool:
    return annotation in _OPEN or get_origin(annotation) in _OPEN
