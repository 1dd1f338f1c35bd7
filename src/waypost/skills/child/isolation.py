"""What a skill's process may use and do: limits of the system, and checks where Python notices an action.

The checks are a guardrail, not a sandbox: a skill that means harm finds a way around them. What holds against that are
the limits of the process and, for a hub that serves strangers' skills, a container or a user of its own.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NoReturn

from waypost.skills.child.messages import Start

if TYPE_CHECKING:
    from collections.abc import Iterator


_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38


def apply_limits(start: Start) -> None:
    """Set the limits of this process, and have it end with the hub."""
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
        return  # not Linux: the end of the socket still ends a process that is not busy
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


class CpuTime:
    """Gives every call the same CPU time, though the system counts the whole process."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._until = 0

    def grant(self) -> None:
        """Raise the limit for the next call; the system counts in whole seconds."""
        needed = time.process_time() + self._seconds
        if needed <= self._until:
            return
        self._until = ceil(needed)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = self._until if hard == resource.RLIM_INFINITY else min(self._until, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


_NETWORK: Final = (
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyaddr",
    "socket.gethostbyname",
    "socket.getnameinfo",
    "socket.sendmsg",
    "socket.sendto",
)
_PROCESSES: Final = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
)
_MEMORY: Final = (
    "ctypes.addressof",
    "ctypes.call_function",
    "ctypes.cdata",
    "ctypes.cdata/buffer",
    "ctypes.dlopen",
    "ctypes.dlsym",
    "ctypes.dlsym/handle",
    "ctypes.PyObj_FromPtr",
    "ctypes.string_at",
    "ctypes.wstring_at",
)


class Guard:
    """Refuses child processes, ctypes and changes of limits to every skill, and the network without a permission."""

    def __init__(self) -> None:
        self.network = False
        self._is_suspended = False

    def install(self) -> None:
        """Start checking; an audit hook cannot be removed."""
        _disable_fork_exec()
        checks: dict[str, Callable[[tuple[Any, ...]], None]] = {
            **dict.fromkeys(_NETWORK, self._check_network),
            **dict.fromkeys(_PROCESSES, _refuse_process),
            **dict.fromkeys(_MEMORY, _refuse_memory),
            **dict.fromkeys(("os.kill", "os.killpg"), _check_kill),
            **dict.fromkeys(("resource.setrlimit", "resource.prlimit"), self._check_limit),
            "open": _check_open,
        }

        def hook(event: str, args: tuple[Any, ...]) -> None:
            check = checks.get(event)
            if check is not None:
                check(args)

        sys.addaudithook(hook)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Allow this program to set a limit itself."""
        self._is_suspended = True
        try:
            yield
        finally:
            self._is_suspended = False

    def _check_network(self, _: tuple[Any, ...]) -> None:
        if not self.network:
            raise PermissionError("A skill may use the network only with the permission web_read.")

    def _check_limit(self, _: tuple[Any, ...]) -> None:
        if not self._is_suspended:
            raise PermissionError("A skill may not change the limits of its process.")


def _refuse_process(_: tuple[Any, ...]) -> None:
    raise PermissionError("A skill may not start other processes.")


def _refuse_memory(_: tuple[Any, ...]) -> None:
    raise PermissionError("A skill may not use ctypes.")


def _check_kill(args: tuple[Any, ...]) -> None:
    if args[0] != os.getpid():
        raise PermissionError("A skill may not send signals to other processes.")


def _check_open(args: tuple[Any, ...]) -> None:
    """Refuse files of other processes in /proc, such as the hub's environment and memory."""
    path = args[0]
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or "proc" not in path:
        return
    parts = os.path.abspath(path).split("/")
    if len(parts) > 2 and parts[1] == "proc" and parts[2].isdigit() and int(parts[2]) != os.getpid():
        raise PermissionError("A skill may not look into other processes.")


def _disable_fork_exec() -> None:
    """Disable the one way to start a process that raises no audit event."""
    try:
        import _posixsubprocess
    except ImportError:
        return

    def fork_exec(*_: object) -> NoReturn:
        raise PermissionError("A skill may not start other processes.")

    _posixsubprocess.fork_exec = fork_exec
