"""The core skill that runs commands the operator allowed, word by word and never through a shell.

An allowed command is a prefix of words. One that ends with `--` keeps callers from adding options, for programs that
understand it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.errors import ToolError
from waypost.execution.processes import make_environment, run_process
from waypost.skills.core.inputs import CoreSettings, require_text

description = "Run a command that the operator of this hub allowed."
input_schema: dict[str, Any] = {
    "command": {"type": "string", "description": "The command and its arguments; there are no pipes or variables"}
}

MAX_OUTPUT_BYTES: Final = 256 * 1024
MAX_COMMAND_CHARACTERS: Final = 32 * 1024


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> dict[str, Any]:
    """Run an allowed command; without allowed commands everything is refused."""
    argv = parse_command(require_text(args, "command"), settings.shell_allowed)
    directory = settings.shell_directory
    try:
        ended = await run_process(
            argv, directory, make_environment(directory), within=settings.timeout, max_bytes=MAX_OUTPUT_BYTES
        )
    except TimeoutError:
        raise ToolError(f"The command did not end within {settings.timeout:g} s.") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"The command cannot be run: {type(error).__name__}.") from None
    return {
        "exit_code": ended.code,
        "stdout": ended.out.decode("utf-8", "replace"),
        "stderr": ended.err.decode("utf-8", "replace"),
        "truncated": ended.truncated,
    }


def branch(result: Mapping[str, Any]) -> str:
    """Return the route of a result."""
    return "on_success" if result["exit_code"] == 0 else "on_error"


def parse_command(command: str, allowed: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the words of a command that begins with an allowed one."""
    if not allowed:
        raise ToolError("The shell skill is off; only the operator's configuration can allow commands.")
    if len(command) > MAX_COMMAND_CHARACTERS or "\0" in command:
        raise ToolError("The command is too long or holds a NUL.")
    try:
        argv = shlex.split(command)
    except ValueError:
        raise ToolError("The command has an open quotation or ends with a backslash.") from None
    if not any(tuple(argv[: len(prefix)]) == prefix for prefix in allowed):
        raise ToolError("The command is not among those the operator allows.")
    return argv
