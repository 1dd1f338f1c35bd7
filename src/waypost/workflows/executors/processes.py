"""What `cli` and `script` have in common: words from templates, a small environment, and what a program said."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost.config import executors as models
from waypost.errors import ExecutorFailed
from waypost.execution.processes import Ended, environment, run_process
from waypost.redaction import redacted, secrets_of
from waypost.workflows.executors import LONGEST, given
from waypost.workflows.executors.executor import Run
from waypost.workflows.scope import compile_template

TOLD: Final = 500
"""How much of the end of stderr a failure tells."""

_STARTS: Final = 20
_BETWEEN_STARTS: Final = 0.01
_NEVER_STARTS: Final = (errno.E2BIG, errno.ENAMETOOLONG, errno.ENOEXEC)


class Program:
    """A program but for its first words: arguments, variables, input, and how it is judged."""

    def __init__(self, model: models.Cli | models.Script, roots: frozenset[str]) -> None:
        self._model = model
        self._words = [(word, compile_template(word, roots)) for word in model.args]
        self._stdin = None if model.stdin is None else compile_template(model.stdin, roots)

    async def run(self, run: Run, first: Sequence[str], connection: models.CliConnection | None = None) -> Any:
        """Run it, without a shell; the output is what it said."""
        model = self._model
        configured = {**(connection.env if connection else {}), **model.env}
        directory = Path(model.working_directory or (connection and connection.working_directory) or Path.cwd())
        variables = {**environment(directory), **configured, "IDEMPOTENCY_KEY": run.key}
        usual = connection.args if connection else ()
        words = [*first, *usual, *(_text(given(template, written, run.scope)) for written, template in self._words)]
        read = b"" if self._stdin is None else _text(given(self._stdin, model.stdin, run.scope)).encode()
        if any("\0" in text for text in (*words, *variables, *variables.values(), str(directory))):
            raise ExecutorFailed("A word or variable of the program holds a NUL.")
        name = Path(first[-1]).name
        try:
            ended = await self._ended(words, directory, variables, read)
        except (OSError, ValueError) as error:
            raise _not_started(name, error) from None
        return self._judged(name, ended, secrets_of(configured))

    async def _ended(self, words: list[str], directory: Path, variables: dict[str, str], read: bytes) -> Ended:
        most = self._model.max_output_bytes
        for _ in range(_STARTS):
            try:
                return await run_process(words, directory, variables, within=LONGEST, most_bytes=most, given=read)
            except OSError as error:
                # Another process that is just being started may hold our copy of a script open for a moment.
                if error.errno != errno.ETXTBSY:
                    raise
            await asyncio.sleep(_BETWEEN_STARTS)
        raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))

    def _judged(self, name: str, ended: Ended, secrets: tuple[str, ...]) -> dict[str, Any]:
        stderr = redacted(ended.err.decode("utf-8", "replace"), secrets, is_cut=ended.cut)
        if ended.code != 0 and self._model.treat_non_zero_as_failure:
            raise ExecutorFailed(f"{name} {_ending(ended.code)}{_last_words(stderr)}")
        output = {
            "exitCode": ended.code,
            "success": ended.code == 0,
            "stdout": ended.out.decode("utf-8", "replace"),
            "stderr": stderr,
            "json": None if ended.cut and len(ended.out) >= self._model.max_output_bytes else _parsed(ended.out),
        }
        return output | {"truncated": True} if ended.cut else output


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _parsed(out: bytes) -> Any:
    try:
        return msgspec.json.decode(out)
    except (ValueError, RecursionError):
        return None


def _not_started(name: str, error: OSError | ValueError) -> ExecutorFailed:
    if not isinstance(error, OSError):
        return ExecutorFailed(f"{name} cannot be started: {type(error).__name__}.")
    kind = "permanent_error" if error.errno in _NEVER_STARTS else "connection_error"
    return ExecutorFailed(f"{name} cannot be started: {error.strerror or type(error).__name__}.", kind)


def _ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _last_words(stderr: str) -> str:
    text = stderr.strip()
    if not text:
        return "."
    return f": {text}" if len(text) <= TOLD else f": ...{text[-TOLD:]}"
