"""What other servers offered when they were last asked, and the pins of it, as the store keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waypost.config.connections import McpConnection
from waypost.errors import StaleVersion
from waypost.gateway.trust import NAMED_BY, TOOL, Pin, key_of
from waypost.stores.store import Store

_MANIFEST: Final = "manifest"
_PINS: Final = "pins"
_ATTEMPTS: Final = 5

Data = dict[str, Any]


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
