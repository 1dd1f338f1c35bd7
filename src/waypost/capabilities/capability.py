"""`Capability`: a tool, prompt, resource or resource template, as the registry holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.context import Handler
from waypost.capabilities.options import Metadata, with_category
from waypost.capabilities.schemas.forms import OPEN, Arguments
from waypost.errors import DefinitionError
from waypost.wire.definitions import Definition

if TYPE_CHECKING:
    from waypost.capabilities.resources import UriTemplate
    from waypost.capabilities.schemas.fields import Fields
    from waypost.capabilities.schemas.validators import Validator

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


class McpFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Features of the protocol that only some kinds of capabilities have."""

    task: str = "forbidden"
    """Whether a tool may, must or must not be called as a task."""
    headers: tuple[HeaderParameter, ...] = ()
    template: UriTemplate | None = None
    subscribable: bool = False
    choices: Mapping[str, tuple[str, ...]] = {}
    """The values to complete arguments of prompts and templates with."""
    completer: Handler | None = None
    """Completes the values of an argument that are not declared in `choices`."""


_NO_METADATA: Final = Metadata()
_NO_FEATURES: Final = McpFeatures()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Capability:
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

    def with_overrides(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        category: str | None = None,
        hidden: bool | None = None,
    ) -> Capability:
        """This capability with the changes that its registration asks for."""
        changes: dict[str, Any] = {}
        if name is not None:
            changes["name"] = name
        if description is not None:
            changes["description"] = description
        if category is not None:
            changes["meta"] = with_category(self.definition.meta, category)
        return replace(
            self,
            id=name if name is not None and self.kind in (Kind.TOOL, Kind.PROMPT) else self.id,
            definition=msgspec.structs.replace(self.definition, **changes),
            metadata=msgspec.structs.replace(
                self.metadata,
                category=self.metadata.category if category is None else category,
                hidden=self.metadata.hidden if hidden is None else hidden,
            ),
        )


class HeaderParameter(msgspec.Struct, frozen=True):
    """An argument, by its path, that clients repeat in an `Mcp-Param-*` header, which must agree with it."""

    header: str
    path: tuple[str, ...]
    type: str


def read_header_parameters(schema: dict[str, Any]) -> tuple[HeaderParameter, ...]:
    """The header parameters of an input schema; a misplaced or malformed one is a `DefinitionError`."""
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
