"""Progress and log messages of upstream calls, and the status rows that operators see."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from waypost.capabilities.capability import Kind
from waypost.capabilities.context import Context
from waypost.config.models import McpConnection
from waypost.imports.sources import TOOL, Manifest, Source, Why, difference, noun_of, pin_of_all
from waypost.redaction import redacted, secrets_of
from waypost.search.words import hidden_characters
from waypost.upstreams.upstream import UpstreamStatus
from waypost.wire.params import LOG_LEVELS

_MOST: Final = 100


class Telling:
    """Tells somebody one thing after another; when they come too fast, the oldest are left out."""

    def __init__(self, tell: Callable[..., Awaitable[None]]) -> None:
        self._tell = tell
        self._waiting: deque[tuple[Any, ...]] = deque(maxlen=_MOST)
        self._telling: asyncio.Task[None] | None = None

    def put(self, *said: Any) -> None:
        """Tell it when everything before was told."""
        self._waiting.append(said)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._run())
            # A caller who cannot be told any more is no concern of the call.
            self._telling.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def delivered(self) -> None:
        """Wait until everything is told."""
        if self._telling is not None:
            await asyncio.wait({self._telling})

    def stop(self) -> None:
        """Tell nothing more."""
        if self._telling is not None:
            self._telling.cancel()

    async def _run(self) -> None:
        while self._waiting:
            await self._tell(*self._waiting.popleft())


class Reports(Telling):
    """How far a call is."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.progress)

    def take(self, told: Mapping[str, Any]) -> None:
        """Hand on one report; one that makes no sense is left out."""
        value, total, message = told.get("progress"), told.get("total"), told.get("message")
        if type(value) in (int, float):
            self.put(
                value,
                total if type(total) in (int, float) else None,
                message if isinstance(message, str) else None,
            )


class Remarks(Telling):
    """Log messages."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.log)

    def take(self, note: Mapping[str, Any]) -> None:
        """Hand one on; one that makes no sense is left out."""
        level = note.get("level")
        if level in LOG_LEVELS:
            self.put(level, *_message(note.get("data")))


def _message(data: Any) -> tuple[str, dict[str, Any] | None]:
    if isinstance(data, str):
        return data, None
    if isinstance(data, dict) and isinstance(data.get("message"), str):
        rest = {key: value for key, value in data.items() if key != "message"}
        return data["message"], rest or None
    return msgspec.json.encode(data).decode(), None


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
