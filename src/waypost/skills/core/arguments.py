"""Reading a skill's arguments: a typed field first, then `config`, then `input` where that is the natural thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.errors import ToolError


def field(args: Mapping[str, Any], name: str) -> Any:
    """A typed field, or the same key of `config`, or nothing."""
    given = args.get(name)
    if given is not None:
        return given
    config = args.get("config")
    return config.get(name) if isinstance(config, Mapping) else None


def text(args: Mapping[str, Any], name: str) -> str:
    """A field of text; empty if it is not there."""
    given = field(args, name)
    if given is None:
        return ""
    if not isinstance(given, str):
        raise ToolError(f"{name} must be text.")
    return given


def needed(args: Mapping[str, Any], name: str) -> str:
    """A field of text, or the whole input in its place; one of them must be there."""
    given = (text(args, name) or input_text(args)).strip()
    if not given:
        raise ToolError(f"{name} is missing.")
    return given


def whole(args: Mapping[str, Any], name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most`; more than that is cut."""
    given = field(args, name)
    if given is None:
        return default
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10:
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ToolError(f"{name} must be a whole number above 0.")
    return min(given, most)


def input_text(args: Mapping[str, Any]) -> str:
    """The input as text; data is written as JSON."""
    given = args.get("input")
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()
