"""Starts contenders as pinned subprocesses, watches them, and stops them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from benchmarks.client import BadAnswer
from benchmarks.report import Report

ROOT = Path(__file__).parent.parent
HOST = "127.0.0.1"
CONTENDERS = {
    "waypost": "benchmarks.contenders.waypost_hub",
    "guarded": "benchmarks.contenders.guarded_hub",
    "replica": "benchmarks.contenders.replica_hub",
    "mcp lowlevel": "benchmarks.contenders.mcp_lowlevel",
    "fastmcp": "benchmarks.contenders.fastmcp4",
    "static": "benchmarks.contenders.static_asgi",
    "bare": "benchmarks.contenders.bare_protocol",
    "waypost gateway": "benchmarks.contenders.waypost_gateway",
    "many upstreams": "benchmarks.contenders.many_upstreams",
    "fastmcp proxy": "benchmarks.contenders.fastmcp_proxy",
    "contextforge": "benchmarks.contenders.contextforge",
    "worker hub": "benchmarks.contenders.worker_hub",
    "websockets echo": "benchmarks.contenders.websocket_echo",
    "console hub": "benchmarks.contenders.console_hub",
}
MCP_SERVERS = ("waypost", "mcp lowlevel", "fastmcp")
POLL_SECONDS = 0.002
_CORES = sorted(os.sched_getaffinity(0))


class StartFailed(Exception):
    """A contender did not come up."""


def pin_generator() -> None:
    """Keep this process off the core that the contenders run on."""
    if len(_CORES) > 1:
        os.sched_setaffinity(0, {_CORES[1]})


@contextmanager
def all_cores() -> Iterator[None]:
    """Let this process, and those it starts meanwhile, run anywhere: for work that has no generator beside it."""
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, pinned)


def _pin_contender() -> None:
    os.sched_setaffinity(0, {_CORES[0]})


def _unpin() -> None:
    os.sched_setaffinity(0, _CORES)


def environment(data: Path | None = None) -> dict[str, str]:
    """A contender's environment: this source tree, and its own data directory."""
    extra = {"WAYPOST_DATA": str(data)} if data else {}
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **extra}


class Server:
    """A running contender."""

    def __init__(self, name: str, *, tools: int = 1, stdio: bool = False, is_pinned: bool = True) -> None:
        self.name = name
        self.tools = tools
        self.port = 0 if stdio else free_port()
        self.scratch = Path(tempfile.mkdtemp(prefix="waypost-bench-"))
        where = ["--stdio"] if stdio else ["--port", str(self.port)]
        pipe = subprocess.PIPE if stdio else subprocess.DEVNULL
        self.started = time.perf_counter()
        with (self.scratch / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", CONTENDERS[name], *where, "--tools", str(tools)],
                stdin=pipe,
                stdout=subprocess.PIPE if stdio else log,
                stderr=log,
                bufsize=0,
                cwd=self.scratch,
                env=environment(self.scratch / "data"),
                preexec_fn=_pin_contender if is_pinned else _unpin,
            )

    def wait_until_listening(self, timeout: float) -> None:
        """Poll the port; the first connection that is accepted ends the wait."""
        deadline = self.started + timeout
        while time.perf_counter() < deadline:
            if self.process.poll() is not None:
                raise StartFailed(f"exited with {self.process.returncode}: {self.last_words()}")
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
            except OSError:
                time.sleep(POLL_SECONDS)
            else:
                return
        raise StartFailed(f"not listening after {timeout:g} s: {self.last_words()}")

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def busy_ms(self) -> float:
        """The time that its threads were on a core: finer than `cpu_seconds`, and the same on a machine under load."""
        spent = 0
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(OSError):  # a thread that ended meanwhile
                spent += int((thread / "schedstat").read_text().split()[0])
        return spent / 1e6

    def last_words(self) -> str:
        lines = (self.scratch / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=5)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


class Fleet:
    """The contenders of one scenario; all of them are stopped at the end."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.servers: list[Server] = []

    def start(
        self, name: str, *, tools: int = 1, stdio: bool = False, is_pinned: bool = True, timeout: float = 20.0
    ) -> Server | None:
        """Start one and wait for its port; a failure is noted in the report and gives None."""
        server = Server(name, tools=tools, stdio=stdio, is_pinned=is_pinned)
        try:
            if not stdio:
                server.wait_until_listening(timeout)
        except StartFailed as error:
            server.stop()
            self.report.fail(name, str(error))
            return None
        self.servers.append(server)
        return server

    def drop(self, server: Server, reason: str) -> None:
        """Take a contender that misbehaves out of the scenario."""
        self.report.fail(server.name, f"{reason}; log: {server.last_words()}")
        self.servers.remove(server)
        server.stop()

    def attempt(self, server: Server, action: Callable[[], None]) -> None:
        """Measure one contender; one that fails at it leaves the scenario."""
        try:
            action()
        except (BadAnswer, OSError) as error:
            self.drop(server, f"{type(error).__name__}: {error}")

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.stop()


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
