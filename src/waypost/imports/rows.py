"""Rows of the registry for what upstream servers list, and their URI templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import (
    Capability,
    HeaderParameter,
    Kind,
    McpFeatures,
    Priority,
    read_header_parameters,
)
from waypost.capabilities.context import Handler
from waypost.capabilities.names import GATEWAY_TOOLS, check_name, fold_name
from waypost.capabilities.options import Metadata
from waypost.capabilities.resources import MAX_URI_CHARACTERS, UriTemplate
from waypost.capabilities.schemas.forms import OpenForm
from waypost.capabilities.schemas.validators import check_limits
from waypost.config.models import Import
from waypost.errors import DefinitionError
from waypost.imports.sources import Selection, Source
from waypost.imports.trust import MARK, NAMED_BY, TOOL, Held, escape_hidden, escape_prose, pin_key
from waypost.wire.definitions import (
    Definition,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MAX_EXPRESSIONS: Final = 32
_SEPARATOR: Final = re.compile(r"[/?#]")


class ForeignTemplate(UriTemplate):
    """Matches the URIs that a server's template can expand to, without taking its variables apart."""

    def __init__(self, template: str) -> None:
        self.template = template
        literals = _EXPRESSION.split(template)
        self._expressions = literals[1::2]
        self.beginning, *self._literals = literals[::2]
        self.variables = ()
        if not _SCHEME.match(self.beginning):
            raise DefinitionError("its URI template does not begin with a scheme.")
        if len(template) > MAX_URI_CHARACTERS or len(self._expressions) > _MAX_EXPRESSIONS:
            raise DefinitionError("its URI template is too long.")

    def match(self, uri: str) -> dict[str, str] | None:
        """The URI itself, if the template can expand to it."""
        if len(uri) > MAX_URI_CHARACTERS or not uri.startswith(self.beginning):
            return None
        place = len(self.beginning)
        for index, (expression, literal) in enumerate(zip(self._expressions, self._literals, strict=True)):
            is_last = index == len(self._literals) - 1
            if is_last and not uri.endswith(literal):
                return None
            end = max(place, len(uri) - len(literal)) if is_last else uri.find(literal, place)
            if end < 0 or not _fits(expression, uri[place:end]):
                return None
            place = end + len(literal)
        return {"uri": uri} if place == len(uri) else None


def _fits(expression: str, value: str) -> bool:
    """Whether an expression can expand to a value; a plain one holds no separators."""
    plain = expression[:1].isalnum() or expression[:1] in ("_", "%")
    return bool(value) and _SEPARATOR.search(value) is None if plain else True


FOREIGN: Final = "upstream:"
"""The prefix of the owner of imported rows, before the name of the connection."""
_RESERVED: Final = {fold_name(name) for name in GATEWAY_TOOLS}
_KINDS: Final = {TOOL: Kind.TOOL, "prompt": Kind.PROMPT, "resource": Kind.RESOURCE, "template": Kind.TEMPLATE}

Data = dict[str, Any]
Defined = TypeVar("Defined", ToolDefinition, PromptDefinition, ResourceDefinition, TemplateDefinition)
BuildHandlers = Callable[[Source, Selection, Kind, str], tuple[Handler, Handler | None]]
"""The handler and the completer of a row, by the kind and the name that the server knows it by."""


def build_rows(source: Source, selection: Selection, build: BuildHandlers) -> dict[str, Capability]:
    """The rows of a selection, by their pin keys; notes in the selection why others are left out.

    Which names they are published under is decided by the registry.
    """
    rows: dict[str, Capability] = {}
    selection.problems = problems = {}
    if source.manifest is None:
        return rows
    listed = source.manifest.lists
    settings = selection.settings
    known = {one["name"] for one in (*listed[TOOL], *listed["prompt"])} if settings.include else set()
    for missing in [name for name in settings.include if name not in known]:
        problems[missing] = "The server has no such tool or prompt."
    earlier = {row.id for other in source.selections[: selection.index] for row in other.rows.values()}
    for noun, kind in _KINDS.items():
        looks: dict[str, str] = {}
        for definition in _select(selection, listed, noun):
            own = definition[NAMED_BY[noun]]
            key = pin_key(noun, own)
            has_name = noun in (TOOL, "prompt")
            name = f"{settings.prefix or source.name}.{own}" if has_name else own
            look = fold_name(name) if has_name else name
            if name in earlier:
                problems[key] = f"{name} comes with an earlier import of {source.name}."
            elif noun == TOOL and look in _RESERVED:
                problems[key] = f"{name} can be mistaken for a tool of the gateway."
            elif look in looks:
                problems[key] = f"{name} can be mistaken for {looks[look]}."
            else:
                try:
                    row = _build_row(source, settings, noun, definition, name, build(source, selection, kind, own))
                except (DefinitionError, msgspec.ValidationError) as error:
                    problems[key] = f"{name} cannot be offered: {error}"
                    continue
                looks[look] = name
                rows[key] = _keep_row(selection.rows.get(key), row)
    return rows


