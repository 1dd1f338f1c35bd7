"""An upstream server as a source of capabilities: what it offers, kept in the store as its manifest, and its pins."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability
from waypost.config.models import Import, McpConnection
from waypost.errors import StaleVersion
from waypost.imports.trust import NAMED_BY, TOOL, Data, Held, Pin, judged, key_of
from waypost.redaction import secrets_of
from waypost.stores.store import Store
from waypost.upstreams.client import Offers
from waypost.upstreams.upstream import ResourceSubscriptions

_MANIFEST: Final = "manifest"
_PINS: Final = "pins"
_ATTEMPTS: Final = 5


class Manifest(msgspec.Struct, frozen=True):
    """What a server offers, as it listed it."""

    digest: str
    """Of the connection they came over."""
    tools: list[Data]
    at: float
    prompts: list[Data] = []
    resources: list[Data] = []
    templates: list[Data] = []
    is_subscribable: bool = False
    """Whether it tells when a resource changes."""

    @property
    def lists(self) -> dict[str, list[Data]]:
        """All definitions, by what they define."""
        return {TOOL: self.tools, "prompt": self.prompts, "resource": self.resources, "template": self.templates}

    @property
    def by_key(self) -> dict[str, Data]:
        """All definitions, by what they are pinned under."""
        return {key_of(noun, one[NAMED_BY[noun]]): one for noun, listed in self.lists.items() for one in listed}


def digest_of(connection: McpConnection) -> str:
    """What tells one server from another; the values of variables and headers are secrets and left out."""
    told = msgspec.to_builtins(connection)
    told["env"], told["headers"] = sorted(connection.env), sorted(connection.headers)
    if connection.version is None:
        del told["version"]
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()


class Manifests:
    """Manifests and pins by connection."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, name: str, digest: str) -> Manifest | None:
        """What was kept of a connection that is still configured like that."""
        found = await self._read(_MANIFEST, name, Manifest)
        return found if found is not None and found.digest == digest else None

    async def keep(self, name: str, manifest: Manifest) -> None:
        """Keep what a server offers."""
        await self._write(_MANIFEST, name, manifest)

    async def pins(self, name: str) -> dict[str, Pin] | None:
        """The pins of what a server offers; nothing if it was never seen."""
        found: dict[str, Pin] | None = await self._read(_PINS, name, dict[str, Pin])
        return found

    async def revision(self) -> int:
        """How often pins were changed, by whichever hub."""
        return (await self._store.revisions()).get(_PINS, 0)

    async def keep_pins(self, name: str, pins: Mapping[str, Pin]) -> None:
        """Keep the pins of what a server offers."""
        await self._write(_PINS, name, pins)

    async def _read(self, scope: str, name: str, kind: Any) -> Any:
        entry = await self._store.state.get(scope, name)
        if entry is None:
            return None
        try:
            return msgspec.convert(entry.value, kind)
        except msgspec.ValidationError:
            if scope == _PINS:
                raise  # whoever damages pins must not have everything pinned anew
            return None

    async def _write(self, scope: str, name: str, value: Any) -> None:
        state, plain = self._store.state, msgspec.to_builtins(value)
        for attempt in range(_ATTEMPTS):
            entry = await state.get(scope, name)
            if entry is not None and entry.value == plain:
                return
            try:
                await state.put(scope, name, plain, 0 if entry is None else entry.version, counted=scope == _PINS)
            except StaleVersion:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return


_LARGEST: Final = 262_144


@dataclass(eq=False, slots=True)
class Portion:
    """What one import takes of a server."""

    settings: Import
    has_resources: bool
    """Whether it is the one that resources come with."""
    rows: list[Capability] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    is_short: bool = False
    """Whether somebody else has what it would take."""


