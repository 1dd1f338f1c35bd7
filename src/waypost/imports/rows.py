"""Rows of the registry for what upstream servers offer: names, URI templates, and who keeps a contested name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

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
from waypost.capabilities.names import GATEWAY_TOOLS, check_name
from waypost.capabilities.options import Metadata
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import MAX_URI_CHARACTERS, UriTemplate
from waypost.capabilities.schemas.forms import OpenForm
from waypost.capabilities.schemas.validators import check_limits
from waypost.config.models import Import
from waypost.errors import DefinitionError
from waypost.imports.sources import Portion, Source
from waypost.imports.trust import MARK, NAMED_BY, TOOL, Held, escaped, folded, key_of, told
from waypost.wire.definitions import (
    Definition,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MOST_EXPRESSIONS: Final = 32
_APART: Final = re.compile(r"[/?#]")


class ForeignTemplate(UriTemplate):
    """Finds out which URIs a server may answer for; what they mean is the server's business."""

    def __init__(self, template: str) -> None:
        self.template = template
        literals = _EXPRESSION.split(template)
        self._expressions = literals[1::2]
        self.beginning, *self._literals = literals[::2]
        self.variables = ()
        if not _SCHEME.match(self.beginning):
            raise DefinitionError("its URI template does not begin with a scheme.")
        if len(template) > MAX_URI_CHARACTERS or len(self._expressions) > _MOST_EXPRESSIONS:
            raise DefinitionError("its URI template is too long.")

    def match(self, uri: str) -> dict[str, str] | None:
        """The URI itself, if the template may have given it."""
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
    """Whether a value may stand for an expression; a plain one holds no separators."""
    plain = expression[:1].isalnum() or expression[:1] in ("_", "%")
    return bool(value) and _APART.search(value) is None if plain else True


Order: TypeAlias = list[tuple[Source, Portion]]
"""Imports, in the order of the file."""


class Decision(NamedTuple):
    """What an import takes from now on."""

    source: Source
    portion: Portion
    made: Made


def in_order(imports: Iterable[Import], sources: dict[str, Source]) -> Order:
    """The imports of all sources."""
    left = {name: iter(source.portions) for name, source in sources.items()}
    return [(sources[one.connection], next(left[one.connection])) for one in imports if one.connection in sources]


def decided(
    order: Order, changed: Collection[Source], leaving: Iterable[Capability], registry: Registry, handlers: Handlers
) -> list[Decision]:
    """What is different when some sources are: theirs, and what others get or have to give for it."""
    imported = [row for _, portion in order for row in portion.rows]
    gone = {(row.kind, row.id) for row in (*leaving, *imported)}
    taken, fresh = Taken(), Taken()
    taken.take(row for kind in Kind for row in registry[kind] if (kind, row.id) not in gone)
    decisions: list[Decision] = []
    for source, portion in order:
        if source not in changed and not portion.is_short and not _clashes(portion, fresh):
            taken.take(portion.rows)
            continue
        made = rows_of(source, portion, taken, handlers)
        before = {(row.kind, row.id) for row in portion.rows}
        fresh.take(row for row in made.rows if (row.kind, row.id) not in before)
        decisions.append(Decision(source, portion, made))
    return decisions


def _clashes(portion: Portion, fresh: Taken) -> bool:
    return any(fresh.problem(row.kind, row.id) is not None for row in portion.rows)


FOREIGN: Final = "upstream:"
"""How the owner of a row begins that is another server's."""
_RESERVED: Final = {folded(name): name for name in GATEWAY_TOOLS}
_KINDS: Final = {TOOL: Kind.TOOL, "prompt": Kind.PROMPT, "resource": Kind.RESOURCE, "template": Kind.TEMPLATE}

Data = dict[str, Any]
Defined = TypeVar("Defined", ToolDefinition, PromptDefinition, ResourceDefinition, TemplateDefinition)
Handlers = Callable[[Source, Kind, str, str], tuple[Handler, Handler | None]]
"""Handler and completer of a row, by its source, its kind, the name that the server knows it by, and its own."""


