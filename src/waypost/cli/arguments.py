"""Values of arguments: each function parses a text, and refuses one that cannot be meant."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from typing import Any, Final

import msgspec

MAX_PORT: Final = 65535
MAX_NAME_CHARACTERS: Final = 128
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ArgumentTypeError(f"not a JSON object: {error}") from None


def parse_json(text: str) -> Any:
    """Any JSON value."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentTypeError(f"{text!r} is not JSON") from None


def parse_count(text: str) -> int:
    """A whole number from 1 on."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def parse_port(text: str) -> int:
    """A port to listen on; 0 takes a free one."""
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_PORT):
        raise ArgumentTypeError(f"{text!r} is not a port; use 0 to {MAX_PORT}")
    return int(text)


def parse_key_id(text: str) -> str:
    """The id of a principal that has a key."""
    if not _ID.fullmatch(text):
        raise ArgumentTypeError(
            f"{text!r} is not an id; use up to 128 letters, digits and . _ @ : + -, a letter or digit first"
        )
    return text


def parse_name(text: str) -> str:
    """The name of a role, permission or scope."""
    if not 0 < len(text) <= MAX_NAME_CHARACTERS:
        raise ArgumentTypeError(
            f"{text[:MAX_NAME_CHARACTERS]!r} is not a name; use 1 to {MAX_NAME_CHARACTERS} characters"
        )
    return text
