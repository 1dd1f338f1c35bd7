"""`waypost import`: turn the MCP servers of a client's configuration into connections and imports of a hub."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from waypost.cli.command import JSON as JSON_OPTION
from waypost.cli.command import Argument, Command, Output
from waypost.cli.install import read_text, replace_text
from waypost.config.edits import JSON, TOML, YAML, Unreadable, append_items, set_entry
from waypost.config.loader import to_prefix
from waypost.config.nodes import escape
from waypost.errors import WaypostError
from waypost.redaction import HIDDEN, is_secret_variable, redacted

_SECTIONS: Final = (("mcpServers",), ("mcp_servers",), ("servers",), ("mcp", "servers"), ("mcp",), ("extensions",))
"""Where clients keep their servers, the most specific first."""
_FORMATS: Final = {".toml": TOML, ".yaml": YAML, ".yml": YAML}
_OTHER_KEYS: Final = {
    "cmd": "command",
    **dict.fromkeys(("envs", "environment"), "env"),
    **dict.fromkeys(("uri", "httpUrl", "serverUrl"), "url"),
    "http_headers": "headers",
}
_VARIABLE: Final = re.compile(
    r"\$\{(?:env:)?(\w+)(:-[^}]*)?\}|\{env:(\w+)\}|\$([A-Z_][A-Z0-9_]+)\b|\$\{input:([\w-]+)\}"
)
_SECRET_PARAMETER: Final = re.compile(r"([?&])([\w.-]+)=([^&#$]+)")


class Importer:
    """Collects connections, and what a person has to know about them."""

    def __init__(self, file: Path) -> None:
        self.connections: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []
        self._file = file
        self._secrets: dict[str, str] = {}

    def add(self, name: str, entry: Any) -> None:
        """Add a server; one that cannot be used is noted and left out."""
        if not isinstance(entry, dict):
            return self.notes.append(f"{name} is left out: its entry is not a mapping")
        entry = _normalise(entry)
        if entry.get("disabled") or entry.get("enabled") is False:
            return self.notes.append(f"{name} is left out: it is disabled")
        if not (entry.get("command") or entry.get("url")):
            return self.notes.append(f"{name} is left out: it has neither a command nor a URL")
        self.connections[name] = {"kind": "mcp", **dict(self._convert(name, entry))}
        return None

    def _convert(self, name: str, entry: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        if not entry.get("url"):
            yield "command", self._text(entry["command"])
            yield "args", self._arguments(name, [str(item) for item in entry.get("args") or ()])
            if directory := entry.get("cwd") or entry.get("workingDirectory"):
                yield "workingDirectory", self._text(str(directory))
        else:
            yield "url", _SECRET_PARAMETER.sub(lambda found: self._parameter(name, found), self._text(entry["url"]))
        for section in ("env", "headers"):
            values = {key: str(value) for key, value in (entry.get(section) or {}).items()}
            if values and (section == "env") != bool(entry.get("url")):
                yield section, {key: self._value(name, section, key, value) for key, value in values.items()}

    def _value(self, server: str, section: str, key: str, value: str) -> str:
        """A variable or header; a secret becomes a variable of the hub's environment."""
        text = self._text(value)
        # A value that is a variable already is no secret itself.
        if text != escape(value) or "${" in text or not (is_secret_variable(key) or HIDDEN in redacted(value)):
            return text
        if section == "env":
            return self._replace(server, key, value, f"env.{key}")
        scheme, space, secret = value.rpartition(" ")
        return f"{scheme}{space}{self._replace(server, f'{server}_{key}', secret, f'headers.{key}')}"

    def _arguments(self, server: str, arguments: list[str]) -> list[str]:
        found = []
        option = ""
        for argument in arguments:
            key, equals, value = argument.partition("=")
            if option and not argument.startswith("-") and "$" not in argument:
                found.append(self._replace(server, f"{server}_{option}", argument, "args"))
            elif key.startswith("-") and equals and is_secret_variable(key) and value and "$" not in value:
                found.append(f"{key}={self._replace(server, f'{server}_{key}', value, 'args')}")
            else:
                found.append(self._text(argument))
            option = argument if argument.startswith("-") and not equals and is_secret_variable(argument) else ""
        return found

    def _parameter(self, server: str, found: re.Match[str]) -> str:
        mark, key, value = found.groups()
        if not is_secret_variable(key) or "${" in value:
            return found[0]
        return f"{mark}{key}={self._replace(server, f'{server}_{key}', value, 'url')}"

    def _replace(self, server: str, name: str, secret: str, where: str) -> str:
        """A variable in place of a secret; the same secret has one, and different secrets have different ones."""
        variable = _to_variable(name)
        if self._secrets.get(variable, secret) != secret:
            variable = _to_variable(f"{server}_{name}")
        self._secrets[variable] = secret
        self.notes.append(f"set {variable} for the hub; its value is in {where} of {server!r} in {self._file}")
        return f"${{{variable}}}"

    def _text(self, text: str) -> str:
        """A text with the variables of any client written as the hub writes them."""
        # A file such as .vscode/mcp.json belongs to the folder above.
        folder = str(self._file.parent.parent if self._file.parent.name.startswith(".") else self._file.parent)
        text = text.replace("${workspaceFolder}", folder)
        parts, end = [], 0
        for found in _VARIABLE.finditer(text):
            name, default, braced, bare, asked = found.groups()
            variable = name or braced or bare or _to_variable(asked)
            if asked:
                self.notes.append(f"set {variable} for the hub; the client asks its user for it")
            parts += [escape(text[end : found.start()]), f"${{{variable}{default or ''}}}"]
            end = found.end()
        return "".join([*parts, escape(text[end:])])