class Taken:
    """The names and URIs that others have."""

    def __init__(self) -> None:
        self._names: dict[Kind, dict[str, str]] = {Kind.TOOL: {}, Kind.PROMPT: {}}
        self._yielding: set[tuple[Kind, str]] = set()
        self._uris: set[str] = set()
        self._templates: list[UriTemplate] = []

    def problem(self, kind: Kind, name: str) -> str | None:
        """Why a name cannot be had."""
        if kind is Kind.RESOURCE:
            is_taken = name in self._uris or any(one.match(name) is not None for one in self._templates)
            return f"Something else is read at {name}." if is_taken else None
        if kind is Kind.TEMPLATE:
            beginning = _beginning(name)
            overlaps = any(_overlap(beginning, _beginning(one.template)) for one in self._templates)
            return f"Another template gives URIs like those of {name}." if overlaps else None
        look, noun = folded(name), kind.value.removesuffix("s")
        other = (_RESERVED.get(look) if kind is Kind.TOOL else None) or self._names[kind].get(look)
        if other is None or (other == name and (kind, name) in self._yielding):
            return None
        return f"{name} is the name of another {noun}." if other == name else f"{name} can be taken for {other}."

    def take(self, rows: Iterable[Capability]) -> None:
        """Give names away."""
        for row in rows:
            if row.kind is Kind.RESOURCE:
                self._uris.add(row.id)
            elif row.mcp.template is not None:
                self._templates.append(row.mcp.template)
            elif row.kind in self._names:
                self._names[row.kind][folded(row.id)] = row.id
                note = self._yielding.discard if row.priority is Priority.HUB else self._yielding.add
                note((row.kind, row.id))


def _beginning(template: str) -> str:
    return template.partition("{")[0]


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


class Made(NamedTuple):
    """The rows of an import."""

    rows: list[Capability]
    left_out: dict[str, str]
    """Why the rest of what it would take is left out."""
    is_short: bool
    """Whether somebody else has what it would take."""


def rows_of(source: Source, portion: Portion, taken: Taken, handlers: Handlers) -> Made:
    """What an import takes of a source, under names that are given away here."""
    rows: list[Capability] = []
    left_out: dict[str, str] = {}
    is_short = False
    if source.manifest is None:
        return Made(rows, left_out, is_short)
    settings, listed = portion.settings, source.manifest.lists
    kept = {(row.kind, row.id): row for row in portion.rows}
    left_out.update(_missing(settings, listed))
    for noun, kind in _KINDS.items():
        made: dict[str, Capability] = {}
        for definition in _chosen(portion, listed, noun):
            own = definition[NAMED_BY[noun]]
            name = f"{settings.prefix or source.name}.{own}" if kind in (Kind.TOOL, Kind.PROMPT) else own
            look = name if own is name else folded(name)
            problem = taken.problem(kind, name)
            is_short = is_short or problem is not None
            if problem := problem or _clash(made.get(look), noun, name):
                left_out[key_of(noun, own)] = problem
                continue
            try:
                row = _row(source, settings, noun, definition, name, handlers(source, kind, own, name))
            except (DefinitionError, msgspec.ValidationError) as error:
                left_out[key_of(noun, own)] = f"{name} cannot be offered: {error}"
                continue
            made[look] = _same(kept.get((kind, name)), row)
        taken.take(made.values())
        rows += made.values()
    return Made(rows, left_out, is_short)


def _clash(other: Capability | None, noun: str, name: str) -> str | None:
    if other is None:
        return None
    return f"{name} is the name of another {noun}." if other.id == name else f"{name} can be taken for {other.id}."


