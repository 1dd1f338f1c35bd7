"""The kind `cli`: runs a program of this machine, without a shell.

`Program` is also what `script` runs: arguments from templates, a small environment, and the program's output.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from waypost.config.findings import KeyPath, quoted, quoted_file
from waypost.config.models import CliConnection, Command, Directory, Environment, Name
from waypost.errors import DefinitionError, ExecutorFailed
from waypost.execution.processes import ProcessResult, make_environment, run_process
from waypost.redaction import redacted, secrets_of
from waypost.workflows.executors.kind import NO_TIMEOUT_S, Builder, Executor, ExecutorFields, ExecutorKind, Run
from waypost.workflows.scope import is_path

if TYPE_CHECKING:
    from waypost.workflows.data_flow import Report

MAX_STDERR_CHARS: Final = 500
"""The length of the end of stderr that a failure quotes."""

_MAX_STARTS: Final = 20
_START_DELAY_S: Final = 0.01
_PERMANENT_ERRNOS: Final = (errno.E2BIG, errno.ENAMETOOLONG, errno.ENOEXEC)

OutputLimit = Annotated[int, Meta(ge=1, le=1_073_741_824, description="How much of its output is kept.")]


class ProgramFields(ExecutorFields, frozen=True, kw_only=True):
    """The settings that every program has."""

    args: Annotated[list[Any], Meta(description="Its arguments, each one word; paths stand for what is there.")] = []
    allow_options: Annotated[
        bool, Meta(description="Whether a value in `args` may begin with `-`; after `--` every value may.")
    ] = False
    env: Environment = {}
    working_directory: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    stdin: Annotated[Any, Meta(description="What it reads: text, or a value that is written as JSON.")] = None
    treat_non_zero_as_failure: Annotated[bool, Meta(description="Whether an exit code other than 0 is a failure.")] = (
        True
    )
    max_output_bytes: OutputLimit = 1_048_576


class Cli(ProgramFields, frozen=True, kw_only=True, tag="cli"):
    """Runs a program, without a shell."""

    connection: Annotated[Name | None, Meta(description="A connection of the kind `cli`.")] = None
    command: Annotated[Command | None, Meta(description="The program, where there is no connection.")] = None


class Program:
    """Runs a program: arguments, environment and input from templates, and how its exit is judged."""

    def __init__(self, model: ProgramFields, builder: Builder) -> None:
        self._model = model
        self._words = [(word, builder.value(word)) for word in model.args]
        self._stdin = builder.value("" if model.stdin is None else model.stdin)

    async def run(self, run: Run, first: Sequence[str], connection: CliConnection | None = None) -> Any:
        """Run it without a shell; `first` are the words before the arguments, such as an interpreter."""
        model = self._model
        configured = {**(connection.env if connection else {}), **model.env}
        directory = Path(model.working_directory or (connection and connection.working_directory) or Path.cwd())
        # The key comes last, so that no setting replaces it.
        variables = {**make_environment(directory), **configured, "IDEMPOTENCY_KEY": run.key}
        usual = connection.args if connection else ()
        words = [*first, *usual]
        is_safe = model.allow_options or "--" in usual
        for written, value in self._words:
            word = to_text(value(run.scope))
            # A program takes such a word for an option, and many an option writes files or runs commands.
            is_value = isinstance(written, str) and is_path(written)
            if is_value and not is_safe and word.startswith("-"):
                raise ExecutorFailed(
                    f"The value at {written} begins with `-`: the program would take it for an option."
                )
            is_safe = is_safe or written == "--"
            words.append(word)
        read = to_text(self._stdin(run.scope)).encode()
        if any("\0" in text for text in (*words, *variables, *variables.values(), str(directory))):
            raise ExecutorFailed("An argument or variable of the program contains NUL.")
        name = Path(first[-1]).name
        try:
            ended = await self._start(words, directory, variables, read)
        except (OSError, ValueError) as error:
            raise _start_failure(name, error) from None
        return self._to_output(name, ended, secrets_of(configured))

    async def _start(self, words: list[str], directory: Path, variables: dict[str, str], read: bytes) -> ProcessResult:
        most = self._model.max_output_bytes
        for _ in range(_MAX_STARTS):
            try:
                # No limit of its own: the timeout of the attempt cancels it.
                return await run_process(
                    words, directory, variables, within=NO_TIMEOUT_S, max_bytes=most, stdin_data=read
                )
            except OSError as error:
                # Another process that is just being started may hold our copy of a script open for a moment.
                if error.errno != errno.ETXTBSY:
                    raise
            await asyncio.sleep(_START_DELAY_S)
        raise OSError(errno.ETXTBSY, os.strerror(errno.ETXTBSY))

    def _to_output(self, name: str, ended: ProcessResult, secrets: tuple[str, ...]) -> dict[str, Any]:
        most = self._model.max_output_bytes
        stderr = redacted(ended.err.decode("utf-8", "replace"), secrets, is_cut=ended.truncated)
        if ended.code != 0 and self._model.treat_non_zero_as_failure:
            said = f"was ended by signal {-ended.code}" if ended.code < 0 else f"ended with exit code {ended.code}"
            raise ExecutorFailed(f"{name} {said}{_quote_stderr(stderr)}")
        output = {
            "exitCode": ended.code,
            "success": ended.code == 0,
            "stdout": ended.out.decode("utf-8", "replace"),
            "stderr": stderr,
            # Output that was cut off may still be JSON, such as the first digits of a number.
            "json": None if ended.truncated and len(ended.out) >= most else _parse_json(ended.out),
        }
        return output | {"truncated": True} if ended.truncated else output


def to_text(value: Any) -> str:
    """A value as text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _parse_json(out: bytes) -> Any:
    try:
        return msgspec.json.decode(out)
    except (ValueError, RecursionError):
        return None


