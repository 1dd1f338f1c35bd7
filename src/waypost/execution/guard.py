"""The port of the pipeline to what stands guard over it: who may, how often, how many at once, on record."""

from __future__ import annotations

from typing import Any, Protocol

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller


class Permit:
    """That something may run now, and what is needed to put its end on record."""

    __slots__ = ("action", "arguments", "began", "caller", "name", "probes", "waits")

    def __init__(
        self, name: str, caller: Caller, action: str, arguments: Any, began: float, *, probes: bool, waits: bool
    ) -> None:
        self.name = name
        self.caller = caller
        self.action = action
        self.arguments = arguments
        self.began = began
        self.probes = probes
        """Whether it is to find out if a circuit may be closed again."""
        self.waits = waits
        """Whether it has to wait for a place first."""


class Guard(Protocol):
    """Stands before every execution, and hears how it ended."""

    @property
    def is_on(self) -> bool:
        """Whether it has anything to say about what asks for no permissions."""

    def enter(self, capability: Capability, name: str, caller: Caller, action: str, arguments: Any) -> Permit:
        """Let it run; `PolicyDenied`, `CircuitOpen` or `Busy` say why not."""

    async def wait(self, permit: Permit) -> None:
        """Wait for a place."""

    def leave(self, permit: Permit, error: BaseException | None, *, is_error: bool = False) -> None:
        """It has ended: well, with an error it tells about itself, or with an exception."""
