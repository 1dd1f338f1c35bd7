"""The options that `@tool`, components and registrations share, checked where they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from waypost.capabilities.names import check_name
from waypost.errors import DefinitionError
from waypost.suggestions import did_you_mean
from waypost.wire.definitions import ToolAnnotations


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What describes a capability: lists, search and inspection read it, calls do not."""

    hidden: bool = False
    about: str = ""
    """Text for the search, where the definition does not say what it is about."""
    category: str | None = None
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    arity: int = 2
    """How many of the arguments and the context the function takes."""


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The options of any capability."""

    name: str | UnsetType = UNSET
    title: str | None = None
    description: str | None = None
    category: str | UnsetType | None = UNSET
    icons: list[Any] | None = None
    meta: dict[str, Any] | None = None
    hidden: bool | None = None
    visible: bool | None = None
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    timeout: float | None = None
    scopes: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()

    def definition(self, description: str | None, default_category: str | None = None) -> dict[str, Any]:
        """The fields of a wire definition that every kind has; options that are not given are left out."""
        return {
            "title": self.title or UNSET,
            "description": description or UNSET,
            "icons": UNSET if self.icons is None else self.icons,
            "meta": with_category(UNSET if self.meta is None else self.meta, self._category(default_category)),
        }

    def traits(self, arity: int, default_category: str | None = None) -> dict[str, Any]:
        """The fields of a `Capability` that follow from its options."""
        return {
            "metadata": Metadata(
                hidden=resolve_hidden(self.hidden, self.visible) is True,
                category=self._category(default_category),
                tags=self.tags,
                aliases=self.aliases,
                arity=arity,
            ),
            "timeout": self.timeout,
            "scopes": self.scopes,
            "permissions": self.permissions,
        }

    def _category(self, default: str | None) -> str | None:
        return default if self.category is UNSET else self.category


class ToolOptions(Options, frozen=True, kw_only=True):
    """The options of a tool."""

    input: Any = UNSET
    output: Any = UNSET
    input_schema: Any = UNSET
    output_schema: Any = UNSET
    annotations: dict[str, Any] | None = None
    task: Literal["forbidden", "optional", "required"] = "forbidden"


class ResourceOptions(Options, frozen=True, kw_only=True):
    """The options of a resource or a resource template."""

    uri: str | None = None
    uri_template: str | None = None
    mime_type: str | None = None
    size: int | None = None
    subscribable: bool = False
    annotations: dict[str, Any] | None = None


AnyOptions = TypeVar("AnyOptions", bound=Options)


def with_category(meta: dict[str, Any] | UnsetType, category: str | None) -> dict[str, Any] | UnsetType:
    """`_meta` with the category and its other keys."""
    return meta if category is None else {**(meta or {}), "category": category}


def resolve_hidden(hidden: bool | None, visible: bool | None) -> bool | None:
    """The value of `hidden`, or the inverse of `visible`; `None` when neither is given."""
    if hidden is not None:
        return hidden
    return None if visible is None else not visible


def parse_options(given: Mapping[str, Any], subject: str, kind: type[AnyOptions]) -> AnyOptions:
    """The options of `subject`; an unknown or ill-typed one is a `DefinitionError` that names it."""
    for key in given:
        if key not in kind.__struct_fields__:
            hint = did_you_mean(key, kind.__struct_fields__, ", ") or "."
            raise DefinitionError(f"{subject}: unknown option {key!r}{hint}")
    try:
        options = msgspec.convert({**given}, kind)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"{subject}: {_wrong_value(given, error)}.") from None
    if options.name is not UNSET:
        check_name(options.name)
    if options.timeout is not None and not options.timeout > 0:
        raise DefinitionError(f"{subject}: timeout must be more than 0 seconds, not {options.timeout}.")
    return options


def _wrong_value(given: Mapping[str, Any], error: msgspec.ValidationError) -> str:
    found = _WHERE.search(str(error))
    if found is None or found[1] not in _EXPECTED:
        return str(error)
    return f"{found[1]} must be {_EXPECTED[found[1]]}, not {given[found[1]]!r}"


_WHERE: Final = re.compile(r"`\$\.(\w+)")
_EXPECTED: Final = {
    **dict.fromkeys(("name", "title", "description", "category", "uri", "uri_template", "mime_type"), "text"),
    **dict.fromkeys(("tags", "aliases", "scopes", "permissions"), "a list of texts"),
    **dict.fromkeys(("meta", "annotations"), "a dict"),
    **dict.fromkeys(("hidden", "visible", "subscribable"), "True or False"),
    "icons": "a list of icons",
    "timeout": "a number of seconds",
    "size": "a number of bytes",
    "task": "'forbidden', 'optional' or 'required'",
}
"""What each option takes, for error messages."""

_HINTS: Final = dict(zip(ToolAnnotations.__struct_fields__, ToolAnnotations.__struct_encode_fields__, strict=True))


def wire_annotations(annotations: Mapping[str, Any] | None, subject: str) -> dict[str, Any] | UnsetType:
    """Annotations as they go over the wire: snake_case names are translated, wire names pass."""
    if annotations is None:
        return UNSET
    translated = {}
    for key, value in annotations.items():
        if key not in _HINTS and key == key.lower():
            hint = did_you_mean(key, _HINTS, ", ") or "."
            raise DefinitionError(f"{subject}: unknown annotation {key!r}{hint}")
        translated[_HINTS.get(key, key)] = value
    return translated


def name_in_errors(subject: str, action: Callable[[], Any]) -> Any:
    """Run `action`, naming `subject` in any definition error."""
    try:
        return action()
    except DefinitionError as error:
        if error.message.startswith(subject):
            raise
        raise DefinitionError(f"{subject}: {error.message}") from None
