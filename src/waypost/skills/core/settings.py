"""What the operator gives the core skills to work with; nothing of it can be changed by arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waypost.errors import DefinitionError

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
