"""What all domains of the store share: keys, and values as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion, StoreError

LONGEST_KEY: Final = 512
_SHOWN: Final = 400

_encoder: Final = msgspec.json.Encoder()
decoded: Final[Callable[[str], Any]] = msgspec.json.Decoder().decode


def encoded(value: Any) -> str:
    """A value as JSON text."""
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoreError(f"A value cannot be stored as JSON: {error}.") from None


def is_key(text: str) -> bool:
    """Whether something could be stored under that key."""
    try:
        return 0 < len(text.encode()) <= LONGEST_KEY and "\0" not in text
    except UnicodeEncodeError:
        return False


def checked(key: str) -> str:
    """The key, if something can be stored under it."""
    if not is_key(key):
        raise StoreError(f"{key[:60]!r} cannot be a key: it takes 1 to {LONGEST_KEY} bytes, none of them NUL.")
    return key


def fitting(key: str) -> str:
    """What stands in the store for a key that may be too long for it: its beginning and its digest."""
    data = key.encode(errors="surrogatepass")
    if len(data) <= LONGEST_KEY:
        return key
    return f"{data[:_SHOWN].decode(errors='ignore')}#{sha256(data).hexdigest()}"


async def fenced(write: Awaitable[int], what: str) -> None:
    """Wait for a write that must not meet a newer version."""
    if not await write:
        raise StaleVersion(f"{what} was changed by somebody else since it was read; read it again.")
