"""The status of upstream connections, as operators see it."""

from __future__ import annotations

from typing import Literal

import msgspec

from waypost.capabilities.capability import Kind
from waypost.config.models import McpConnection
from waypost.imports.sources import Manifest, Source
from waypost.imports.trust import TOOL, Why, difference, hidden_characters, noun_of, pin_of_all
from waypost.redaction import redacted, secrets_of
from waypost.upstreams.upstream import UpstreamStatus


class HeldTool(msgspec.Struct, frozen=True, rename="camel"):
    """A definition that nobody approved yet."""

    tool: str
    why: Why
    sha256: str
    is_callable: bool
    """Whether it is only marked."""
    difference: list[str]


class LeftOut(msgspec.Struct, frozen=True):
    """A tool that is not offered, and why."""

    tool: str
    why: str


class Unseen(msgspec.Struct, frozen=True):
    """Characters of a definition that nobody sees."""

    tool: str
    characters: list[str]


class UpstreamRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A connection to an MCP server."""

    connection: str
    transport: Literal["stdio", "http"]
    state: Literal["not started", "starting", "running", "failed"]
    reason: str = ""
    retry_in: float = 0.0
    """Seconds until it is tried again."""
    protocol: str = ""
    calls: int = 0
    """How many are under way."""
    tools: list[str] = []
    """The names under which its tools are offered."""
    prompts: list[str] = []
    """The names under which its prompts are offered."""
    resources: list[str] = []
    """The URIs, and templates of URIs, at which its resources are read."""
    pin: str = ""
    """The SHA-256 of all pins."""
    pins: dict[str, str] = {}
    """The SHA-256 of each definition as it was approved, by tool; others by what they are, too."""
    held: list[HeldTool] = []
    left_out: list[LeftOut] = []
    unseen: list[Unseen] = []


def row_of(name: str, connection: McpConnection, standing: UpstreamStatus, source: Source | None) -> UpstreamRow:
    """All that is known of one connection."""
    secrets = secrets_of(connection.env, connection.headers)
    row = UpstreamRow(
        connection=name,
        transport=connection.transport or "stdio",
        state=standing.state,
        reason=redacted(standing.reason, secrets),
        retry_in=round(standing.retry_in, 1),
        protocol=standing.version,
        calls=standing.calls,
    )
    return row if source is None else _with_tools(row, source)


def _with_tools(row: UpstreamRow, source: Source) -> UpstreamRow:
    offered = source.offered
    characters = {tool: hidden_characters(definition) for tool, definition in offered.items()}
    return msgspec.structs.replace(
        row,
        reason=row.reason or source.error or " ".join(source.problems),
        tools=_shown(source, Kind.TOOL),
        prompts=_shown(source, Kind.PROMPT),
        resources=_shown(source, Kind.RESOURCE, Kind.TEMPLATE),
        pin=pin_of_all(source.pins) if source.pins else "",
        pins={tool: pin.sha256 for tool, pin in sorted(source.pins.items())},
        held=_held(source),
        left_out=[LeftOut(tool, why) for tool, why in source.left_out.items()],
        unseen=[Unseen(tool, found) for tool, found in characters.items() if found],
    )


def _shown(source: Source, *kinds: Kind) -> list[str]:
    return sorted(one.id for one in source.rows if one.kind in kinds and not one.metadata.hidden)


def told_of(manifest: Manifest) -> str:
    """How much of everything a server offers, in words."""
    counts = {noun: len(definitions) for noun, definitions in manifest.lists.items()}
    return ", ".join(f"{count} {noun}s" for noun, count in counts.items() if count or noun == TOOL)


def _held(source: Source) -> list[HeldTool]:
    offered = source.offered
    marked = all(one.trust == "flag" for one in source.imports if one.trust != "off")
    return [
        HeldTool(
            tool,
            held.why,
            held.sha256,
            marked,
            difference(source.pins[tool].definition if tool in source.pins else None, offered[tool], noun_of(tool)),
        )
        for tool, held in source.held.items()
    ]
