"""The limits of a skill's process, set before any of its code runs."""

from __future__ import annotations

import os
import resource
import signal
import time
from math import ceil
from typing import Final

from waypost.skills.child.messages import Start

_SET_PDEATHSIG: Final = 1
_SET_NO_NEW_PRIVS: Final = 38


def apply_limits(start: Start) -> None:
    """Bound what this process can take, and let it end with the hub."""
    for kind, most in (
        (resource.RLIMIT_AS, start.memory),
        (resource.RLIMIT_NOFILE, start.files),
        (resource.RLIMIT_FSIZE, start.file_size),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(kind, most)
    _tie_to_parent(start.parent)


def _lower(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _tie_to_parent(parent: int) -> None:
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return  # no Linux: the end of the socket still ends a process that is not busy
    prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


class CpuTime:
    """Gives every call the same CPU time, though the system counts that of the whole process."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._until = 0

    def grant(self) -> None:
        """Let the next call have all of it; the system counts in whole seconds."""
        needed = time.process_time() + self._seconds
        if needed <= self._until:
            return
        self._until = ceil(needed)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = self._until if hard == resource.RLIM_INFINITY else min(self._until, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
