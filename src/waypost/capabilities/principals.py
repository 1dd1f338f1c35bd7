"""Who is calling."""

from __future__ import annotations

from typing import Final

import msgspec


class Principal(msgspec.Struct, frozen=True):
    """Somebody the hub serves; later rooms decide what they may do."""

    id: str
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()


ANONYMOUS: Final = Principal("anonymous")
