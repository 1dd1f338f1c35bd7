"""The `waypost` command as a real process: run to its end, or kept serving."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

COMMAND = str(Path(sys.executable).with_name("waypost"))
PATIENCE = 60.0


def environment(**more: str) -> dict[str, str]:
    """The environment of this process without the variables of a hub."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WAYPOST_", "PYTEST_"))}
    return {**kept, **more}


def waypost(*arguments: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


class Serving:
    """A hub that serves over HTTP, and its stderr."""

    def __init__(self, process: subprocess.Popen[str], stderr: IO[str]) -> None:
        self.process = process
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._stderr = stderr
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stderr:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._lines.append("")
            self._news.notify_all()

    @property
    def lines(self) -> list[str]:
        """The lines on stderr so far."""
        with self._news:
            return [line for line in self._lines if line]

    def wait_for(self, text: str, times: int = 1, within: float = PATIENCE) -> str:
        """Wait for a line that contains `text`."""
        deadline = time.monotonic() + within
        with self._news:
            while True:
                found = [line for line in self._lines if text in line]
                if len(found) >= times:
                    return found[times - 1]
                ended = self._lines[-1:] == [""]
                assert not ended, f"it ended without {text!r}: {self._lines}"
                assert self._news.wait(deadline - time.monotonic()), f"no {text!r} came: {self._lines}"

    @property
    def url(self) -> str:
        """The URL of the hub."""
        return self.find_url()

    def find_url(self, within: float = PATIENCE) -> str:
        """Wait for the URL of the hub."""
        ready = self.wait_for(" is ready at ", within=within)
        return ready.partition(" is ready at ")[2].partition(", for workers at ")[0]

    def find_worker_url(self) -> str:
        """Wait for the URL of the worker socket."""
        return self.wait_for(", for workers at ").rpartition(" ")[2]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


@contextmanager
def serving(*arguments: str | Path, cwd: Path, **env: str) -> Iterator[Serving]:
    """`waypost serve` with these arguments, until the block ends."""
    process = subprocess.Popen(
        [COMMAND, "serve", *map(str, arguments)],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    hub = Serving(process, process.stderr)
    try:
        yield hub
    finally:
        if process.poll() is None:
            process.terminate()
        hub.wait()
        process.stderr.close()
