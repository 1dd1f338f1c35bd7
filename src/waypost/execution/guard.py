"""The port of the pipeline to what stands guard over it: who may, how often, on record."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Protocol

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller


class Permit:
    """That something may run now, and what is needed to put its end on record."""

    __slots__ = ("action", "began", "caller", "digest", "name", "probes")

    def __init__(self, name: str, caller: Caller, action: str) -> None:
        self.name = name
        self.caller = caller
        self.action = action
        self.began = perf_counter()
        self.digest = ""
        """Of its arguments as they came, for the record."""
        self.probes = False
        """Whether it is to find out if a circuit may be closed again."""


class Guard(Protocol):
    """Stands before every execution, and hears how it ended."""

    @property
    def is_on(self) -> bool:
        """Whether it has anything to say about what asks for no permissions."""

    def enter(self, capability: Capability, name: str, caller: Caller, action: str, arguments: Any) -> Permit:
        """Let it run; `PolicyDenied`, `CircuitOpen` or `Busy` say why not."""

    def leave(self, permit: Permit, error: BaseException | None, *, is_error: bool = False) -> None:
        """It has ended: well, with an error it tells about itself, or with an exception."""
