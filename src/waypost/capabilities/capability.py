"""Capabilities: a tool, prompt, resource or resource template as the registry holds it, and the names they can have."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from waypost.capabilities.context import Caller, Handler
from waypost.capabilities.schemas.forms import OPEN, Arguments
from waypost.errors import DefinitionError, UnknownResource
from waypost.suggestions import did_you_mean
from waypost.wire.definitions import Definition, Icon, ToolAnnotations

if TYPE_CHECKING:
    from waypost.capabilities.resources import UriTemplate
    from waypost.capabilities.schemas.forms import Fields
    from waypost.capabilities.schemas.validators import Validator


_WIRE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_PORTABLE: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_PORTABLE: Final = re.compile(r"[^a-zA-Z0-9_-]")
# Clients put the name of the server before that of a tool, and some model APIs take 64 characters in all.
_SHORTENED_LENGTH: Final = 48

PORTABLE_CLIENTS: Final = frozenset(
    {
        "Anthropic/ClaudeAI",
        "claude-ai",
        "claude-code",
        "cursor-vscode",
        "opencode",
    }
)
"""Clients, by `clientInfo.name`, that refuse or confuse canonical names.

Two were seen by `make interop`: Claude Code and opencode replace characters and then offer one of two tools whose
names have become equal; opencode also sends long names, which its model's API refuses. The others are reported to
refuse a name with a dot: Claude Desktop and claude.ai, then without any tool of the server, and Cursor without that
tool.
"""


def snake_case(class_name: str) -> str:
    """`GetWeather` as `get_weather`, `HTTPServer` as `http_server`."""
    return _WORD_START.sub("_", class_name).lower()


def is_wire_name(name: str) -> bool:
    """Whether a name is valid in MCP."""
    return _WIRE_NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """The name itself; `DefinitionError` when it is not valid in MCP."""
    if isinstance(name, str) and is_wire_name(name):
        return name
    raise DefinitionError(f"The name {name!r} is not usable: take 1 to 128 of the characters A-Z a-z 0-9 _ . : / -.")


def is_portable(name: str) -> bool:
    """Whether every model API accepts `name` unchanged."""
    return _PORTABLE.fullmatch(name) is not None


def to_portable(name: str) -> str:
    """`name` in characters that every model API accepts; the same name always gives the same result."""
    if is_portable(name):
        return name
    # Of a long name only the beginning is kept, and a worker may offer very many of them.
    start = name[: _SHORTENED_LENGTH + 1]
    spelled = start.lower() if " " in name else start
    plain = _NOT_PORTABLE.sub("_", spelled.replace(":", "__"))
    return plain if len(plain) <= _SHORTENED_LENGTH else disambiguate(name, plain)


def disambiguate(name: str, taken: str, attempt: int = 0) -> str:
    """A portable name for `name` when another tool has `taken`; a different one for each attempt."""
    digest = hashlib.sha256(f"{name}{attempt or ''}".encode()).hexdigest()[:8]
    return f"{taken[: _SHORTENED_LENGTH - 9]}_{digest}"


def needs_portable_names(client: str) -> bool:
    """Whether a client, by the name it gives itself, gets portable names; `mcp-remote` adds its own to that name."""
    return client.partition(" (via ")[0] in PORTABLE_CLIENTS


def fold_name(name: str) -> str:
    """How a name looks at a glance: two names with one result can be mistaken for each other."""
    if name.isascii():
        return name.casefold()
    # Twice: folding the case can undo the normal form.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


GATEWAY_TOOLS: Final = frozenset(
    {
        *("gateway.describe", "gateway.home", "gateway.search"),
        *("workflow.explain", "workflow.get", "workflow.start", "workflow.submit"),
    }
)
"""The names of the seven tools of the gateway."""


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
        return default if self.category is UNSET else self.category  # None: it has none, though its toolkit has one


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
            raise DefinitionError(f"unknown option {key!r}{hint}", subject=subject)
    try:
        options = msgspec.convert({**given}, kind)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"{_wrong_value(given, error)}.", subject=subject) from None
    if options.name is not UNSET:
        check_name(options.name)
    if options.timeout is not None and not options.timeout > 0:
        raise DefinitionError(f"timeout must be more than 0 seconds, not {options.timeout}.", subject=subject)
    # Looked at here, because one definition that clients cannot read would hide the whole list from them.
    try:
        msgspec.json.encode(options.meta)
    except (TypeError, ValueError, RecursionError) as error:
        raise DefinitionError(f"meta cannot be sent as JSON: {error}.", subject=subject) from None
    return options if options.icons is None else replace(options, icons=wire_icons(options.icons, subject))


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
_WIRE_HINTS: Final = frozenset(_HINTS.values())


def wire_annotations(annotations: Mapping[str, Any] | None, subject: str) -> dict[str, Any] | UnsetType:
    """Annotations as they go over the wire: snake_case names are translated, wire names pass."""
    if annotations is None:
        return UNSET
    translated = {}
    for key, value in annotations.items():
        if key not in _HINTS and key == key.lower():
            hint = did_you_mean(key, _HINTS, ", ") or "."
            raise DefinitionError(f"unknown annotation {key!r}{hint}", subject=subject)
        wire = _HINTS.get(key, key)
        if not is_readable_hint(wire, value):
            expected = "text" if wire == "title" else "True or False"
            raise DefinitionError(f"the annotation {key} must be {expected}, not {value!r}.", subject=subject)
        translated[wire] = value
    return translated


def is_readable_hint(wire: str, value: object) -> bool:
    """Whether clients can read an annotation; many discard a whole list of tools for one that they cannot."""
    return wire not in _WIRE_HINTS or isinstance(value, str if wire == "title" else bool)


def wire_icons(icons: Iterable[Any], subject: str) -> list[dict[str, Any]]:
    """Icons as they go over the wire; an ill-typed one is a `DefinitionError`."""
    translated: list[dict[str, Any]] = []
    for icon in icons:
        given: Any = (
            {_ICON_KEYS.get(key, key): value for key, value in icon.items()} if isinstance(icon, Mapping) else icon
        )
        if not is_readable_icon(given):
            form = "{'src': URL, 'mimeType': text, 'sizes': list of texts, 'theme': 'light' or 'dark'}"
            raise DefinitionError(f"an icon is a dict {form}, not {icon!r}.", subject=subject)
        translated.append(given)
    return translated


def is_readable_icon(icon: object) -> bool:
    """Whether clients can read an icon; many discard a whole list of definitions for one that they cannot."""
    try:
        msgspec.convert(icon, Icon)
    except msgspec.ValidationError:
        return False
    return True


_ICON_KEYS: Final[Mapping[Any, Any]] = dict(zip(Icon.__struct_fields__, Icon.__struct_encode_fields__, strict=True))


def name_in_errors(subject: str, action: Callable[[], Any]) -> Any:
    """Run `action`, naming `subject` in any definition error."""
    try:
        return action()
    except DefinitionError as error:
        if error.subject == subject:
            raise
        raise DefinitionError(error.message, subject=subject) from None


KEYWORD: Final = "x-mcp-header"
_WORD: Final = KEYWORD.encode()
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TYPES: Final = ("string", "integer", "boolean")
_NAMED_SCHEMAS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


class Kind(Enum):
    """The four lists a client can ask for; the value is the list's name."""

    TOOL = "tools"
    PROMPT = "prompts"
    RESOURCE = "resources"
    TEMPLATE = "resource_templates"


