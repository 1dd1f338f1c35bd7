"""How the port for workers is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from waypost.errors import DefinitionError

PORT: Final = 49134


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Where workers connect to, and what they may do."""

    host: str = "127.0.0.1"
    port: int = PORT
    token: str = ""
    """What workers show; nothing lets everybody in who reaches the port."""
    state_timeout: float = 10.0
    """Seconds that `state::*`, sections and prompts may take."""
    registry: bool = True
    """Whether the hub keeps skills and prompts for workers itself."""
    share: bool = False
    """Whether a worker may change what another one registered."""
    observe: bool = True
    """Whether workers may observe the calls of functions."""
    allow_private: bool = False
    """Whether functions that are called over HTTP may be at private addresses."""
    secrets: tuple[str, ...] = ()
    """The variables of the hub's environment that functions which are called over HTTP may be shown."""


def settings_of(given: Mapping[str, Any]) -> WorkerSettings:
    """The settings that somebody gives by name; a name that is none is a `DefinitionError`."""
    known = [field.name for field in fields(WorkerSettings)]
    for name in given:
        if name not in known:
            raise DefinitionError(f"There is no setting {name!r} for workers; there are {', '.join(known)}.")
    return WorkerSettings(**given)
