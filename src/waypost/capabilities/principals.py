"""Who calls: the authenticated principal, and the chain of calls behind a call."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec


class Principal(msgspec.Struct, frozen=True):
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


FROM_OUTSIDE: Final = Chain("mcp", "mcp")
"""The chain of a call that a client makes directly."""