class Priority(IntEnum):
    """Where a row comes from, which decides who has a name that two rows want.

    `HUB` takes a name from any other and gives it back when it goes. The others never take one that is in use.
    """

    WORKER = 0
    """Functions of workers, and what workers publish."""
    IMPORT = 1
    """What upstream servers offer; its names are not under the operator's control."""
    HUB = 2
    """What a program, the configuration or skills bring."""


Unknown = Callable[[str, Caller], Awaitable[UnknownResource]]


class McpFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Features of the protocol that only some kinds of capabilities have."""

    task: str = "forbidden"
    """Whether a tool may, must or must not be called as a task."""
    headers: tuple[HeaderParameter, ...] = ()
    template: UriTemplate | None = None
    subscribable: bool = False
    unknown: Unknown | None = None
    """The error of a template for a URI at which there is nothing; without one, what is hidden has no reason."""
    choices: Mapping[str, tuple[str, ...]] = {}
    """The values to complete arguments of prompts and templates with."""
    completer: Handler | None = None
    """Completes the values of an argument that are not declared in `choices`."""


_NO_METADATA: Final = Metadata()
_NO_FEATURES: Final = McpFeatures()


# Compared and hashed by identity: it is a key of caches, and may be replaced by one that is equal to it.
class Capability(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """A tool, prompt, resource or resource template, ready to run.

    What the pipeline reads for every call is an attribute of its own; what only lists, the search or the protocol read
    is grouped in `metadata` and `mcp`.
    """

    kind: Kind
    id: str
    definition: Definition
    handler: Handler
    is_async: bool
    arguments: Arguments = OPEN
    output: Validator | None = None
    returns: type | None = None
    owner: str | None = None
    timeout: float | None = None
    scopes: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    metadata: Metadata = _NO_METADATA
    mcp: McpFeatures = _NO_FEATURES
    priority: Priority = Priority.HUB

    def is_open_to(self, scopes: Iterable[str]) -> bool:
        """Whether a principal with these scopes may see and use it."""
        return not self.scopes or set(self.scopes) <= set(scopes)

    @property
    def cast_plan(self) -> Fields | None:
        """How arguments are converted; `None` if they are passed on unchanged."""
        return self.arguments.cast_plan

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema that structured results are checked against."""
        return None if self.output is None else self.output.schema


