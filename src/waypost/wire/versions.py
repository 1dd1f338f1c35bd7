"""The protocol versions Waypost speaks, oldest first, and how they compare."""

from __future__ import annotations

from typing import Final

V2024_11_05: Final = "2024-11-05"
V2025_03_26: Final = "2025-03-26"
V2025_06_18: Final = "2025-06-18"
V2025_11_25: Final = "2025-11-25"
V2026_07_28: Final = "2026-07-28"

LEGACY: Final = (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25)
MODERN: Final = (V2026_07_28,)
ALL: Final = LEGACY + MODERN
LATEST_LEGACY: Final = V2025_11_25

_POSITION: Final = {version: position for position, version in enumerate(ALL)}


def at_least(version: str, other: str) -> bool:
    """Whether `version` is `other` or newer; both must be known."""
    return _POSITION[version] >= _POSITION[other]


def is_modern(version: str) -> bool:
    """Whether `version` is stateless."""
    return version in MODERN


def negotiate(requested: str, offered: tuple[str, ...] = LEGACY) -> str:
    """The session version to answer `initialize` with: the one asked for, else the newest offered."""
    return requested if requested in offered else offered[-1]
