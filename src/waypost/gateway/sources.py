"""The server behind imports: what it offers, what of that is trusted, and the rows that are made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Handler
from waypost.capabilities.headers import header_parameters
from waypost.capabilities.naming import check_name
from waypost.capabilities.schemas.forms import OpenForm
from waypost.capabilities.surfaces import SEVEN
from waypost.config.executors import McpConnection
from waypost.config.proxy import Import
from waypost.errors import DefinitionError
from waypost.gateway.characters import folded, told
from waypost.gateway.trust import MARK, Held, Pin, judged
from waypost.wire.definitions import ToolDefinition
from waypost.workflows.redaction import secrets_of

_LARGEST: Final = 262_144
_RESERVED: Final = {folded(name): name for name in SEVEN}

Data = dict[str, Any]


@dataclass(eq=False)
class Source:
    """A connection to an MCP server, and everything its imports know of it."""

    name: str
    connection: McpConnection
    imports: tuple[Import, ...]
    digest: str
    tools: list[Data] | None = None
    fetched_at: float = 0.0
    pins: dict[str, Pin] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    rows: list[Capability] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    error: str = ""
    problems: list[str] = field(default_factory=list)
    begun: int = 0
    """How many sessions there were."""
    seen: int = -1
    """The session in which the tools were last listed."""
    refreshing: asyncio.Task[None] | None = None
    later: asyncio.TimerHandle | None = None
    asked_at: float = 0.0
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_trusted(self) -> bool:
        """Whether nobody wants to know when definitions change."""
        return all(one.trust == "off" for one in self.imports)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of the configuration that must not be told."""
        return secrets_of(self.connection.env, self.connection.headers)

    @property
    def by_name(self) -> dict[str, Data]:
        """The definitions by their names."""
        return {tool["name"]: tool for tool in self.tools or ()}

    def judge(self) -> dict[str, Held]:
        """Compare what is offered with the pins; what is not as it was and not known so far."""
        before = self.held
        self.held = {} if self.is_trusted else judged(self.tools or (), self.pins)
        return {name: one for name, one in self.held.items() if before.get(name) != one}


def usable(tools: list[Any]) -> tuple[list[Data], list[str]]:
    """The definitions that can be kept, each name once, and what is said about the others."""
    found: dict[str, Data] = {}
    problems: list[str] = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            problems.append("A tool without a name is left out.")
        elif name in found:
            problems.append(f"There are two tools {name!r}; the second is left out.")
        elif len(msgspec.json.encode(tool)) > _LARGEST:
            problems.append(f"The definition of {name!r} is larger than {_LARGEST} bytes; it is left out.")
        else:
            found[name] = tool
    return list(found.values()), problems


def rows_of(source: Source, taken: dict[str, str], handler: Any) -> tuple[list[Capability], dict[str, str]]:
    """The rows of a source, and why the others of its tools are left out; names that are given away go into `taken`."""
    rows: list[Capability] = []
    left_out: dict[str, str] = {}
    if source.tools is None:
        return rows, left_out
    kept = {row.id: row for row in source.rows}
    for settings, tool in _chosen(source, left_out):
        name = f"{settings.prefix or source.name}.{tool['name']}"
        look = folded(name)
        other = _RESERVED.get(look) or taken.get(look)
        if other is not None:
            how = "is the name of another tool" if other == name else f"can be taken for {other}"
            left_out[tool["name"]] = f"{name} {how}."
            continue
        try:
            row = _row(source, settings, tool, name, handler(source, tool["name"], name))
        except (DefinitionError, msgspec.ValidationError) as error:
            left_out[tool["name"]] = f"{name} cannot be offered: {error}"
            continue
        taken[look] = name
        rows.append(_same(kept.get(name), row))
    return rows, left_out


def _chosen(source: Source, left_out: dict[str, str]) -> Iterator[tuple[Import, Data]]:
    offered = source.by_name
    for settings in source.imports:
        for name in settings.include:
            if name not in offered:
                left_out[name] = "The server has no such tool."
        for name, tool in offered.items():
            if (not settings.include or name in settings.include) and name not in settings.exclude:
                yield settings, tool


def _same(old: Capability | None, new: Capability) -> Capability:
    """The row that is there already, where it is no other; whoever remembers it need not learn it again."""
    if old is None or old.hidden != new.hidden or old.tags != new.tags or old.definition != new.definition:
        return new
    return old


def _row(source: Source, settings: Import, tool: Data, name: str, handler: Handler) -> Capability:
    check_name(name)
    held = source.held.get(tool["name"]) if settings.trust != "off" else None
    is_out = held is not None and settings.trust == "quarantine"
    definition = ToolDefinition(name) if is_out else _definition(tool, name, held)
    form = OpenForm()  # whether arguments fit is decided by the server, whose schema may be another by now
    form.schema = definition.input_schema
    return Capability(
        kind=Kind.TOOL,
        id=name,
        definition=definition,
        handler=handler,
        is_async=True,
        arguments=form,
        hidden=is_out,
        owner=f"upstream:{source.name}",
        tags=tuple(settings.tags),
        headers=header_parameters(definition.input_schema),
    )


def _definition(tool: Data, name: str, held: Held | None) -> ToolDefinition:
    present = {key: value for key, value in tool.items() if value is not None}
    given = msgspec.convert(told(present), ToolDefinition)
    if given.input_schema.get("type", "object") != "object":
        raise DefinitionError('the root type of its input schema is not "object".')
    # The mark is the hub's to give, whatever the server says of itself.
    meta = {} if given.meta is UNSET else {key: value for key, value in given.meta.items() if key != MARK}
    if held is not None:
        meta[MARK] = held.why
    return msgspec.structs.replace(given, name=name, execution=UNSET, meta=meta or UNSET)