def _missing(settings: Import, listed: Mapping[str, list[Data]]) -> dict[str, str]:
    """What an import names and nobody offers."""
    known = {one["name"] for one in (*listed[TOOL], *listed["prompt"])} if settings.include else set()
    missing = [name for name in settings.include if name not in known]
    return dict.fromkeys(missing, "The server has no such tool or prompt.")


def _chosen(portion: Portion, listed: Mapping[str, list[Data]], noun: str) -> list[Data]:
    """What an import wants of one list."""
    settings = portion.settings
    if noun in ("resource", "template"):
        wanted = listed[noun] if portion.has_resources else []
        return [one for one in wanted if one.get("name") not in settings.exclude]
    wanted = [one for one in listed[noun] if not settings.include or one["name"] in settings.include]
    return [one for one in wanted if one["name"] not in settings.exclude]


def _same(old: Capability | None, new: Capability) -> Capability:
    """The row that is there already, where it is no other; whoever remembers it need not learn it again."""
    if old is None or old.metadata != new.metadata or old.definition != new.definition:
        return new
    return old if old.mcp.subscribable == new.mcp.subscribable else new


def _row(
    source: Source,
    settings: Import,
    noun: str,
    definition: Data,
    name: str,
    handlers: tuple[Handler, Handler | None],
) -> Capability:
    prefix = settings.prefix or source.name
    held = source.held.get(key_of(noun, definition[NAMED_BY[noun]])) if settings.trust != "off" else None
    is_out = held is not None and settings.trust == "quarantine"
    shown, template = _shown(noun, definition, name, prefix, held, is_out)
    form = OpenForm()  # whether arguments fit is decided by the server, whose schema may be another by now
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
        metadata=Metadata(hidden=is_out, tags=tuple(settings.tags)),
        mcp=McpFeatures(
            headers=headers,
            template=template,
            subscribable=bool(source.manifest and source.manifest.is_subscribable) and noun in ("resource", "template"),
            completer=handlers[1],
        ),
    )


def _shown(
    noun: str, definition: Data, name: str, prefix: str, held: Held | None, is_out: bool
) -> tuple[Definition, UriTemplate | None]:
    """What is told of a definition; nothing but its name while it is held back."""
    if noun == TOOL:
        check_name(name)
        return ToolDefinition(name) if is_out else _tool(definition, name, held), None
    if noun == "prompt":
        check_name(name)
        if is_out:
            return PromptDefinition(name), None
        return msgspec.structs.replace(_told(definition, PromptDefinition, held), name=name), None
    if noun == "resource":
        if is_out:
            return ResourceDefinition(name, name), None
        return _named(_told(definition, ResourceDefinition, held), prefix), None
    template = ForeignTemplate(name)
    if is_out:
        return TemplateDefinition(name, name), template
    return _named(_told(definition, TemplateDefinition, held), prefix), template


def _tool(definition: Data, name: str, held: Held | None) -> ToolDefinition:
    given = _told(definition, ToolDefinition, held)
    if given.input_schema.get("type", "object") != "object":
        raise DefinitionError('the root type of its input schema is not "object".')
    # The hub does not compile them, but every client may.
    check_limits(given.input_schema)
    if isinstance(given.output_schema, dict):
        check_limits(given.output_schema)
    return msgspec.structs.replace(given, name=name, execution=UNSET)


def _named(given: Any, prefix: str) -> Any:
    """A resource that shows where it comes from."""
    title = UNSET if given.title is UNSET else f"{prefix}: {given.title}"
    return msgspec.structs.replace(given, name=f"{prefix}.{escaped(given.name)}", title=title)


def _told(definition: Data, kind: type[Defined], held: Held | None) -> Defined:
    present = {key: value for key, value in definition.items() if value is not None}
    given = msgspec.convert(told(present), kind)
    # The mark is the hub's to give, whatever the server says of itself.
    meta = {} if given.meta is UNSET else {key: value for key, value in given.meta.items() if key != MARK}
    if held is not None:
        meta[MARK] = held.why
    return msgspec.structs.replace(given, meta=meta or UNSET)
