"""Somebody on whose behalf something runs while no client is there to be told or asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from waypost.capabilities.asking import Question
from waypost.capabilities.chain import Chain
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.capabilities.session import Session
from waypost.errors import CapabilityNotSupported, WaypostError
from waypost.loops import maybe_await
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId
from waypost.wire.versions import V2026_07_28


class Absent:
    """A principal without a client: can be told nothing and asked nothing."""

    version = V2026_07_28
    cancelled = False
    request_id: RequestId | None = None
    client_info: Implementation | None = None
    client_capabilities: Mapping[str, Any] = {}
    wants_progress = False

    def __init__(self, principal: Principal, chain: Chain) -> None:
        self.principal = principal
        self.chain = chain

    @property
    def session(self) -> Session:
        """There is none."""
        raise WaypostError("There is no session: no client is there.")

    async def ask(self, question: Question) -> Any:
        """Nobody is there to answer."""
        raise CapabilityNotSupported(question.needs)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do it: nothing is run twice here."""
        return await maybe_await(function())

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Nobody is there to be told."""

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Nobody is there to be told."""

    async def close_stream(self) -> None:
        """There is no stream."""

    def with_chain(self, chain: Chain) -> Caller:
        """The same principal, of a call that stands behind others."""
        return Absent(self.principal, chain)
