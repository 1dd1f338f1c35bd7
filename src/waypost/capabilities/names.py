"""Names: in code, in MCP, in a form that every model API accepts, and those of the gateway's tools."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

from waypost.errors import DefinitionError

_WIRE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_PORTABLE: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_PORTABLE: Final = re.compile(r"[^a-zA-Z0-9_-]")
# Clients put the name of the server before that of a tool, and some model APIs take 64 characters in all.
_SHORTENED_LENGTH: Final = 48

PORTABLE_CLIENTS: Final = frozenset(
    {
        "Anthropic/ClaudeAI",
        "claude-ai",
        "claude-code",
        "cursor-vscode",
        "opencode",
    }
)
"""Clients, by `clientInfo.name`, that refuse or confuse canonical names.

Two were seen by `make interop`: Claude Code and opencode replace characters and then offer one of two tools whose
names have become equal; opencode also sends long names, which its model's API refuses. The others are reported to
refuse a name with a dot: Claude Desktop and claude.ai, then without any tool of the server, and Cursor without that
tool.
"""


def snake_case(class_name: str) -> str:
    """`GetWeather` as `get_weather`, `HTTPServer` as `http_server`."""
    return _WORD_START.sub("_", class_name).lower()


def is_wire_name(name: str) -> bool:
    """Whether a name is valid in MCP."""
    return _WIRE_NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """The name itself; `DefinitionError` when it is not valid in MCP."""
    if isinstance(name, str) and is_wire_name(name):
        return name
    raise DefinitionError(f"The name {name!r} is not usable: take 1 to 128 of the characters A-Z a-z 0-9 _ . : / -.")


def is_portable(name: str) -> bool:
    """Whether every model API accepts `name` unchanged."""
    return _PORTABLE.fullmatch(name) is not None


def to_portable(name: str) -> str:
    """`name` in characters that every model API accepts; the same name always gives the same result."""
    if is_portable(name):
        return name
    spelled = name.lower() if " " in name else name
    plain = _NOT_PORTABLE.sub("_", spelled.replace(":", "__"))
    return plain if len(plain) <= _SHORTENED_LENGTH else disambiguate(name, plain)


def disambiguate(name: str, taken: str, attempt: int = 0) -> str:
    """A portable name for `name` when another tool has `taken`; a different one for each attempt."""
    digest = hashlib.sha256(f"{name}{attempt or ''}".encode()).hexdigest()[:8]
    return f"{taken[: _SHORTENED_LENGTH - 9]}_{digest}"


def needs_portable_names(client: str) -> bool:
    """Whether a client, by the name it gives itself, gets portable names; `mcp-remote` adds its own to that name."""
    return client.partition(" (via ")[0] in PORTABLE_CLIENTS


def fold_name(name: str) -> str:
    """How a name looks at a glance: two names with one result can be mistaken for each other."""
    if name.isascii():
        return name.casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


GATEWAY_TOOLS: Final = frozenset(
    {
        *("gateway.describe", "gateway.home", "gateway.search"),
        *("workflow.explain", "workflow.get", "workflow.start", "workflow.submit"),
    }
)
"""The names of the seven tools of the gateway."""