def _to_variable(name: str) -> str:
    variable = re.sub(r"[\W_]+", "_", name).strip("_").upper()
    return variable if not variable[:1].isdigit() else f"_{variable}"


def _normalise(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of any client in the words of `mcpServers`."""
    found = {_OTHER_KEYS.get(key, key): value for key, value in entry.items()}
    if isinstance(found.get("command"), list):
        command, *arguments = found["command"] or [""]
        found |= {"command": command, "args": arguments}
    for key in ("env", "headers"):
        found[key] = dict(found[key]) if isinstance(found.get(key), dict) else {}
    if variable := found.get("bearer_token_env_var"):
        found["headers"]["Authorization"] = f"Bearer ${{{variable}}}"
    for header, variable in (found.get("env_http_headers") or {}).items():
        found["headers"][header] = f"${{{variable}}}"
    for variable in [*(found.get("env_vars") or ()), *(found.get("env_keys") or ())]:
        if isinstance(variable, str) and not found.get("url"):
            found["env"].setdefault(variable, f"${{{variable}}}")
    return found


def find_servers(data: Any) -> dict[str, Any]:
    """The servers in the configuration of any client; none if there are none."""
    for section in _SECTIONS:
        here = data
        for key in section:
            here = here.get(key) if isinstance(here, dict) else None
        if isinstance(here, dict) and any(isinstance(entry, dict) for entry in here.values()):
            return here
    return {}


def run(args: Namespace) -> Output:
    """Print the connections and imports, or add them to a configuration file."""
    file: Path = args.file.absolute()
    if not file.exists():
        raise WaypostError(f"The file {args.file} does not exist.")
    try:
        servers = find_servers(_FORMATS.get(file.suffix, JSON).read(read_text(file)))
    except Unreadable as error:
        raise WaypostError(f"{args.file} cannot be read: {error}.") from None
    importer = Importer(file)
    for name, entry in servers.items():
        importer.add(str(name), entry)
    connections = importer.connections
    notes = "\n".join(f"note: {note}" for note in dict.fromkeys(importer.notes))
    if not connections:
        raise WaypostError(f"{args.file} has no MCP servers to import.\n{notes}".rstrip())
    imports = [{"connection": name, "prefix": to_prefix(name)} for name in connections]
    data = {"connections": connections, "proxy": {"import": imports}}
    if args.into is None:
        return Output({**data, "notes": importer.notes}, yaml.safe_dump(data, sort_keys=False, width=1000), notes)
    added, backup = _merge(args.into, connections, imports)
    kept = f" The file as it was before is {backup}." if backup else ""
    said = f"Added to {args.into}: {', '.join(added)}.{kept}" if added else f"{args.into} has all of them already."
    return Output({**data, "added": added, "notes": importer.notes}, said, notes)


def _merge(
    file: Path, connections: dict[str, dict[str, Any]], imports: list[dict[str, str]]
) -> tuple[list[str], Path | None]:
    """Add what is missing to a configuration file, whose comments stay; returns the names and the copy."""
    text = read_text(file) or 'version: "1"\n'
    try:
        there = YAML.read(text).get("connections") or {}
        taken = [name for name in connections if name in there and there[name] != connections[name]]
        if taken:
            raise WaypostError(f"{file} has another connection {taken[0]!r}; rename one of the two.")
        added = [name for name in connections if name not in there]
        for name in added:
            text = set_entry(text, YAML, ("connections", name), connections[name])
        new = [row for row in imports if row["connection"] in added]
        text = append_items(text, ("proxy", "import"), new) if new else text
    except (Unreadable, AttributeError) as error:
        reason = error if isinstance(error, Unreadable) else "it is not a mapping"
        raise WaypostError(f"{file} cannot be changed: {reason}.") from None
    return added, replace_text(file, text) if added else None


COMMAND: Final = Command(
    run,
    "Turn the MCP servers in a client's configuration into connections and imports of a hub.",
    "waypost import ~/.cursor/mcp.json --into waypost.yaml",
    Argument("file", type=Path, metavar="FILE", help="the file of a client: JSON, TOML (Codex) or YAML (goose)"),
    Argument("--into", type=Path, metavar="CONFIG", help="add them to this configuration file (default: print them)"),
    JSON_OPTION,
)
