"""The engine: what this server is, and the parts that every method needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from waypost.capabilities.capability import Kind
from waypost.capabilities.context import Caller, Context, Services
from waypost.capabilities.registry import Registry
from waypost.execution.pipeline import Pipeline
from waypost.protocol.answers import ModernBody
from waypost.protocol.broadcast import Broadcast
from waypost.protocol.listing import Listing
from waypost.protocol.sessions import Sessions
from waypost.wire import versions
from waypost.wire.definitions import Implementation

Hook = Callable[..., Awaitable[Any] | Any]


class Hooks(Protocol):
    """Finds what the user wrote to replace a part of the protocol."""

    def __call__(self, name: str) -> Hook | None: ...


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen about the protocol."""

    page_size: int = 1000
    portable_names: bool = False
    session_idle: float = 1800.0
    max_sessions: int = 10_000
    capabilities: dict[str, Any] | None = None
    versions: tuple[str, ...] = versions.ALL


class Engine:
    """One server's side of MCP."""

    def __init__(
        self,
        info: Implementation,
        registry: Registry,
        pipeline: Pipeline,
        services: Services,
        hooks: Hooks,
        settings: EngineSettings,
        instructions: str | None = None,
    ) -> None:
        self.info = info
        self.instructions = instructions
        self.registry = registry
        self.pipeline = pipeline
        self.hooks = hooks
        self.settings = settings
        self.listing = Listing(registry, page_size=settings.page_size, portable=settings.portable_names)
        self.sessions = Sessions(idle=settings.session_idle, limit=settings.max_sessions)
        self.broadcast = Broadcast(self.sessions)
        self.modern_body = ModernBody(info)
        self.legacy_versions = tuple(version for version in settings.versions if not versions.is_modern(version))
        self._services = services
        self._stop_listening: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to tell clients about changes; call it on the loop that serves them."""
        if self._stop_listening is None:
            self.broadcast.bind()
            self._stop_listening = self.registry.subscribe(self.broadcast.registry_changed)

    def stop(self) -> None:
        """End all streams and sessions."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self.broadcast.close()
        self.sessions.close_all()

    def context(self, caller: Caller) -> Context:
        """What a hook gets to know about a request."""
        return Context(caller, self._services)

    def offers(self, capability: str) -> bool:
        """Whether this server has that capability, so that its methods exist."""
        if self.settings.capabilities is not None:
            return capability in self.settings.capabilities
        match capability:
            case "prompts":
                return len(self.registry[Kind.PROMPT]) > 0
            case "resources":
                return len(self.registry[Kind.RESOURCE]) + len(self.registry[Kind.TEMPLATE]) > 0
            case "completions":
                return self._can_complete()
            case _:
                return True

    @property
    def offers_subscriptions(self) -> bool:
        """Whether clients may subscribe to resources."""
        return bool(self.capabilities().get("resources", {}).get("subscribe"))

    def offers_list_changed(self, capability: str) -> bool:
        """Whether clients are told when this list changes."""
        return bool(self.capabilities().get(capability, {}).get("listChanged"))

    def capabilities(self) -> dict[str, Any]:
        """What `initialize` and `server/discover` declare: as configured, else as registered."""
        if self.settings.capabilities is not None:
            return self.settings.capabilities
        declared: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
        if self.offers("resources"):
            declared["resources"] = {"listChanged": True}
            if any(row.subscribable for kind in (Kind.RESOURCE, Kind.TEMPLATE) for row in self.registry[kind]):
                declared["resources"]["subscribe"] = True
        if self.offers("prompts"):
            declared["prompts"] = {"listChanged": True}
        if self._can_complete():
            declared["completions"] = {}
        return declared

    def _can_complete(self) -> bool:
        return (
            self.hooks("completion") is not None
            or len(self.registry[Kind.PROMPT]) > 0
            or len(self.registry[Kind.TEMPLATE]) > 0
        )
