"""The MCP clients that `waypost install` knows: where each keeps its servers, and how it writes one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from waypost.config.edits import JSON, TOML, YAML, Format
from waypost.errors import WaypostError

GOOSE_TIMEOUT_S: Final = 300


class Machine(NamedTuple):
    """Where a user's files are."""

    platform: str
    home: Path
    environ: Mapping[str, str]

    def settings(self) -> Path:
        """The directory for the settings of desktop programs."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return self.xdg()

    def xdg(self) -> Path:
        """The directory for the settings of programs that use the same one everywhere."""
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")

    def directory(self, variable: str, default: str) -> Path:
        """A directory that a variable of the environment may move."""
        return Path(self.environ.get(variable) or self.home / default)


def this_machine() -> Machine:
    """The machine and the user of this process."""
    return Machine(sys.platform, Path.home(), os.environ)


class Server(NamedTuple):
    """A hub as clients reach it: a command that they start, or a URL with a key or the variable that has it."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    key: str = ""
    key_variable: str = ""

    def headers(self, reference: str) -> dict[str, str]:
        """The header with the key; `reference` is how the client writes a variable."""
        # Doubled braces in the reference are single ones in the file.
        value = self.key or (reference.format(self.key_variable) if self.key_variable else "")
        return {"Authorization": f"Bearer {value}"} if value else {}


def _with_headers(entry: dict[str, Any], server: Server, reference: str) -> dict[str, Any]:
    headers = server.headers(reference)
    return {**entry, "headers": headers} if headers else entry


def _start(server: Server) -> dict[str, Any]:
    return {"command": server.command[0], "args": list(server.command[1:])}


def _claude_desktop(server: Server) -> dict[str, Any]:
    if server.url:
        raise WaypostError(
            "The file of Claude Desktop has only servers that it starts. Add the URL in its settings under Connectors, "
            "or run `waypost install claude-desktop` without --url."
        )
    return _start(server)


def _claude_code(server: Server) -> dict[str, Any]:
    if server.url:
        return _with_headers({"type": "http", "url": server.url}, server, "${{{}}}")
    return {"type": "stdio", **_start(server)}


def _cursor(server: Server) -> dict[str, Any]:
    return _with_headers({"url": server.url}, server, "${{env:{}}}") if server.url else _start(server)


def _vscode(server: Server) -> dict[str, Any]:
    if server.url:
        return _with_headers({"type": "http", "url": server.url}, server, "${{env:{}}}")
    return {"type": "stdio", **_start(server)}


def _codex(server: Server) -> dict[str, Any]:
    if not server.url:
        return _start(server)
    entry: dict[str, Any] = {"url": server.url}
    if server.key_variable:
        return {**entry, "bearer_token_env_var": server.key_variable}
    headers = server.headers("")
    return {**entry, "http_headers": headers} if headers else entry


def _gemini(server: Server) -> dict[str, Any]:
    return _with_headers({"type": "http", "url": server.url}, server, "${}") if server.url else _start(server)


def _opencode(server: Server) -> dict[str, Any]:
    if server.url:
        entry = _with_headers({"type": "remote", "url": server.url}, server, "{{env:{}}}")
        # Without this, opencode would look for a sign-in page when a key is refused.
        return {**entry, "oauth": False, "enabled": True} if "headers" in entry else {**entry, "enabled": True}
    return {"type": "local", "command": list(server.command), "enabled": True}


def _goose(server: Server) -> dict[str, Any]:
    entry: dict[str, Any] = {"enabled": True, "name": server.name, "description": "", "timeout": GOOSE_TIMEOUT_S}
    if not server.url:
        return {**entry, "type": "stdio", "cmd": server.command[0], "args": list(server.command[1:]), "envs": {}}
    entry |= {"type": "streamable_http", "uri": server.url, "headers": server.headers("${}")}
    return {**entry, "env_keys": [server.key_variable]} if server.key_variable else entry


class Client(NamedTuple):
    """A client: its file for a user and, relative to a project, for one project, and its entry for a server."""

    title: str
    form: Format
    section: str
    user: Callable[[Machine], Path]
    project: str | None
    entry: Callable[[Server], dict[str, Any]]
    then: str
    """What makes the client see a change."""


def _find_opencode(folder: Path) -> Path:
    with_comments = folder / "opencode.jsonc"
    return with_comments if with_comments.exists() else folder / "opencode.json"


def _find_goose(machine: Machine) -> Path:
    if machine.platform == "win32":
        return machine.settings() / "Block" / "goose" / "config" / "config.yaml"
    return machine.xdg() / "goose" / "config.yaml"


CLIENTS: Final[dict[str, Client]] = {
    "claude-desktop": Client(
        "Claude Desktop",
        JSON,
        "mcpServers",
        lambda machine: machine.settings() / "Claude" / "claude_desktop_config.json",
        None,
        _claude_desktop,
        "restart Claude Desktop",
    ),
    "claude-code": Client(
        "Claude Code",
        JSON,
        "mcpServers",
        lambda machine: machine.directory("CLAUDE_CONFIG_DIR", "") / ".claude.json",
        ".mcp.json",
        _claude_code,
        "`claude mcp list` shows it",
    ),
    "cursor": Client(
        "Cursor",
        JSON,
        "mcpServers",
        lambda machine: machine.home / ".cursor" / "mcp.json",
        ".cursor/mcp.json",
        _cursor,
        "Cursor shows it in its settings under MCP",
    ),
    "vscode": Client(
        "VS Code",
        JSON,
        "servers",
        lambda machine: machine.settings() / "Code" / "User" / "mcp.json",
        ".vscode/mcp.json",
        _vscode,
        "the command `MCP: List Servers` shows it",
    ),
    "codex": Client(
        "Codex",
        TOML,
        "mcp_servers",
        lambda machine: machine.directory("CODEX_HOME", ".codex") / "config.toml",
        ".codex/config.toml",
        _codex,
        "`codex mcp list` shows it",
    ),
    "gemini": Client(
        "Gemini CLI",
        JSON,
        "mcpServers",
        lambda machine: machine.directory("GEMINI_CLI_HOME", "") / ".gemini" / "settings.json",
        ".gemini/settings.json",
        _gemini,
        "`gemini mcp list` shows it",
    ),
    "opencode": Client(
        "opencode",
        JSON,
        "mcp",
        lambda machine: _find_opencode(machine.xdg() / "opencode"),
        "opencode.json",
        _opencode,
        "`opencode mcp list` shows it",
    ),
    "goose": Client("goose", YAML, "extensions", _find_goose, None, _goose, "the next `goose session` uses it"),
}
