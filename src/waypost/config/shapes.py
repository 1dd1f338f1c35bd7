"""Reading the type annotations of the models."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields

from waypost.kinds import BY_MARKER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waypost.config.nodes import Node

Annotation: TypeAlias = Any
"""A type as it stands in an annotation; Python has no static type for these."""


def members(annotation: Annotation) -> Iterator[Annotation]:
    """The types an annotation allows, without their constraints."""
    origin = _origin(annotation)
    if origin is Annotated:
        yield from members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from members(member)
    elif annotation in BY_MARKER:
        yield from BY_MARKER[annotation].models.values()
    else:
        yield annotation


def model(annotation: Annotation, entries: dict[str, Node]) -> type[Struct] | None:
    """The struct a mapping is meant for; among several, the one its tag names."""
    found = [m for m in members(annotation) if isinstance(m, type) and issubclass(m, Struct)]
    if len(found) <= 1:
        return found[0] if found else None
    for candidate in found:
        config = candidate.__struct_config__
        tag = entries.get(config.tag_field) if config.tag_field else None
        if tag is not None and isinstance(tag.value, str) and snake_case(tag.value) == config.tag:
            return candidate
    fitting = [candidate for candidate in found if _is_meant(candidate, entries)]
    return fitting[0] if len(fitting) == 1 else None


def _is_meant(candidate: type[Struct], entries: dict[str, Node]) -> bool:
    """Whether a mapping without a tag has all keys that a struct cannot do without."""
    required = {field.encode_name for field in fields(candidate) if field.required}
    return bool(required) and required <= set(entries) and candidate.__struct_config__.tag_field not in entries


def tags(annotation: Annotation) -> dict[str, str]:
    """The tags that tell the structs of an annotation apart, each with the key it stands under."""
    configs = [m.__struct_config__ for m in members(annotation) if isinstance(m, type) and issubclass(m, Struct)]
    return {str(config.tag): config.tag_field for config in configs if config.tag_field}


def snake_case(text: str) -> str:
    """The tag as it is spelled in the models."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in text)


def item(annotation: Annotation) -> Annotation | None:
    """The annotation of a list's items."""
    arguments = _arguments(annotation, list)
    return arguments[0] if arguments else None


def entry(annotation: Annotation) -> tuple[Annotation, Annotation] | None:
    """The annotations of a mapping's keys and values."""
    arguments = _arguments(annotation, dict)
    return (arguments[0], arguments[1]) if arguments else None


def empty(annotation: Annotation) -> dict[str, Node] | list[Node] | None:
    """What a key without a value stands for, where a section or list is meant."""
    if model(annotation, {}) is not None or entry(annotation) is not None:
        return {}
    return [] if item(annotation) is not None else None


def choices(annotation: Annotation) -> list[str]:
    """The words an annotation allows."""
    return [str(word) for m in members(annotation) if _origin(m) is Literal for word in get_args(m)]


def path_kind(annotation: Annotation) -> str | None:
    """How a text that names a file is written: the `path` its `Meta` carries."""
    return _extra(annotation, "path")


def form(annotation: Annotation) -> str | None:
    """What a text with a pattern looks like, for people: the `form` its `Meta` carries."""
    return _extra(annotation, "form")


def _extra(annotation: Annotation, key: str) -> str | None:
    origin = _origin(annotation)
    if origin in (Union, UnionType):
        return next((found for m in get_args(annotation) if (found := _extra(m, key))), None)
    if origin is not Annotated:
        return None
    inner, *notes = get_args(annotation)
    carried = (note.extra[key] for note in notes if isinstance(note, Meta) and note.extra and key in note.extra)
    return next(carried, None) or _extra(inner, key)


def _arguments(annotation: Annotation, origin: type) -> tuple[Annotation, ...] | None:
    return next((get_args(m) for m in members(annotation) if _origin(m) is origin), None)


def _origin(annotation: Annotation) -> Any:
    return get_origin(annotation)
