"""What a handler knows about the call it serves, and how it talks back to the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from waypost.capabilities.principals import Principal
from waypost.capabilities.results import Result
from waypost.capabilities.session import Session
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId

if TYPE_CHECKING:
    from waypost.capabilities.registry import Registry


class Caller(Protocol):
    """The other side of a call; each way in brings its own."""

    @property
    def request_id(self) -> RequestId | None: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def client_info(self) -> Implementation | None: ...
    @property
    def session(self) -> Session: ...
    @property
    def cancelled(self) -> bool: ...
    async def progress(self, value: float, total: float | None, message: str | None) -> None: ...
    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None: ...
    async def close_stream(self) -> None: ...


class Services(Protocol):
    """The parts of the hub that a running handler may use."""

    @property
    def registry(self) -> Registry: ...
    async def invoke(self, name: str, arguments: dict[str, Any], caller: Caller) -> Result: ...
    async def notify_resource_updated(self, uri: str) -> None: ...


class Context:
    """One call: who asked, on which session, and the ways to answer before the answer."""

    __slots__ = ("_assigns", "_caller", "_services")

    def __init__(self, caller: Caller, services: Services) -> None:
        self._caller = caller
        self._services = services
        self._assigns: dict[str, Any] | None = None

    @property
    def session(self) -> Session:
        """The session the call came in on."""
        return self._caller.session

    @property
    def principal(self) -> Principal:
        """Who is calling."""
        return self._caller.principal

    @property
    def request_id(self) -> RequestId | None:
        """The id the client gave this request."""
        return self._caller.request_id

    @property
    def client_info(self) -> Implementation | None:
        """What the client says it is."""
        return self._caller.client_info

    @property
    def assigns(self) -> dict[str, Any]:
        """A scratch dict of this call."""
        if self._assigns is None:
            self._assigns = {}
        return self._assigns

    @property
    def cancelled(self) -> bool:
        """Whether the caller gave up on this call; worth a look in long synchronous work."""
        return self._caller.cancelled

    @property
    def registry(self) -> Registry:
        """Everything the hub offers."""
        return self._services.registry

    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is; does nothing when the client did not ask."""
        await self._caller.progress(value, total, message)

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message to the client, if it wants that level."""
        await self._caller.log(level, message, data)

    async def invoke(self, capability: str, arguments: dict[str, Any] | None = None) -> Result:
        """Call another tool through the same pipeline."""
        return await self._services.invoke(capability, arguments or {}, self._caller)

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell everybody who subscribed to `uri` that it changed."""
        await self._services.notify_resource_updated(uri)

    async def close_stream(self) -> None:
        """Let the client go and come back for the answer later; only for clients that can resume."""
        await self._caller.close_stream()


Handler = Callable[[Any, Context], Awaitable[Any] | Any]
"""How the pipeline runs a capability: admitted arguments and the context in, a value or an awaitable out."""
