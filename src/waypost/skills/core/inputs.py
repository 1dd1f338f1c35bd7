"""What a core skill works with: the operator's settings, and the arguments of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.errors import DefinitionError, ToolError

if TYPE_CHECKING:
    from waypost.outbound.egress import Egress  # loads aiohttp

MAX_CONCURRENT_FEEDS: Final = 4


@dataclass(frozen=True)
class CoreSettings:
    """The operator's settings for core skills; no argument of a call changes them.

    `egress` reaches the addresses that callers name, `operator_egress` those that the operator configured.
    """

    egress: Egress
    operator_egress: Egress | None = None
    searxng: str | None = None
    shell_allowed: tuple[tuple[str, ...], ...] = ()
    shell_directory: Path = Path()
    data_directory: Path = Path()
    timeout: float = 30.0
    feed_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_FEEDS))

    def __post_init__(self) -> None:
        # An empty prefix would allow every command.
        if not all(prefix and all(prefix) for prefix in self.shell_allowed):
            raise DefinitionError("A command allowed to the shell skill needs at least a program.")


def get_field(args: Mapping[str, Any], name: str) -> Any:
    """Return a typed field, else the same key of `config`, else None."""
    given = args.get(name)
    if given is not None:
        return given
    config = args.get("config")
    return config.get(name) if isinstance(config, Mapping) else None


def get_text(args: Mapping[str, Any], name: str) -> str:
    """Return a text field, or an empty text."""
    given = get_field(args, name)
    if given is None:
        return ""
    if not isinstance(given, str):
        raise ToolError(f"{name} must be text.")
    return given


def require_text(args: Mapping[str, Any], name: str) -> str:
    """Return a text field, or the whole input in its place; one of them must be given."""
    given = (get_text(args, name) or get_input(args)).strip()
    if not given:
        raise ToolError(f"{name} is missing.")
    return given


def get_integer(args: Mapping[str, Any], name: str, default: int, maximum: int) -> int:
    """Return an integer of at least 1; one above the maximum becomes the maximum."""
    given = get_field(args, name)
    if given is None:
        return default
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10:
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ToolError(f"{name} must be a whole number above 0.")
    return min(given, maximum)


def get_input(args: Mapping[str, Any]) -> str:
    """Return the input as text; data becomes JSON."""
    given = args.get("input")
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()
