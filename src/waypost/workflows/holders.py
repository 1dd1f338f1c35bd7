"""Which process runs a move, and whether that process is still there.

A move that is being run is held for a while and again and again. A process on the same machine is asked after at once:
its name holds the machine's boot, the pid namespace, the pid and when it began, so that no other can be taken for it.
"""

from __future__ import annotations

import os
import secrets
from functools import cache
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@cache
def _machine() -> str:
    """What tells this machine, since it was booted, from all others; nothing where that cannot be known."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """When a process began, in the words of the kernel; nothing when there is no such process."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def this_process() -> str:
    """The name of this process, and of nothing that comes after it."""
    return f"{_machine()}|{os.getpid()}|{_began(os.getpid()) or ''}|{secrets.token_hex(4)}"


def is_gone(holder: str) -> bool:
    """Whether a process is known to have ended; false when that cannot be known from here."""
    machine, _, rest = holder.partition("|")
    pid, _, more = rest.partition("|")
    began = more.partition("|")[0]
    if not machine or machine != _machine() or not pid.isdecimal() or not began:
        return False
    return _began(int(pid)) != began
