"""The sources of a configuration: a file with its variables expanded, merged with the files it includes."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from waypost.config.checks import Decoder, recognise
from waypost.config.findings import quoted, quoted_file
from waypost.config.models import Name
from waypost.config.nodes import UNKNOWN, Node, expand_text, find_variables, read
from waypost.redaction import is_secret_variable, secrets_of
from waypost.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from waypost.config.files import Snapshot
    from waypost.config.findings import Finding, KeyPath


_FOREIGN: Final = re.compile(r"\$\{(?:env|input):([A-Za-z_][A-Za-z0-9_]*)\}")
"""Variables of the environment, and of dialogs, as VS Code writes them."""


def expand(node: Node, environ: Mapping[str, str], findings: list[Finding], path: KeyPath = ()) -> Node:
    """The node with every variable in its values replaced; keys stay as they are."""
    value = node.value
    if isinstance(value, dict):
        return replace(node, value={k: expand(v, environ, findings, (*path, k)) for k, v in value.items()})
    if isinstance(value, list):
        return replace(node, value=[expand(v, environ, findings, (*path, i)) for i, v in enumerate(value)])
    if isinstance(value, str) and "${" in value:
        return _expand_text(node, value, environ, findings, path)
    return node


def _expand_text(node: Node, text: str, environ: Mapping[str, str], findings: list[Finding], path: KeyPath) -> Node:
    expanded, problems = expand_text(text, environ)
    for name in problems:
        if name is None:
            message = "a variable is written `${NAME}` or `${NAME:-default}`; write `$${` for a literal `${`"
            if foreign := _FOREIGN.search(text):
                message = f"clients write {quoted(foreign[0])}; here it is `${{{foreign[1]}}}`"
            findings.append(node.finding(path, message, "CFG021"))
        else:
            message = f"the variable {quoted(name)} is not set; set it, or write `${{{name}:-default}}`"
            findings.append(node.finding(path, message, "CFG020"))
    # Inside `{...}` YAML demands quotes around a variable, so they do not make it text for good.
    return replace(node, value=UNKNOWN if problems else expanded, plain=True, written=text)


_MAPPINGS: Final = ("env", "headers")


_SECRETS: Final = (("workers", "token"), ("workers", "tokens"), ("auth", "oauth", "introspection", "clientSecret"))
"""The settings that are secrets, or mappings to secrets."""


def secrets(root: Node, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values to hide: variables, environments and headers with the name of a secret, and passwords in URLs."""
    variables = _variables(root)
    values = [environ.get(name, "") for name in filter(is_secret_variable, variables)]
    if (passed_on := root.at("workers", "secrets")) is not None:
        values += [environ.get(name.value, "") for name in passed_on.children if isinstance(name.value, str)]
    for place in _SECRETS:
        if (found := root.at(*place)) is not None:
            values += [one.value for one in (found, *found.children) if isinstance(one.value, str)]
    values += _named(root)
    # Whatever the name: an address with a password in it is usually called `DATABASE_URL`.
    texts = (*_texts(root), *(environ.get(name, "") for name in variables))
    for password in filter(None, map(_password, texts)):
        values += (password, unquote(password))
    return secrets_of(*({"": value} for value in values))


def _variables(node: Node) -> set[str]:
    return find_variables(node.written).union(*map(_variables, node.children))


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node.value, str):
        yield node.value
    for child in node.children:
        yield from _texts(child)


def _named(node: Node) -> Iterator[str]:
    """The secrets in whatever is a mapping of names to texts."""
    names = node.value if isinstance(node.value, dict) else [""] * len(node.children)
    for key, child in zip(names, node.children, strict=True):
        if key in _MAPPINGS and isinstance(child.value, dict):
            named = [one.value for name, one in child.value.items() if is_secret_variable(name)]
            yield from (one for one in named if isinstance(one, str) and not one.startswith("$."))
        else:
            yield from _named(child)


def _password(url: str) -> str | None:
    if "://" not in url:
        return None
    try:
        return urlsplit(url).password
    except ValueError:
        return None


