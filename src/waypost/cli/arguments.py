"""What the words of a command may be, and what is said about those that are not."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

import msgspec

from waypost.errors import WaypostError

_PORTS: Final = 65536
_LONGEST: Final = 128
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}")


class WrongUsage(WaypostError):
    """The command cannot be meant that way."""


def json_object(text: str) -> dict[str, Any]:
    """The arguments of a call."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"not a JSON object: {error}") from None


def port(text: str) -> int:
    """A port to listen on."""
    if not (text.isascii() and text.isdigit() and int(text) < _PORTS):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use 0 to {_PORTS - 1}")
    return int(text)


def key_id(text: str) -> str:
    """Whose key it is."""
    if not _ID.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no id; use up to 128 letters, digits and . _ @ : + -, a letter or digit first"
        )
    return text


def name(text: str) -> str:
    """A role, permission or scope."""
    if not 0 < len(text) <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:_LONGEST]!r} is no name; use 1 to {_LONGEST} characters")
    return text
