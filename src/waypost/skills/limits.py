"""How much dynamic skills may take."""

from __future__ import annotations

from typing import Final

import msgspec

MIB: Final = 1024 * 1024

LARGEST_FILE: Final = MIB
"""The most bytes of a skill's file."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of all dynamic skills, one process, and one call may take; times are seconds, sizes bytes."""

    processes: int = 16
    waiting: int = 10_000
    idle: float = 60.0
    start: float = 10.0
    cpu: int = 60
    memory: int = 512 * MIB
    files: int = 64
    file_size: int = 64 * MIB
    result: int = 64 * MIB
    output: int = MIB // 16
