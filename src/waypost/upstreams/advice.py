"""What is wrong with the server of a connection, in one sentence that ends with what can be done about it."""

from __future__ import annotations

import os
from typing import Final

from waypost.config.executors import McpConnection

_LONGEST: Final = 200
_PATH: Final = "correct its url (most MCP servers are at a path such as /mcp)"
_LOG: Final = "look at its log"
_UNREACHED: Final = {
    "the connection was refused": "start its server, or correct its url",
    "its name is not known": "correct the host in its url",
    "the address makes no sense": "its url has to look like https://host/mcp",
    "it does not speak TLS as it should": "if it speaks none, its url has to begin with http:",
    "its certificate is not trusted": "let SSL_CERT_FILE name a file with the authority that signed it",
    "what it answers is not HTTP": "correct the port in its url",
    "the connection was closed without a response": f"{_LOG}, and whether its url has to begin with https:",
    "the connection was closed in the middle of the response": _LOG,
}
"""What to do about a server that cannot be reached, by how the reason begins."""
_REFUSED: Final = {
    403: "put a credential that suffices into the headers of the connection",
    404: _PATH,
    405: f"{_PATH}, which has to take messages by POST",
    407: "the proxy in front of it wants a login",
    429: "make fewer calls, or try again later",
}


def unreached(name: str, problem: str) -> str:
    """There is no response."""
    advice = next((told for reason, told in _UNREACHED.items() if problem.startswith(reason)), None)
    return f'The connection "{name}" cannot be reached: {problem}{f"; {advice}" if advice else ""}.'


def refused(name: str, connection: McpConnection, status: int, said: str) -> str:
    """A response is an error of HTTP."""
    advice = _REFUSED.get(status, _LOG)
    if status == 401:
        advice = "put a credential that it takes into the headers of the connection"
        if connection.credentials == "user":
            advice = f"`waypost upstreams login {name}` gives somebody a credential"
    return f'The server of the connection "{name}" answered {status}: {_one_line(said)}; {advice}.'


def led_elsewhere(name: str, status: int) -> str:
    """A response is a redirection that must not be followed."""
    return (
        f'The server of the connection "{name}" answered {status}, which leads elsewhere and is not followed; '
        "set its url to where it leads."
    )


def not_mcp(name: str, status: int, kind: str) -> str:
    """A response is something else."""
    what = f"with {kind}" if kind else "without a type"
    return f'The server of the connection "{name}" answered {status} {what}, which is not MCP; {_PATH}.'


def unanswered(name: str, connection: McpConnection) -> str:
    """A response has no answer in it."""
    return (
        f'The server of the connection "{name}" ended its response without an answer; {_LOG}, '
        f"and whether its {_setting(connection)} is that of an MCP server."
    )


def silent(name: str, connection: McpConnection, within: float) -> str:
    """Nothing came back after a start."""
    return (
        f'The connection "{name}" did not answer within {within:g} s of its start; {_LOG}, '
        f"and whether its {_setting(connection)} is that of an MCP server."
    )


def not_started(name: str, connection: McpConnection, error: OSError | ValueError) -> str:
    """A program cannot be started."""
    folder = connection.working_directory
    if folder is not None and not os.path.isdir(folder):
        reason = f"its workingDirectory {folder} is not there"
    elif isinstance(error, FileNotFoundError):
        reason = "there is no such program; install it, or correct its command"
    elif isinstance(error, PermissionError):
        reason = "it may not be executed; correct its command, or who may execute it"
    else:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f'The connection "{name}" cannot start {connection.command}: {reason}.'


def ended(how: str, remark: str, has_spoken: bool) -> str:
    """How a program ended, with the last it said about that."""
    told = f"{how}: {_one_line(remark)}" if remark else how
    return told if has_spoken else f"{told}; look whether its command, with its args, is that of an MCP server"


def _one_line(text: str) -> str:
    """The beginning of a text, to stand inside a sentence."""
    line = " ".join(text.split())
    return (line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...").rstrip(". ")


def _setting(connection: McpConnection) -> str:
    return "command" if connection.url is None else "url"
