"""What a core skill works with: the operator's settings, and the arguments of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from waypost.errors import DefinitionError, ToolError

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.upstreams.egress import Egress

    Run = Callable[[Mapping[str, Any], Context], Awaitable[Any]]
    """A skill at work: its arguments and the call's context in, plain data or text out."""


@dataclass(frozen=True)
class CoreSettings:
    """The surroundings of the core skills; `inside` fetches from addresses that the operator wrote down."""

    egress: Egress
    inside: Egress | None = None
    searxng: str | None = None
    shell_allowed: tuple[tuple[str, ...], ...] = ()
    shell_directory: Path = Path()
    data_directory: Path = Path()
    timeout: float = 30.0

    def __post_init__(self) -> None:
        if not all(prefix and all(prefix) for prefix in self.shell_allowed):
            raise DefinitionError("A command allowed to the shell skill needs at least a program.")


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
