"""What a skill's process may use and do: limits and confinement by the kernel, and checks by Python's audit events.

The checks are a guardrail: a skill that means harm finds a way around them. What holds against that are the limits and,
where the kernel has Landlock, the confinement: no file but those listed here, and no access to other processes.
"""

from __future__ import annotations

import os
import resource
import signal
import stat
import struct
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
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38

# The system calls have these numbers on every architecture.
_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_ADD_RULE: Final = 445
_LANDLOCK_RESTRICT_SELF: Final = 446
_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_EXECUTE: Final = 1 << 0
_SCOPED: Final = 0b11
"""Abstract UNIX sockets and signals: none to processes outside."""

_LIBRARIES: Final = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/nix/store")
_SYSTEM_FILES: Final = (
    # What the C library and Python read to load libraries, to know time zones, and to resolve and verify hosts.
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf"),
    *("/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/ssl", "/etc/pki", "/etc/ca-certificates"),
    *("/etc/mime.types", "/usr/share/zoneinfo", "/usr/share/ca-certificates", "/usr/share/locale"),
    *("/dev/urandom", "/dev/random", "/dev/zero", "/proc/self", "/proc/cpuinfo", "/proc/meminfo"),
    "/sys/devices/system/cpu",
)


def apply_limits(start: Start) -> None:
    """Set the limits of this process, have it end with the hub, and confine it to its files."""
    for kind, most in (
        (resource.RLIMIT_AS, start.memory),
        (resource.RLIMIT_NOFILE, start.files),
        (resource.RLIMIT_FSIZE, start.file_size),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(kind, most)
    libc = _load_libc()
    if libc is None:
        return  # not Linux: the end of the socket still ends a process that is not busy
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Other processes of the same user, such as those of other skills, cannot read this one's memory.
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != start.parent:
        os._exit(0)
    _confine(libc, [start.folder, *_list_python_paths(), *_LIBRARIES, *_SYSTEM_FILES], os.getcwd())


def _load_libc() -> Any:
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):
        return None
    return libc if sys.platform == "linux" else None


def _list_python_paths() -> list[str]:
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    return [*prefixes, os.path.join(package, "waypost"), *sys.path]


def _confine(libc: Any, readable: list[str], writable: str) -> None:
    """Deny this process all files but these, and all other processes; does nothing where the kernel has no Landlock.

    A process in a Landlock domain may not trace processes outside of it, which is what the kernel checks when a file
    such as /proc/PID/environ or /proc/PID/mem is opened. Nothing is executable: no other program can be started.
    """
    import ctypes

    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    if abi < 1:
        return
    # Each version knows further rights; a kernel refuses those that it does not know.
    handled = (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1
    attributes = (ctypes.c_uint64 * 3)(handled, 0, _SCOPED if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "the skill's process cannot be confined")
    try:
        for path in filter(None, readable):
            _allow(libc, ruleset, path, _READ_FILE | _READ_DIR)
        _allow(libc, ruleset, "/dev/null", _READ_FILE | _WRITE_FILE | _TRUNCATE & handled)
        _allow(libc, ruleset, writable, handled & ~_EXECUTE)
        if libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "the skill's process cannot be confined")
    finally:
        os.close(ruleset)


def _allow(libc: Any, ruleset: int, path: str, rights: int) -> None:
    import ctypes

    try:
        number = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # there is no such file here
    try:
        if not stat.S_ISDIR(os.fstat(number).st_mode):
            rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
        rule = struct.pack("=Qi", rights, number)  # packed: the kernel's struct has no padding
        if libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.c_char_p(rule), 0) != 0:
            raise OSError(ctypes.get_errno(), f"{path} cannot be allowed to the skill's process")
    finally:
        os.close(number)


def _lower(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


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
