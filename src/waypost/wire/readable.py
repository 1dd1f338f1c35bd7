"""Text that can be sent: strings of Python may hold halves of pairs that UTF-8 has no bytes for."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost.wire.messages import encode


def readable(value: Any) -> Any:
    """Text, or data with text in it, with a replacement character for each half of a pair that stands alone."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {readable(key): readable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [readable(inner) for inner in value]
    return value


def encode_readable(value: Any) -> bytes:
    """`value` as JSON, whatever its text holds."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(readable(msgspec.to_builtins(value)))
