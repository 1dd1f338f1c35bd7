"""Who calls: the authenticated principal, and the chain of calls behind a call."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec


# With weak references: the cache of tokens follows principals until nothing uses them.
class Principal(msgspec.Struct, frozen=True, weakref=True):
    """An authenticated identity; `policy` decides what it may do."""

    id: str
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    claims: dict[str, Any] | None = None


ANONYMOUS: Final = Principal("anonymous")


CallerType = Literal["mcp", "core", "dynamic", "worker", "workflow", "console"]

MAX_CALL_DEPTH: Final = 3
"""How many calls may be nested below the one a client made."""


class Chain(msgspec.Struct, frozen=True):
    """Where a call comes from: its caller, its depth below the client's call, and the workflow instance it belongs to.

    `token` carries the rights of the calling capability; without one, only policies and the principal's rights count.
    """

    caller: str
    type: CallerType
    depth: int = 0
    run: str = ""
    token: str | None = None
    key: str = ""
    """The idempotency key of a call that a workflow makes; a repeated call has the same."""
    hops: int = 0
    """How many workers the call came through."""
    behind: tuple[Principal, ...] = ()
    """The worker that makes the call and the principals that it acts for: rules for any of them apply."""

    @property
    def way_in(self) -> str:
        """How its caller reached the hub: its type, or for an operator the program, such as `cli`."""
        return self.caller if self.type == "console" else self.type


FROM_OUTSIDE: Final = Chain("mcp", "mcp")
"""The chain of a call that a client makes directly."""
