"""On whose behalf a workflow acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import Chain, Principal
from waypost.capabilities.session import Session
from waypost.wire.versions import is_modern
from waypost.workflows.records import PROXY


class Unasked(DetachedCaller):
    """A client that can be told something but asked nothing: it would have to make its whole request again."""

    def __init__(self, client: Caller, chain: Chain) -> None:
        super().__init__(client.principal, chain)
        self._client = client
        self.version = client.version
        self.request_id = client.request_id
        self.client_info = client.client_info
        self.wants_progress = client.wants_progress

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
    return DetachedCaller(principal, Chain("workflow", "workflow", 0, run))


def for_workflow(caller: Caller, definition: str, run: str) -> Caller:
    """Whoever acts in an instance, as the capabilities that it calls see it."""
    if definition == PROXY:  # the call is the client's own: rules about what clients call are about it
        chain = msgspec.structs.replace(caller.chain, depth=caller.chain.depth + 1, run=run)
    else:
        chain = Chain(f"workflow:{definition}", "workflow", caller.chain.depth + 1, run, caller.chain.token)
    return Unasked(caller, chain) if is_modern(caller.version) else caller.with_chain(chain)
