"""Who is calling."""

from __future__ import annotations

from typing import Any, Final

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """Somebody the hub serves; later rooms decide what they may do."""

    id: str
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    claims: dict[str, Any] | None = None


ANONYMOUS: Final = Principal("anonymous")
