"""The executor that runs a file only while it is what was approved.

What runs is a private copy of the bytes that were compared, so nobody can exchange the file in between.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from waypost.config import executors as models
from waypost.errors import ExecutorFailed
from waypost.workflows.executors.executor import Run
from waypost.workflows.executors.processes import Program

_TOLD: Final = 12
_LOOKED_AT: Final = 1024


class Script:
    """A file and the digest it was approved with."""

    kind: Final = "script"
    evidence: Final = "script_output"
    limit: Final = None

    def __init__(self, model: models.Script, roots: frozenset[str]) -> None:
        self._model = model
        self._program = Program(model, roots)

    async def run(self, run: Run) -> Any:
        """`{exitCode, success, stdout, stderr, json}`."""
        file = Path(self._model.file)
        content = await asyncio.to_thread(_approved, file, self._model.sha256)
        # Some ways to start a program hand such a text to a shell.
        if not self._model.command and not content.startswith(b"#!") and b"\0" not in content[:_LOOKED_AT]:
            raise ExecutorFailed(f"{file.name} is a text without a `#!` line; `command` has to say what interprets it.")
        # Somebody who cancels while the copy is written would otherwise see its folder vanish as an error.
        with TemporaryDirectory(prefix="waypost-script-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder, file.name)
            try:
                await asyncio.to_thread(_copy, copy, content)
            except OSError as error:
                raise ExecutorFailed(f"{file.name} cannot be copied: {error.strerror}.", "transient_error") from None
            return await self._program.run(run, [*self._model.command, str(copy)])


def _approved(file: Path, digest: str) -> bytes:
    """The bytes of the file, if they are the approved ones."""
    content = _read(file)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ExecutorFailed(
            f"{file.name} is not what was approved: its SHA-256 begins with {found[:_TOLD]}, not {digest[:_TOLD]}."
        )
    return content


def _read(file: Path) -> bytes:
    try:
        # A pipe in its place would keep the thread waiting.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ExecutorFailed(f"{file.name} is not a file.")
            return opened.read()
    except OSError as error:
        raise ExecutorFailed(f"{file.name} cannot be read: {error.strerror or type(error).__name__}.") from None


def _copy(to: Path, content: bytes) -> None:
    with open(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700), "wb") as opened:
        os.fchmod(opened.fileno(), 0o700)
        opened.write(content)