MAX_FILES = 1_000
MAX_NESTING = 32


@dataclass(frozen=True, slots=True)
class Source:
    """A file that a configuration came from, and what it holds without its includes."""

    path: Path
    root: Node


@dataclass(frozen=True, slots=True)
class Gathered:
    """The merged content, the files it came from by the name in their nodes, and the folders of include patterns."""

    root: Node
    sources: Mapping[str, Source]
    folders: tuple[Path, ...]


def gather(path: Path, environ: Mapping[str, str], snapshot: Snapshot, findings: list[Finding]) -> Gathered:
    """Merge a file and everything it includes, as the snapshot has them; mistakes are added to `findings`."""
    gatherer = _Gatherer(environ, snapshot, findings)
    identity = _identity(path)
    gatherer.seen.add(identity)
    root = gatherer.content(path, (identity,))
    if isinstance(root.value, dict) and gatherer.patterns:
        root = replace(root, value={**root.value, "include": replace(root, value=gatherer.patterns)})
    return Gathered(root, gatherer.sources, tuple(dict.fromkeys(gatherer.folders)))


def merge(included: Node, including: Node) -> Node:
    """Merge mappings deeply and concatenate lists; of any other value the including file's is taken."""
    below, above = included.value, including.value
    if isinstance(below, dict) and isinstance(above, dict):
        both = {key: merge(below[key], node) if key in below else node for key, node in above.items()}
        return replace(including, value={**below, **both})
    if isinstance(below, list) and isinstance(above, list):
        return replace(including, value=[*below, *above])
    return including


_NOT_IN_PREFIX: Final = re.compile(r"[^a-zA-Z0-9_.-]+")
_CONNECTION_KEYS: Final = {
    "cwd": "workingDirectory",
    **{key: key for key in ("command", "args", "env", "url", "headers")},
}


def adopt_client_servers(root: Node, data: dict[str, Any], findings: list[Finding]) -> tuple[Node, dict[str, Any]]:
    """Make each entry of `mcpServers` a connection and an import: in the data, and in the nodes that have the lines."""
    written = root.at("mcpServers")
    if written is None or not isinstance(written.value, dict):
        return root, data
    servers: dict[str, dict[str, Any]] = data.pop("mcpServers", {})
    connections = dict(data.get("connections", {}))
    nodes: dict[str, Node] = {}
    for name, server in servers.items():
        path: KeyPath = ("mcpServers", name)
        node = written.value[name]
        if name in connections:
            message = f"there is a connection {quoted(name)} in `connections` too; rename one of the two"
            findings.append(node.finding(path, message, "CFG011"))
            continue
        if server.get("type") == "sse":
            message = "`sse` has no effect: the server is asked over Streamable HTTP, which replaced it in 2025"
            findings.append((node.at("type") or node).finding((*path, "type"), message, "CFG064"))
        if not server.get("disabled"):
            connections[name] = {_CONNECTION_KEYS[key]: server[key] for key in server if key in _CONNECTION_KEYS}
            connections[name]["kind"] = "mcp"
            nodes[name] = node
    imports = [{"connection": name, "prefix": to_prefix(name)} for name in nodes]
    data = {**data, "connections": connections, "proxy": {**(data.get("proxy") or {})}}
    data["proxy"]["import"] = [*data["proxy"].get("import", []), *imports]
    listed = replace(written, value=list(nodes.values()))
    proxy = replace(written, value={"import": listed})
    adopted = Node({"connections": replace(written, value=nodes), "proxy": proxy}, root.file, root.line)
    return merge(root, adopted), data


def to_prefix(name: str) -> str:
    """The prefix of the tools of a server: its name in the characters that names of tools have."""
    plain = _NOT_IN_PREFIX.sub("_", name)
    return plain if plain[:1].isalpha() else f"mcp_{plain}"