def _select(selection: Selection, listed: Mapping[str, list[Data]], noun: str) -> list[Data]:
    """The definitions of one list that an import wants."""
    settings = selection.settings
    if noun in ("resource", "template"):
        wanted = listed[noun] if selection.has_resources else []
        return [one for one in wanted if one.get("name") not in settings.exclude]
    wanted = [one for one in listed[noun] if not settings.include or one["name"] in settings.include]
    return [one for one in wanted if one["name"] not in settings.exclude]


def _keep_row(old: Capability | None, new: Capability) -> Capability:
    """The old row where the new one is equal, so that caches by identity stay valid."""
    if old is None or (old.id, old.metadata, old.definition) != (new.id, new.metadata, new.definition):
        return new
    return old if old.mcp.subscribable == new.mcp.subscribable else new


def _build_row(
    source: Source,
    settings: Import,
    noun: str,
    definition: Data,
    name: str,
    handlers: tuple[Handler, Handler | None],
) -> Capability:
    prefix = settings.prefix or source.name
    held = source.held.get(pin_key(noun, definition[NAMED_BY[noun]])) if settings.trust != "off" else None
    is_out = held is not None and settings.trust == "quarantine"
    shown, template = _build_definition(noun, definition, name, prefix, held, is_out)
    form = OpenForm()  # the server checks the arguments: its schema may have changed since it was listed
    headers: tuple[HeaderParameter, ...] = ()
    if isinstance(shown, ToolDefinition):
        form.schema, headers = shown.input_schema, read_header_parameters(shown.input_schema)
    return Capability(
        kind=_KINDS[noun],
        id=name,
        definition=shown,
        handler=handlers[0],
        is_async=True,
        arguments=form,
        owner=f"{FOREIGN}{source.name}",
        priority=Priority.IMPORT,
        metadata=Metadata(hidden=is_out, tags=tuple(settings.tags)),
        mcp=McpFeatures(
            headers=headers,
            template=template,
            subscribable=bool(source.manifest and source.manifest.is_subscribable) and noun in ("resource", "template"),
            completer=handlers[1],
        ),
    )


def _build_definition(
    noun: str, definition: Data, name: str, prefix: str, held: Held | None, is_out: bool
) -> tuple[Definition, UriTemplate | None]:
    """The definition as clients see it: only its name while it is quarantined."""
    if noun == TOOL:
        check_name(name)
        return ToolDefinition(name) if is_out else _build_tool(definition, name, held), None
    if noun == "prompt":
        check_name(name)
        if is_out:
            return PromptDefinition(name), None
        return msgspec.structs.replace(_convert(definition, PromptDefinition, held), name=name), None
    if noun == "resource":
        if is_out:
            return ResourceDefinition(name, name), None
        return _show_origin(_convert(definition, ResourceDefinition, held), prefix), None
    template = ForeignTemplate(name)
    if is_out:
        return TemplateDefinition(name, name), template
    return _show_origin(_convert(definition, TemplateDefinition, held), prefix), template


def _build_tool(definition: Data, name: str, held: Held | None) -> ToolDefinition:
    given = _convert(definition, ToolDefinition, held)
    if given.input_schema.get("type", "object") != "object":
        raise DefinitionError('the root type of its input schema is not "object".')
    # The hub does not compile these schemas, but clients may, and a hostile one could exhaust them.
    check_limits(given.input_schema)
    if isinstance(given.output_schema, dict):
        check_limits(given.output_schema)
    return msgspec.structs.replace(given, name=name, execution=UNSET)


def _show_origin(given: Any, prefix: str) -> Any:
    """A resource whose name and title show the server that it comes from."""
    title = UNSET if given.title is UNSET else f"{prefix}: {given.title}"
    return msgspec.structs.replace(given, name=f"{prefix}.{escape_hidden(given.name)}", title=title)


def _convert(definition: Data, kind: type[Defined], held: Held | None) -> Defined:
    present = {key: value for key, value in definition.items() if value is not None}
    given = msgspec.convert(escape_prose(present), kind)
    # Only the hub sets the mark: a server could otherwise forge it, or hide it behind its own.
    meta = {} if given.meta is UNSET else {key: value for key, value in given.meta.items() if key != MARK}
    if held is not None:
        meta[MARK] = held.why
    return msgspec.structs.replace(given, meta=meta or UNSET)
