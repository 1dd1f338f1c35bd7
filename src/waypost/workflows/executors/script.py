"""The kind `script`: runs a file only while it has the digest that was approved.

What runs is a private copy of the bytes whose digest was compared, so that the file cannot be replaced in between.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from waypost.config.findings import KeyPath, quoted
from waypost.config.models import Name
from waypost.errors import ExecutorFailed
from waypost.workflows.executors.cli import Program, ProgramFields, check_options
from waypost.workflows.executors.kind import Builder, Executor, ExecutorKind, Run

if TYPE_CHECKING:
    from waypost.workflows.data_flow import Report

_DIGEST_CHARS: Final = 12
"""How much of a digest an error quotes."""
_SNIFFED_BYTES: Final = 1024


class Script(ProgramFields, frozen=True, kw_only=True, tag="script"):
    """Runs a file that is what it was when it was approved."""

    file: Annotated[str, Meta(min_length=1, description="The file.", extra={"path": "file"})]
    sha256: Annotated[
        str,
        Meta(
            pattern="^[0-9a-f]{64}$",
            description="The SHA-256 of the file, in hex.",
            extra={"form": "the 64 hex digits that `sha256sum FILE` gives for the file"},
        ),
    ]
    command: Annotated[
        list[Name], Meta(description="What interprets it, such as `[python3]`; left out, the file is a program.")
    ] = []


def _build(model: Script, builder: Builder) -> Executor:
    program, file = Program(model, builder), Path(model.file)

    async def run(run: Run) -> Any:
        """`{exitCode, success, stdout, stderr, json}`."""
        content = await asyncio.to_thread(_read_approved, file, model.sha256)
        # A text without `#!` would be handed to a shell by some ways to start a program.
        if not model.command and not content.startswith(b"#!") and b"\0" not in content[:_SNIFFED_BYTES]:
            raise ExecutorFailed(f"{file.name} is a text without a `#!` line; `command` has to say what interprets it.")
        # A cancellation while the thread writes the copy must not surface as an error of removing the folder.
        with TemporaryDirectory(prefix="waypost-script-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder, file.name)
            try:
                await asyncio.to_thread(_copy, copy, content)
            except OSError as error:
                raise ExecutorFailed(f"{file.name} cannot be copied: {error.strerror}.", "transient_error") from None
            return await program.run(run, [*model.command, str(copy)])

    return Executor("script", run, "script_output")


def _read_approved(file: Path, digest: str) -> bytes:
    """The bytes of the file, if they are the approved ones."""
    content = _read(file)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ExecutorFailed(
            f"{file.name} is not what was approved: "
            f"its SHA-256 begins with {found[:_DIGEST_CHARS]}, not {digest[:_DIGEST_CHARS]}."
        )
    return content


def _read(file: Path) -> bytes:
    try:
        # O_NONBLOCK: a named pipe in the file's place would block the thread.
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


def _check(model: Script, path: KeyPath, report: Report) -> None:
    check_options(model, (), path, report)
    try:
        content = Path(model.file).read_bytes()
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        report.add((*path, "file"), f"the script cannot be read: {reason}; check the path", "WF024")
        return
    digest = hashlib.sha256(content).hexdigest()
    if digest != model.sha256:
        sentence = f"the script is not the one that was approved; if it should be, write {quoted(digest)}"
        report.add((*path, "sha256"), sentence, "WF024")


SCRIPT: Final = ExecutorKind(
    model=Script,
    build=_build,
    plan=None,
    check=_check,
    check_place=None,
    names={},
    templates=("args", "stdin"),
    asks_person=False,
    mark="",
)
