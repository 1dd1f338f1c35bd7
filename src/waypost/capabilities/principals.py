"""Who is calling."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """Somebody the hub serves; later rooms decide what they may do."""

    id: str
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    claims: dict[str, Any] | None = None


ANONYMOUS: Final = Principal("anonymous")


CallerType = Literal["mcp", "core", "dynamic", "worker", "workflow", "console"]

MAX_CALL_DEPTH: Final = 3
"""How many calls may stand behind a call."""


class Chain(msgspec.Struct, frozen=True):
    """What stands behind a call: who made it, how deep it is, which run it belongs to.

    `token` carries the rights of the one who made it; without one only rules and its principal's rights count.
    """

    caller: str
    type: CallerType
    depth: int = 0
    run: str = ""
    token: str | None = None
    key: str = ""
    """The idempotency key of a call that a workflow makes: the same however often it is made."""


FROM_OUTSIDE: Final = Chain("mcp", "mcp")
"""A call that a client made."""
