"""A contender in a process of its own that is asked over pipes, one JSON line each way."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, BinaryIO, Final

import msgspec

from benchmarks.harness import StartFailed, environment

_READ: Final = 1 << 16


class Child:
    """A running contender; it says `"ready"` when it can be asked."""

    def __init__(self, module: str, *arguments: str, python: str = sys.executable, start_within: float = 30.0) -> None:
        self._log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # closed by stop
        self._process = subprocess.Popen(
            [python, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env=environment(),
        )
        self._unread = b""
        try:
            self._answer(start_within)
        except BaseException:
            self.stop()
            raise

    def ask(self, question: Any, within: float = 60.0) -> Any:
        """What it answers; `StartFailed` when it has ended or takes too long."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        except OSError:
            raise StartFailed(f"ended: {self.last_words()}") from None
        return self._answer(within)

    def last_words(self) -> str:
        """The last line it wrote to stderr."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)
        self._process.stdout.close()
        self._log.close()

    def _answer(self, within: float) -> Any:
        assert self._process.stdout is not None
        until = monotonic() + within
        while b"\n" not in self._unread:
            if not select.select([self._process.stdout], [], [], max(0.0, until - monotonic()))[0]:
                raise StartFailed(f"no answer within {within:g} s: {self.last_words()}")
            data = os.read(self._process.stdout.fileno(), _READ)
            if not data:
                self._process.wait(timeout=10)
                raise StartFailed(f"exited with {self._process.returncode}: {self.last_words()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return msgspec.json.decode(line)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def answer_questions(answer: Callable[[Any], Any]) -> None:
    """The child's side: answer line by line until stdin ends; whatever else is printed goes to stderr."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    out.write(b'"ready"\n')
    for line in sys.stdin.buffer:
        out.write(msgspec.json.encode(answer(msgspec.json.decode(line))) + b"\n")