@dataclass(eq=False)
class Source:
    """A connection to an MCP server, and everything its imports know of it."""

    name: str
    connection: McpConnection
    imports: tuple[Import, ...]
    digest: str
    manifest: Manifest | None = None
    """What it offers, once that is known."""
    watched: ResourceSubscriptions = field(default_factory=ResourceSubscriptions)
    pins: dict[str, Pin] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    error: str = ""
    problems: list[str] = field(default_factory=list)
    begun: int = 0
    """How many sessions there were."""
    seen: int = -1
    """The session in which it was last asked what it offers."""
    refreshing: asyncio.Task[None] | None = None
    later: asyncio.TimerHandle | None = None
    asked_at: float = 0.0
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)

    @cached_property
    def portions(self) -> list[Portion]:
        """What each import takes, in the order of the file; resources come with the first that takes everything."""
        whole = next((one for one in self.imports if not one.include), None)
        return [Portion(one, one is whole) for one in self.imports]

    @property
    def rows(self) -> list[Capability]:
        """Everything of it that is offered here."""
        return [row for portion in self.portions for row in portion.rows]

    @property
    def left_out(self) -> dict[str, str]:
        """Why the rest is not."""
        return {key: why for portion in self.portions for key, why in portion.left_out.items()}

    @property
    def is_trusted(self) -> bool:
        """Whether nobody wants to know when definitions change."""
        return all(one.trust == "off" for one in self.imports)

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """The values of the configuration that must not be told."""
        return secrets_of(self.connection.env, self.connection.headers)

    @property
    def offered(self) -> dict[str, Data]:
        """All definitions, by what they are pinned under."""
        return {} if self.manifest is None else self.manifest.by_key

    def take(self, manifest: Manifest, pins: dict[str, Pin]) -> dict[str, Held]:
        """Know what the server offers, and what of it was pinned; what is not as it was and not known so far."""
        self.manifest, self.pins = manifest, pins
        return self.judge()

    def held_back(self, tool: str, name: str) -> str:
        """What somebody is told who calls what nobody approved."""
        why = self.held[tool].why if tool in self.held else "new"
        shown = f'"{tool}"' if " " in tool else tool
        return (
            f"{name} is held back because its definition is {why} and nobody approved it; "
            f"`waypost upstreams approve {self.name} {shown}` releases it."
        )

    def refusal(self, tool: str) -> str:
        """Why a tool must not be called by its own name; nothing when it may be."""
        if all(one.trust != "quarantine" for one in self.imports):
            return ""
        if self.manifest is None:
            return f"What {self.name} offers is not known, so {tool} cannot be trusted: {self.error}"
        if tool in self.held:
            return self.held_back(tool, f"{tool} of {self.name}")
        return "" if tool in self.offered else f"{self.name} does not offer {tool!r}."

    def judge(self) -> dict[str, Held]:
        """Compare what is offered with the pins; what is not as it was and not known so far."""
        before = self.held
        self.held = {} if self.is_trusted else judged(self.offered, self.pins)
        return {name: one for name, one in self.held.items() if before.get(name) != one}


def manifest_of(source: Source, offered: Offers) -> tuple[Manifest, list[str]]:
    """What a server offers now, and what is said about the rest; a list that could not be had is what it was."""
    problems, before = list(offered.problems), source.manifest

    def taken(noun: str, given: list[Any] | None) -> list[Data]:
        if given is not None:
            return usable(given, noun, problems)
        return [] if before is None else before.lists[noun]

    found = Manifest(
        source.digest,
        taken("tool", offered.tools),
        0.0 if before is None else before.at,
        taken("prompt", offered.prompts),
        taken("resource", offered.resources),
        taken("template", offered.templates),
        offered.is_subscribable,
    )
    return (found if found == before else msgspec.structs.replace(found, at=time.time())), problems


def usable(definitions: list[Any], noun: str, problems: list[str]) -> list[Data]:
    """The definitions that can be kept, each name once; what is said about the others goes into `problems`."""
    found: dict[str, Data] = {}
    by = NAMED_BY[noun]
    for one in definitions:
        name = one.get(by) if isinstance(one, dict) else None
        if not isinstance(name, str) or not name:
            problems.append(f"A {noun} without a {'name' if by == 'name' else 'URI'} is left out.")
        elif name in found:
            problems.append(f"There are two {noun}s {name!r}; the second is left out.")
        elif len(msgspec.json.encode(one)) > _LARGEST:
            problems.append(f"The definition of {name!r} is larger than {_LARGEST} bytes; it is left out.")
        else:
            found[name] = one
    return list(found.values())
