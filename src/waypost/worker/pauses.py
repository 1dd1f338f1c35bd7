"""How long to wait before something is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """Pauses between attempts to connect, in seconds: each twice as long as the one before, none alike."""

    first: float = 1.0
    longest: float = 30.0
    jitter: float = 0.3
    """By which part a pause may be shorter or longer."""

    def pause(self, failed: int) -> float:
        """How long to wait after so many attempts in a row."""
        pause = min(self.first * 2.0 ** min(failed, 30), self.longest)
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)  # noqa: S311  # no secret


@dataclass(frozen=True, slots=True)
class Handshake:
    """How a skill or prompt is published when the registry is not there yet, in seconds."""

    first: float = 5.0
    longest: float = 60.0
    """Pauses grow from the first to the longest, each twice as long as the one before."""
    most: float = 180.0
    """After which it is given up, until the worker connects again."""
    within: float = 5.0
    """How long each attempt may take."""
