"""Servers of this folder as real processes, for clients of other projects."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
STARTUP = 60.0
SHUTDOWN = 60.0


def command(module: str, transport: str) -> list[str]:
    """The command line that serves the `hub` of a module of this folder; over HTTP it picks a free port."""
    arguments = '"http", port=0' if transport == "http" else '"stdio"'
    keeping = "import os, tempfile; os.environ['WAYPOST_DATA'] = tempfile.mkdtemp(prefix='waypost-')"
    return [sys.executable, "-c", f"from tests.interop.{module} import hub; {keeping}; hub.run({arguments})"]


class Output:
    """The stderr of a server: its URL, then errors, if any."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self.url = ""
        self._stream = stream
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            if not self.url and " is ready at " in line:
                self.url = line.rpartition(" ")[2].strip()
                self._ready.set()
            else:
                self.lines.append(line)
        self._ready.set()

    def wait_for_url(self) -> str:
        """Wait for the URL of the server."""
        self._ready.wait(STARTUP)
        assert self.url, "The server did not start:\n" + "".join(self.lines)
        return self.url

    def wait_for_end(self) -> str:
        """The rest of its output, after it has ended."""
        self._thread.join(SHUTDOWN)
        return "".join(self.lines)


@contextmanager
def served(module: str) -> Iterator[str]:
    """The URL of a module's hub, served over HTTP until the block ends; a traceback in its output is a failure."""
    with served_by(command(module, "http")) as url:
        yield url


@contextmanager
def served_by(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of the hub that a command serves until the block ends; a traceback in its output is a failure."""
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    output = Output(process.stderr)
    try:
        yield output.wait_for_url()
    finally:
        process.terminate()
        process.wait(SHUTDOWN)
        complaints = output.wait_for_end()
        process.stderr.close()
    assert "Traceback" not in complaints, complaints
