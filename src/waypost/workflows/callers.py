"""On whose behalf a workflow acts when nobody is waiting for its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from waypost.capabilities.asking import Question
from waypost.capabilities.chain import Chain
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.capabilities.session import Session
from waypost.errors import CapabilityNotSupported, WaypostError
from waypost.loops import awaited
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId
from waypost.wire.versions import V2026_07_28, is_modern
from waypost.workflows.records import PROXY


class Absent:
    """A principal without a client: can be told nothing and asked nothing."""

    version = V2026_07_28
    cancelled = False
    request_id: RequestId | None = None
    client_info: Implementation | None = None
    client_capabilities: Mapping[str, Any] = {}

    def __init__(self, principal: Principal, chain: Chain) -> None:
        self.principal = principal
        self.chain = chain

    @property
    def session(self) -> Session:
        """There is none."""
        raise WaypostError("There is no session: the workflow goes on by itself.")

    async def ask(self, question: Question) -> Any:
        """Nobody is there to answer."""
        raise CapabilityNotSupported(question.needs)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do it: nothing is run twice here."""
        return await awaited(function())

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Nobody is there to be told."""

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Nobody is there to be told."""

    async def close_stream(self) -> None:
        """There is no stream."""

    def behind(self, chain: Chain) -> Caller:
        """The same principal, of a call that stands behind others."""
        return Absent(self.principal, chain)


class Unasked(Absent):
    """A client that can be told something but asked nothing: it would have to make its whole request again."""

    def __init__(self, client: Caller, chain: Chain) -> None:
        super().__init__(client.principal, chain)
        self._client = client
        self.version = client.version
        self.request_id = client.request_id
        self.client_info = client.client_info

    @property
    def session(self) -> Session:
        """The session of the client."""
        return self._client.session

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Tell the client how far it is."""
        await self._client.progress(value, total, message)

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Tell the client something."""
        await self._client.log(level, message, data)

    def behind(self, chain: Chain) -> Caller:
        """The same client, of a call that stands behind others."""
        return Unasked(self._client, chain)


def absent(principal: Principal, run: str) -> Caller:
    """Somebody on whose behalf an instance goes on by itself."""
    return Absent(principal, Chain("workflow", "workflow", 0, run))


def for_workflow(caller: Caller, definition: str, run: str) -> Caller:
    """Whoever acts in an instance, as the capabilities that it calls see it."""
    if definition == PROXY:  # the call is the client's own: rules about what clients call are about it
        chain = msgspec.structs.replace(caller.chain, depth=caller.chain.depth + 1, run=run)
    else:
        chain = Chain(f"workflow:{definition}", "workflow", caller.chain.depth + 1, run, caller.chain.token)
    return Unasked(caller, chain) if is_modern(caller.version) else caller.behind(chain)
