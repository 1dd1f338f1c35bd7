"""The status of upstream connections, as operators see it."""

from __future__ import annotations

from typing import Literal

import msgspec

from waypost.capabilities.capability import Kind
from waypost.config.models import McpConnection
from waypost.imports.sources import Manifest, Source
from waypost.imports.trust import TOOL, Why, diff_definitions, hash_pins, name_hidden, noun_of_key
from waypost.redaction import redacted, secrets_of
from waypost.upstreams.upstream import UpstreamStatus


class HeldTool(msgspec.Struct, frozen=True, rename="camel"):
    """A definition that is not approved yet."""

    tool: str
    why: Why
    sha256: str
    is_callable: bool
    """Whether it is only marked, not quarantined."""
    difference: list[str]


class LeftOut(msgspec.Struct, frozen=True):
    """A definition that is not published, and why."""

    tool: str
    why: str


class Unseen(msgspec.Struct, frozen=True):
    """Hidden characters of a definition."""

    tool: str
    characters: list[str]


class UpstreamRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The status of a connection to an MCP server."""

    connection: str
    transport: Literal["stdio", "http"]
    state: Literal["not started", "starting", "running", "failed"]
    reason: str = ""
    retry_in: float = 0.0
    """Seconds until it is tried again."""
    protocol: str = ""
    calls: int = 0
    """How many are in flight."""
    tools: list[str] = []
    """The names under which its tools are published."""
    prompts: list[str] = []
    """The names under which its prompts are published."""
    resources: list[str] = []
    """The URIs, and templates of URIs, at which its resources are read."""
    pin: str = ""
    """The SHA-256 of all pins."""
    pins: dict[str, str] = {}
    """The SHA-256 of each approved definition, by the name of the tool or by noun and name."""
    held: list[HeldTool] = []
    left_out: list[LeftOut] = []
    unseen: list[Unseen] = []


def build_row(name: str, connection: McpConnection, status: UpstreamStatus, source: Source | None) -> UpstreamRow:
    """The status of one connection, with its tools if they are imported."""
    secrets = secrets_of(connection.env, connection.headers)
    row = UpstreamRow(
        connection=name,
        transport=connection.transport or "stdio",
        state=status.state,
        reason=redacted(status.reason, secrets),
        retry_in=round(status.retry_in, 1),
        protocol=status.version,
        calls=status.calls,
    )
    return row if source is None else _with_tools(row, source)


def _with_tools(row: UpstreamRow, source: Source) -> UpstreamRow:
    definitions = source.definitions
    characters = {tool: name_hidden(definition) for tool, definition in definitions.items()}
    return msgspec.structs.replace(
        row,
        reason=row.reason or source.error or " ".join(source.problems),
        tools=_list_ids(source, Kind.TOOL),
        prompts=_list_ids(source, Kind.PROMPT),
        resources=_list_ids(source, Kind.RESOURCE, Kind.TEMPLATE),
        pin=hash_pins(source.pins) if source.pins else "",
        pins={tool: pin.sha256 for tool, pin in sorted(source.pins.items())},
        held=_list_held(source),
        left_out=[LeftOut(tool, why) for tool, why in source.left_out.items()],
        unseen=[Unseen(tool, found) for tool, found in characters.items() if found],
    )


def _list_ids(source: Source, *kinds: Kind) -> list[str]:
    return sorted(one.id for one in source.rows if one.kind in kinds and not one.metadata.hidden)


def count_definitions(manifest: Manifest) -> str:
    """How many definitions of each kind a server has, in words."""
    counts = {noun: len(definitions) for noun, definitions in manifest.lists.items()}
    return ", ".join(f"{count} {noun}s" for noun, count in counts.items() if count or noun == TOOL)


def _list_held(source: Source) -> list[HeldTool]:
    definitions = source.definitions
    is_marked = all(one.trust == "flag" for one in source.imports if one.trust != "off")
    return [
        HeldTool(
            tool,
            held.why,
            held.sha256,
            is_marked,
            diff_definitions(
                source.pins[tool].definition if tool in source.pins else None, definitions[tool], noun_of_key(tool)
            ),
        )
        for tool, held in source.held.items()
    ]
