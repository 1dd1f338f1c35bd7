"""Whoever has functions called when something happens: workers, and parts of the hub itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from waypost.capabilities.context import Caller
from waypost.workers.functions import DEFAULT


class Listener(Protocol):
    """What makes bindings and observers, as far as they need to know it."""

    caller: Caller | None
    """Who it is to the rules, once that was asked."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def owner(self) -> str:
        """What the hub calls it where it keeps what belongs to it."""

    @property
    def is_gone(self) -> bool: ...
    def send(self, message: Struct) -> None:
        """Tell it what became of what it asked for."""


@dataclass(eq=False, slots=True)
class Inside:
    """A part of the hub that listens."""

    name: str
    caller: Caller | None
    send: Callable[[Struct], None]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    namespace: str = DEFAULT
    owner: str = "hub"
    is_gone: bool = False
