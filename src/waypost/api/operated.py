"""What the API needs of a hub."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

import msgspec

from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Registry
from waypost.execution.counters import Counters
from waypost.gateway.importing import Imports
from waypost.policy import Authentication
from waypost.policy.guard import PolicyGuard
from waypost.policy.key_ring import KeyRing
from waypost.protocol.engine import Engine
from waypost.skills.content.content import Content
from waypost.stores.store import Store
from waypost.workers.workers import Workers
from waypost.workflows.workflows import Workflows


class Operated(Protocol):
    """A hub that somebody looks after."""

    @property
    def authentication(self) -> Authentication: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def content(self) -> Content: ...
    @property
    def keeps_content(self) -> bool: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def guard(self) -> PolicyGuard: ...
    @property
    def imports(self) -> Imports | None: ...
    @property
    def keys(self) -> KeyRing: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def skills(self) -> Skills | None: ...
    @property
    def store(self) -> Store: ...
    @property
    def has_workflows(self) -> bool: ...
    @property
    def worker_address(self) -> str | None: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def workflows(self) -> Workflows: ...


Via = Literal["http", "cli", "console"]
VIAS: Final[dict[str, Via]] = {"cli": "cli", "console": "console"}
"""The programs of the hub's own that say which they are; everything else comes by `http`."""


class Operator(msgspec.Struct, frozen=True):
    """Who asks for something, and through what."""

    principal: Principal
    via: Via = "http"


class Skills(Protocol):
    """The executable skills of a hub; a `DefinitionError` refuses, an `UnknownCapability` knows no such skill."""

    async def listing(self) -> Any:
        """All skills."""

    async def create(self, name: str) -> Any:
        """Write a file to start from."""

    async def load(self, file: str) -> Any:
        """Take a file of the skills directory in."""

    async def reload(self, name: str) -> Any:
        """Take the file of a skill in again."""

    async def rollback(self, name: str) -> Any:
        """Go back to the version before."""

    async def unload(self, name: str) -> Any:
        """Take a skill out; its file stays."""
