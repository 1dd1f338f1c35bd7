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
    """One client and what the hub remembers about it."""

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
        """What was `put` here so far, to read."""
        return MappingProxyType(self._assigns)

    async def put(self, key: str, value: Any) -> None:
        """Keep a value with the session; its later requests see it, other sessions never do."""
        self._assigns[key] = value

    @abstractmethod
    async def notify_changed(self, kind: ListKind) -> None:
        """Tell this client alone that one of its lists changed."""

    @abstractmethod
    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message, if the client wants that level."""

    @abstractmethod
    async def send_progress(
        self, token: int | str, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of something the client gave a token for."""

    @abstractmethod
    async def send_resource_updated(self, uri: str, timestamp: Any = None) -> None:
        """Tell the client that a resource it subscribed to changed."""

    @abstractmethod
    async def send_task_status(self, task_id: str) -> None:
        """Tell the client how one of its tasks stands."""

    async def send_elicitation_complete(self, elicitation_id: str) -> None:  # noqa: B027  # others are not told
        """Tell the client that what a person was to do on a page is done; only sessions of 2025-11-25 know of that."""

    async def send_elicitation(self, message: str, schema: Any, timeout: float = 30.0) -> str:  # noqa: ASYNC109
        """Ask the person behind the client and go on; the answer arrives at the hook `on_elicitation`."""
        raise self._unheard({"elicitation": {"form": {}}}, "elicit")

    async def send_sampling(
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        timeout: float = 30.0,  # noqa: ASYNC109
        **options: Any,
    ) -> str:
        """Ask the client's model and go on; the answer arrives at the hook `on_sampling`."""
        raise self._unheard({"sampling": {}}, "sample")

    async def send_roots(self, timeout: float = 30.0) -> str:  # noqa: ASYNC109
        """Ask where the client works and go on; the answer arrives at the hook `on_roots`."""
        raise self._unheard({"roots": {}}, "roots")

    def _unheard(self, needs: Mapping[str, Any], instead: str) -> NoAnswer:
        """Why nothing can be asked beside a request; a client that could not be asked in one either is told so."""
        check_supported(self.client_capabilities, needs)
        return NoAnswer(f"A stateless client is asked nothing beside a request; use await ctx.{instead}() in it.")


def check_list(kind: str) -> None:
    """Refuse the name of a list that no client has."""
    if kind not in LISTS:
        raise ValueError(f"There is no list {kind!r} that could change; there are {', '.join(LISTS)}.")
