"""The formats of payloads and answers, by the type hints of a handler."""

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

Convert: TypeAlias = Callable[[Any], Any]
_OPEN: Final = (Any, object, dict, Mapping)


def read_type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function; none where they cannot be resolved."""
    try:
        return typing.get_type_hints(hints.underlying(function), include_extras=True)
    except (NameError, TypeError, SyntaxError):
        return {}


def request_format(annotation: Any) -> dict[str, Any] | None:
    """The schema of a payload, if its type says more than that it is an object."""
    if _is_open(annotation):
        return None
    if hints.needs_pydantic([annotation]):
        from waypost.capabilities.schemas import models

        return models.describe(annotation, mode="validation")
    found = returns(annotation)
    if found is None:
        return _channel_schema(annotation)
    return None if found.wrapped else found.schema


def response_format(annotation: Any) -> dict[str, Any] | None:
    """The schema of an answer, if its type says one."""
    if _is_open(annotation) or annotation is type(None):
        return None
    found = returns(annotation)
    if found is None or not found.wrapped:
        return None if found is None else found.schema
    definitions = {key: found.schema[key] for key in ("$defs",) if key in found.schema}
    return {**found.schema["properties"]["result"], **definitions}


def build_converter(annotation: Any) -> Convert | None:
    """Converts a payload to its type; `None` where the payload is used as it is."""
    if _is_open(annotation):
        return None
    if hints.needs_pydantic([annotation]):
        import pydantic

        validate = pydantic.TypeAdapter(annotation).validate_python
        return _checked(validate, pydantic.ValidationError)
    if returns(annotation) is None and _channel_schema(annotation) is None:
        return None
    return _checked(lambda payload: with_defaults(msgspec.convert(payload, annotation)), msgspec.ValidationError)


def _channel_schema(annotation: Any) -> dict[str, Any] | None:
    """The schema of a payload that has ends of channels in it; `None` for any other."""
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


def _checked(convert: Convert, wrong: type[Exception]) -> Convert:
    def converted(payload: Any) -> Any:
        try:
            return convert({} if payload is None else payload)
        except wrong as error:
            raise InvocationFailed(f"The payload does not fit: {error}") from None

    return converted


def _is_open(annotation: Any) -> bool:
    return annotation in _OPEN or get_origin(annotation) in _OPEN
