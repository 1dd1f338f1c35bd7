"""A real NATS server for tests and benchmarks."""

from __future__ import annotations

import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.ports import free_port

BINARY: Final = Path(sysconfig.get_path("scripts")) / "nats-server"
_START_S: Final = 60.0


class NatsServer:
    """A server on one port, which can be killed and started again there."""

    def __init__(self, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self._command = [str(BINARY), "-a", "127.0.0.1", "-p", str(self.port), *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL that clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, "the NATS server ended"
                assert time.monotonic() < until, "the NATS server does not listen"
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """End it at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@contextmanager
def running_nats(*options: str) -> Iterator[NatsServer]:
    """A server with command-line options."""
    server = NatsServer(*options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """The URL of a server that all tests of a process share."""
    with running_nats() as server:
        yield server.url