class HeaderParameter(msgspec.Struct, frozen=True):
    """An argument, by its path, that clients repeat in an `Mcp-Param-*` header, which must agree with it."""

    header: str
    path: tuple[str, ...]
    type: str


def read_header_parameters(schema: dict[str, Any]) -> tuple[HeaderParameter, ...]:
    """The header parameters of an input schema; a misplaced or malformed one is a `DefinitionError`."""
    # Nearly no schema has any, and every tool is asked when it is registered.
    if not _may_contain_keyword(schema) or next(_find_all(schema), None) is None:
        return ()
    found = list(_find_reachable(schema, ()))
    if len(found) != sum(1 for _ in _find_all(schema)):
        raise DefinitionError(
            f"{KEYWORD} is at a place that no client can reach: only properties of objects may have it."
        )
    names = [parameter.header for parameter in found]
    if len(set(names)) != len(names):
        raise DefinitionError(f"{KEYWORD} names must be unique, whatever their case.")
    return tuple(found)


def _may_contain_keyword(schema: Any) -> bool:
    """Search the JSON text of a schema, which costs less than walking through it."""
    try:
        return _WORD in msgspec.json.encode(schema)
    except TypeError:
        return True


def _find_all(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        for item in schema:
            yield from _find_all(item)
    if not isinstance(schema, dict):
        return
    if KEYWORD in schema:
        yield schema[KEYWORD]
    for keyword, value in schema.items():
        if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            yield from _find_all(list(value.values()))
        else:
            yield from _find_all(value)


def _find_reachable(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[HeaderParameter]:
    for name, part in schema.get("properties", {}).items():
        if not isinstance(part, dict):
            continue
        if KEYWORD in part:
            yield _to_parameter(part, (*path, name))
        yield from _find_reachable(part, (*path, name))


def _to_parameter(part: dict[str, Any], path: tuple[str, ...]) -> HeaderParameter:
    header, kind = part[KEYWORD], part.get("type")
    place = ".".join(path)
    if not isinstance(header, str) or not _TOKEN.fullmatch(header):
        raise DefinitionError(f"{place}: {KEYWORD} must be an HTTP token, not {header!r}.")
    if kind not in _TYPES:
        raise DefinitionError(f"{place}: {KEYWORD} needs the type string, integer or boolean, not {kind!r}.")
    return HeaderParameter(header.lower(), path, kind)
