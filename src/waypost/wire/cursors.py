"""Where a list goes on: opaque to clients, and good however many come and go."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from waypost.errors import InvalidParams

_CURSOR: Final = b"after:"


def cursor_after(key: str) -> str:
    """The cursor behind `key`; it stays good when others come and go."""
    return base64.urlsafe_b64encode(_CURSOR + key.encode()).decode().rstrip("=")


def key_before(cursor: str | None) -> str | None:
    """The key a cursor stands behind."""
    if cursor is None:
        return None
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if decoded.startswith(_CURSOR):
            return decoded.removeprefix(_CURSOR).decode()
    except (binascii.Error, ValueError):
        pass
    raise InvalidParams(f"Invalid cursor: {cursor[:80]}")