class _Gatherer:
    def __init__(self, environ: Mapping[str, str], snapshot: Snapshot, findings: list[Finding]) -> None:
        self.environ = environ
        self.snapshot = snapshot
        self.findings = findings
        self.sources: dict[str, Source] = {}
        self.folders: list[Path] = []
        self.patterns: list[Node] = []
        self.seen: set[str] = set()

    def content(self, path: Path, chain: tuple[str, ...]) -> Node:
        node = read(path, self.snapshot, self.findings) or Node({}, str(path), 1)
        # Before it is merged: a key that two files spell in different ways would otherwise be two keys.
        node = recognise(expand(node, self.environ, self.findings), Settings, self.findings)
        self.sources[str(path)] = Source(Path(os.path.abspath(path)), node)
        if not isinstance(node.value, dict):
            return node
        own = replace(node, value={key: child for key, child in node.value.items() if key != "include"})
        merged = Node({}, str(path), 1)
        if include := node.value.get("include"):
            Decoder(self.findings).decode(include, list[Name], ("include",), ("include",))
            for index, pattern in enumerate(include.value if isinstance(include.value, list) else []):
                for file in self.matches(pattern, index):
                    merged = merge(merged, self.included(file, pattern, index, chain))
        return merge(merged, own)

    def matches(self, pattern: Node, index: int) -> list[Path]:
        """The files that an include pattern stands for, in sorted order, relative to the including file."""
        text = pattern.value
        if not isinstance(text, str) or not text:
            return []
        folder = os.path.dirname(pattern.file)
        absolute = absolute_pattern(text, folder)
        self.patterns.append(replace(pattern, value=absolute))
        try:
            if not glob.has_magic(text):
                return self.one_match(Path(folder, text), pattern, index)
            found = self.snapshot.find(text, folder)
            self.folders.extend(Path(p) for p in _folders(absolute))
        except ValueError:  # a pattern with a NUL character
            found = ()
        if not found:
            message = f"the pattern {quoted(text)} matches no file; check it, or ignore this until one exists"
            self.report(pattern, index, message, "CFG031")
        return [Path(folder, name) for name in found]

    def one_match(self, file: Path, pattern: Node, index: int) -> list[Path]:
        # A missing file is looked for in the snapshot too, which is out of date when the file appears.
        if self.snapshot.read(file).is_readable or os.path.lexists(file):
            return [file]
        self.report(pattern, index, f"the file {quoted_file(str(file))} does not exist; check the path", "CFG030")
        return []

    def included(self, file: Path, pattern: Node, index: int, chain: tuple[str, ...]) -> Node:
        nothing = Node({}, str(file), 1)
        identity = _identity(file)
        if identity in chain:
            message = f"the file {quoted_file(str(file))} includes itself, directly or through others; break the circle"
            self.report(pattern, index, message, "CFG032")
            return nothing
        if identity in self.seen:  # matched by two patterns; a second time its lists would be doubled
            return nothing
        if len(chain) > MAX_NESTING or len(self.sources) >= MAX_FILES:
            message = f"at most {MAX_FILES:,} files may be included, {MAX_NESTING} levels deep; include fewer"
            self.report(pattern, index, message, "CFG033")
            return nothing
        self.seen.add(identity)
        return self.content(file, (*chain, identity))

    def report(self, pattern: Node, index: int, message: str, code: str) -> None:
        found = pattern.finding(("include", index), message, code)
        if found not in self.findings:
            self.findings.append(found)


def absolute_pattern(pattern: str, folder: str) -> str:
    """A pattern that matches from anywhere what `pattern` matches in a folder."""
    return os.path.join(glob.escape(os.path.abspath(folder)), pattern)


def _identity(file: Path) -> str:
    try:
        return os.path.realpath(file)
    except ValueError:
        return str(file)


def _folders(pattern: str) -> list[str]:
    """The existing folders in which a pattern looks for files."""
    parent = os.path.dirname(pattern)
    while not (found := [path for path in glob.glob(parent, recursive=True) if os.path.isdir(path)]):
        parent = os.path.dirname(parent)
    return found