def _start_failure(name: str, error: OSError | ValueError) -> ExecutorFailed:
    if not isinstance(error, OSError):
        return ExecutorFailed(f"{name} cannot be started: {type(error).__name__}.")
    kind = "permanent_error" if error.errno in _PERMANENT_ERRNOS else "connection_error"
    return ExecutorFailed(f"{name} cannot be started: {error.strerror or type(error).__name__}.", kind)


def _quote_stderr(stderr: str) -> str:
    text = stderr.strip()
    if not text:
        return "."
    return f": {text}" if len(text) <= MAX_STDERR_CHARS else f": ...{text[-MAX_STDERR_CHARS:]}"


def _build(model: Cli, builder: Builder) -> Executor:
    if (model.connection is None) == (model.command is None):
        raise DefinitionError("a cli executor has a connection or a command, and not both")
    program = Program(model, builder)

    async def run(run: Run) -> Any:
        """`{exitCode, success, stdout, stderr, json}`."""
        if model.connection is None:
            return await program.run(run, [model.command or ""])
        connection = builder.context.connection(model.connection, CliConnection)
        return await program.run(run, [connection.command], connection)

    return Executor("cli", run, "cli_output")


def check_options(model: ProgramFields, before: Sequence[Any], path: KeyPath, report: Report) -> None:
    """Report an argument of a caller that stands where a program looks for options; `before` are the words before."""
    for index, word in enumerate(model.args):
        is_given = isinstance(word, str) and word.startswith("$.arguments")
        if is_given and not model.allow_options and "--" not in (*before, *model.args[:index]):
            sentence = (
                f"{quoted(word)} is refused if it begins with `-`, like an option; put `--` before it if the program "
                "knows that, or write `allowOptions: true`"
            )
            report.add((*path, "args", index), sentence, "WF025")


def _check_program(command: str, variables: Mapping[str, str], path: KeyPath, report: Report) -> None:
    """Report a program that is not on this machine; a line of several words has a finding of its own."""
    if len(command.split()) != 1 or which(command, path=variables.get("PATH")) is not None:
        return
    if "/" not in command:
        hint = "it is not on the `PATH` of this machine; install it, or write its path"
    elif os.path.isfile(command):
        hint = "the file is not executable; run `chmod +x` on it"
    else:
        hint = "there is no such file; check the path"
    report.add(path, f"the program {quoted_file(command)} cannot be started: {hint}", "WF027")


def _check(model: Cli, path: KeyPath, report: Report) -> None:
    before = report.root.at("connections", model.connection or "", "args")
    words = before.value if before is not None and isinstance(before.value, list) else []
    check_options(model, [word.value for word in words], path, report)
    if model.command is None and model.connection is None:
        report.add(path, "there is no program to run; add `command` or `connection`", "WF020")
    elif model.command is not None and model.connection is not None:
        report.add((*path, "command"), "the connection has a command already; keep one of the two", "WF020")
    elif model.command is not None:
        _check_program(model.command, model.env, (*path, "command"), report)
    connection = report.config.connections.get(model.connection or "")
    if isinstance(connection, CliConnection):
        where = ("connections", model.connection or "", "command")
        _check_program(connection.command, {**connection.env, **model.env}, where, report)


CLI: Final = ExecutorKind(
    model=Cli,
    build=_build,
    plan=None,
    check=_check,
    check_place=None,
    names={"connection": CliConnection},
    templates=("args", "stdin"),
    asks_person=False,
    mark="",
)
