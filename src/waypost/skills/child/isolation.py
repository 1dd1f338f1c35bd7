"""What a skill's process may use and do: limits and confinement by the kernel, and checks by Python's audit events.

The checks are a guardrail: a skill that means harm finds a way around them. What holds against that are the limits and,
where the kernel has Landlock, the confinement: no file but those listed here, and no access to other processes.

A skill that is declared external runs below a keeper. The keeper is a subreaper: whatever the skill starts stays below
it, also what has left the process group. So everything can be found from the keeper, and the keeper ends what is left
when the skill's process has ended in any way. It stays outside of the skill's confinement, where it could not see them.
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
from contextlib import contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NoReturn

from waypost.skills.child.messages import Start

if TYPE_CHECKING:
    from collections.abc import Iterator


_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
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
_TCP: Final = 0b11
"""To bind a TCP socket, and to connect one."""
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


_NICENESS: Final = 5
"""Where the hub and a skill want the same processor, the skill gets a third of the time that the hub gets."""
_PROGRAMS: Final = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/libexec")
"""Where the programs are that an external skill may run."""


def apply_limits(start: Start) -> None:
    """Set the limits of this process, have it end with the hub, and confine it to its files.

    An external skill goes on in a process below this one. What it starts inherits limits and confinement.
    """
    # Skills that compute must not keep the hub from running: all clients wait for it.
    os.nice(_NICENESS)
    libc = _load_libc()
    if libc is not None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # Other processes of the same user, such as those of other skills, cannot read this one's memory.
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        # Without it the kernel lets no unprivileged process confine itself: a setuid program could be misled.
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # A hub that ended before the signal was asked for will not cause it any more.
        if os.getppid() != start.parent:
            os._exit(0)
        _lower(resource.RLIMIT_CORE, 0)
        if start.children:
            run_below_keeper(libc)
    # Below the keeper, which must not run out of memory or files itself: it is the one that cleans up.
    for kind, most in (
        (resource.RLIMIT_AS, start.memory),
        (resource.RLIMIT_NOFILE, start.files),
        (resource.RLIMIT_FSIZE, start.file_size),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(kind, most)
    if libc is None:
        return  # not Linux: the end of the socket still ends a process that is not busy
    # Confinement is last: the keeper stays outside of it, where it can see and end what the skill starts.
    # Programs need the loader among the libraries, and Python itself to run another one.
    executable = [*_list_python_paths(), *_LIBRARIES, *(_PROGRAMS if start.children else ())]
    rights = _READ_FILE | _READ_DIR | (_EXECUTE if start.children else 0)
    readable = dict.fromkeys(executable, rights) | dict.fromkeys((start.folder, *_SYSTEM_FILES), rights & ~_EXECUTE)
    _confine(libc, readable, os.getcwd(), start.network)


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


def _confine(libc: Any, readable: dict[str, int], writable: str, network: bool) -> None:
    """Deny this process all files but these, and all other processes; does nothing where the kernel has no Landlock.

    A process in a Landlock domain may not trace processes outside of it, which is what the kernel checks when a file
    such as /proc/PID/environ or /proc/PID/mem is opened. What can be written is never executable. Unless the skill
    declares the network, it cannot make or take TCP connections either, nor can a program that it starts.
    """
    import ctypes

    # With this flag the call returns the version of Landlock instead of a ruleset.
    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    if abi < 1:
        return
    # Each version knows further rights; a kernel refuses those that it does not know.
    handled = (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1
    tcp = _TCP if abi >= 4 and not network else 0
    attributes = (ctypes.c_uint64 * 3)(handled, tcp, _SCOPED if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "the skill's process cannot be confined")
    try:
        for path, rights in readable.items():
            if path:
                _allow(libc, ruleset, path, rights)
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
            rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE | _EXECUTE
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
        # Only the soft limit: a hard limit that was lowered could not be raised for the next call.
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = self._until if hard == resource.RLIM_INFINITY else min(self._until, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


_NETWORK: Final = (
    *("socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto"),
    *("socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname", "socket.getnameinfo"),
)
_FORKS: Final = ("os.exec", "os.fork", "os.forkpty", "os.spawn", "os.startfile", "pty.spawn")
"""Events that copy or replace this process, and with it the socket to the hub."""
_PROGRAM_STARTS: Final = ("os.posix_spawn", "os.system", "subprocess.Popen")
_MEMORY: Final = (
    *("ctypes.addressof", "ctypes.call_function", "ctypes.cdata", "ctypes.cdata/buffer", "ctypes.dlopen"),
    *("ctypes.dlsym", "ctypes.dlsym/handle", "ctypes.PyObj_FromPtr", "ctypes.string_at", "ctypes.wstring_at"),
)


class Guard:
    """Refuses ctypes and changes of limits to every skill, processes to most, and the network without a permission."""

    def __init__(self, start: Start) -> None:
        self.network = False
        self._start = start
        self._is_suspended = False

    def install(self) -> None:
        """Start checking; an audit hook cannot be removed."""
        self._guard_fork_exec()
        checks: dict[str, Callable[[tuple[Any, ...]], None]] = {
            **dict.fromkeys(_NETWORK, self._check_network),
            **dict.fromkeys(_PROGRAM_STARTS, self._check_process),
            **dict.fromkeys(_FORKS, _refuse_fork if self._start.children else self._check_process),
            **dict.fromkeys(_MEMORY, _refuse_memory),
            **dict.fromkeys(("os.kill", "os.killpg"), self._check_kill),
            **dict.fromkeys(("resource.setrlimit", "resource.prlimit"), self._check_limit),
            "open": _check_open,
        }

        # Python calls it for every audit event, of which an import has thousands: only one lookup.
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

    def _check_process(self, _: tuple[Any, ...]) -> None:
        if not self._start.children:
            raise PermissionError("A skill may not start other processes, unless it declares external = True.")
        if self._start.network and not self.network:  # a program would not ask for the permission
            raise PermissionError("A skill may not start other processes while it may not use the network.")

    def _check_kill(self, args: tuple[Any, ...]) -> None:
        if args[0] != os.getpid() and not (self._start.children and _is_child(args[0])):
            raise PermissionError("A skill may not send signals to other processes.")

    def _guard_fork_exec(self) -> None:
        """Guard the one way to start a process that raises no audit event."""
        try:
            import _posixsubprocess
        except ImportError:
            return
        fork_exec = _posixsubprocess.fork_exec

        def check_and_fork(*args: Any) -> int:
            self._check_process(args)
            return int(fork_exec(*args))

        _posixsubprocess.fork_exec = check_and_fork

    def _check_limit(self, _: tuple[Any, ...]) -> None:
        if not self._is_suspended:
            raise PermissionError("A skill may not change the limits of its process.")


def _refuse_fork(_: tuple[Any, ...]) -> None:
    raise PermissionError("A skill may not copy or replace its process; start a program with subprocess.")


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, OSError):
        return False
    return True


def _refuse_memory(_: tuple[Any, ...]) -> None:
    raise PermissionError("A skill may not use ctypes.")


def _check_open(args: tuple[Any, ...]) -> None:
    """Refuse files of other processes in /proc, such as the hub's environment and memory."""
    path = args[0]
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    # Most files are not below /proc, and this runs for each one that is opened.
    if not isinstance(path, str) or "proc" not in path:
        return
    parts = os.path.abspath(path).split("/")
    if len(parts) > 2 and parts[1] == "proc" and parts[2].isdigit() and int(parts[2]) != os.getpid():
        raise PermissionError("A skill may not look into other processes.")


