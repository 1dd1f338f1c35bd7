"""A client's session, as handlers and hooks see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from waypost.capabilities.questions import check_supported
from waypost.errors import NoAnswer
from waypost.wire.definitions import Implementation

ListKind: TypeAlias = Literal["tools", "prompts", "resources"]
LISTS: Final[tuple[str, ...]] = get_args(ListKind)


class Session(ABC):
    """One client and the values that handlers keep for it."""

    __slots__ = ("_assigns", "client_capabilities", "client_info", "id")

    def __init__(
        self, session_id: str, client_info: Implementation | None, client_capabilities: Mapping[str, Any]
    ) -> None:
        self.id = session_id
        self.client_info = client_info
        self.client_capabilities = client_capabilities
        self._assigns: dict[str, Any] = {}

    @property
    def assigns(self) -> Mapping[str, Any]:
        """The values that were `put` here, read-only."""
        return MappingProxyType(self._assigns)

    async def put(self, key: str, value: Any) -> None:
        """Keep a value with the session; its later requests see it, other sessions never do."""
        self._assigns[key] = value

    @abstractmethod
    async def notify_changed(self, kind: ListKind) -> None:
        """Notify only this client that one of its lists changed."""

    @abstractmethod
    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message, if the client asked for that level."""

    @abstractmethod
    async def send_progress(
        self, token: int | str, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of something the client gave a token for."""

    @abstractmethod
    async def send_resource_updated(self, uri: str, timestamp: Any = None) -> None:
        """Notify the client that a resource it subscribed to changed."""

    @abstractmethod
    async def send_task_status(self, task_id: str) -> None:
        """Notify the client of the status of one of its tasks."""

    async def send_elicitation_complete(self, elicitation_id: str) -> None:  # noqa: B027  # other versions have no such notification
        """Notify the client that a URL elicitation is complete; only sessions of 2025-11-25 have that notification."""

    async def send_elicitation(self, message: str, schema: Any, timeout: float = 30.0) -> str:  # noqa: ASYNC109
        """Ask the user of the client without waiting; the answer arrives at the hook `on_elicitation`."""
        raise self._no_request_error({"elicitation": {"form": {}}}, "elicit")

    async def send_sampling(
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        timeout: float = 30.0,  # noqa: ASYNC109
        **options: Any,
    ) -> str:
        """Ask the client's model without waiting; the answer arrives at the hook `on_sampling`."""
        raise self._no_request_error({"sampling": {}}, "sample")

    async def send_roots(self, timeout: float = 30.0) -> str:  # noqa: ASYNC109
        """Ask for the client's roots without waiting; the answer arrives at the hook `on_roots`."""
        raise self._no_request_error({"roots": {}}, "roots")

    def _no_request_error(self, needs: Mapping[str, Any], instead: str) -> NoAnswer:
        """The error of a client that can be asked only within a request; `CapabilityNotSupported` if not even then."""
        check_supported(self.client_capabilities, needs)
        return NoAnswer(f"A stateless client cannot be asked outside of a request; use await ctx.{instead}() in it.")


def check_list(kind: str) -> None:
    """Raise `ValueError` for a list that MCP does not have."""
    if kind not in LISTS:
        raise ValueError(f"There is no list {kind!r} that could change; there are {', '.join(LISTS)}.")
