"""Text as HTTP header values."""

from __future__ import annotations

import base64


def header_value(text: str) -> str:
    """`text` as an HTTP header value, wrapped where it would not survive as it is."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