_ROUNDS: Final = 50
_MAX_FILES: Final = 65_536


def find_descendants(pid: int) -> list[int]:
    """The living processes below one, without those that only wait to be reaped."""
    children: dict[int, list[int]] = {}
    ended = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program is in parentheses and may have any characters.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        children.setdefault(int(parent), []).append(int(name))
        if state in (b"Z", b"X"):
            ended.add(int(name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return [one for one in found if one not in ended]


def kill_descendants(pid: int) -> None:
    """Kill everything below a process. All are stopped first, because a stopped process starts no others."""
    stopped: set[int] = set()
    for _ in range(_ROUNDS):
        found = find_descendants(pid)
        fresh = [one for one in found if one not in stopped]
        # A process that starts others meanwhile is found in the next round, until a round finds none that runs.
        for one in fresh or found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGSTOP if fresh else signal.SIGKILL)
        stopped.update(fresh)
        if not found:
            return


def run_below_keeper(libc: Any) -> None:
    """Go on in a new process; this one becomes its keeper, and ends with it and like it."""
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keeper = os.getpid()
    skill = os.fork()
    if skill == 0:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(0)
        return
    # Not SIGKILL, as for the skill: the keeper must live on for a moment to end what the skill has started.
    signal.signal(signal.SIGTERM, lambda *_: _end(0))
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    os.closerange(3, _MAX_FILES)  # the socket to the hub is closed when the skill's own end of it is
    while True:
        ended, status = os.wait()
        if ended == skill:
            _end(status)


def _end(status: int) -> NoReturn:
    """End what is left, and then like the skill's process, so that the hub sees why that ended."""
    kill_descendants(os.getpid())
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
