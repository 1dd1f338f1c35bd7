"""The sources of a configuration: a file with its variables expanded, merged with the files it includes."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from waypost.config.checks import plain, recognise
from waypost.config.findings import quoted, quoted_file
from waypost.config.models import Name
from waypost.config.nodes import UNKNOWN, Node, read
from waypost.redaction import is_secret_name, secrets_of
from waypost.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from waypost.config.files import Snapshot
    from waypost.config.findings import Finding, KeyPath


_REFERENCE = re.compile(
    r"""
    \$\$\{                                             # an escaped one
    | \$\{ (?: (?P<name>[A-Za-z_][A-Za-z0-9_]*)
               (?: :- (?P<default>(?:(?!\$\{)[^}])*) )?
               \} )?                                   # without this part it is malformed
    """,
    re.VERBOSE,
)


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
    problems: list[Finding] = []

    def substitute(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$${":
            return "${"
        if name is None:
            message = "a variable is written `${NAME}` or `${NAME:-default}`; write `$${` for a literal `${`"
            problems.append(node.finding(path, message, "CFG021"))
            return ""
        given = environ.get(name)
        if default is not None:
            return given or str(default)
        if given is None:
            message = f"the variable {quoted(name)} is not set; set it, or write `${{{name}:-default}}`"
            problems.append(node.finding(path, message, "CFG020"))
            return ""
        return given

    expanded = _REFERENCE.sub(substitute, text)
    findings.extend(problems)
    # Inside `{...}` YAML demands quotes around a variable, so they do not make it text for good.
    return replace(node, value=UNKNOWN if problems else expanded, plain=True)


_MAPPINGS: Final = ("env", "headers")


def secrets(root: Node) -> tuple[str, ...]:
    """What environments and headers hold under the name of a secret, the workers' token, the store's password."""
    return secrets_of(*({"": value} for value in _values(root)))


def _values(root: Node) -> Iterator[str]:
    yield from _named(root)
    token, store = root.at("workers", "token"), root.at("store", "url")
    if token is not None and isinstance(token.value, str):
        yield token.value
    if store is not None and isinstance(store.value, str) and (password := _password(store.value)):
        yield password
        yield unquote(password)


def _named(node: Node) -> Iterator[str]:
    """The secrets in whatever is a mapping of names to texts."""
    value = node.value
    if isinstance(value, list):
        for child in value:
            yield from _named(child)
    if isinstance(value, dict):
        for key, child in value.items():
            if key in _MAPPINGS and isinstance(child.value, dict):
                named = [one.value for name, one in child.value.items() if is_secret_name(name)]
                yield from (one for one in named if isinstance(one, str) and not one.startswith("$."))
            else:
                yield from _named(child)


def _password(url: str) -> str | None:
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
        node = recognise(expand(node, self.environ, self.findings), Settings, self.findings)
        self.sources[str(path)] = Source(Path(os.path.abspath(path)), node)
        if not isinstance(node.value, dict):
            return node
        own = replace(node, value={key: child for key, child in node.value.items() if key != "include"})
        merged = Node({}, str(path), 1)
        if include := node.value.get("include"):
            plain(include, list[Name], self.findings, ("include",))
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
            self.report(
                pattern,
                index,
                f"the pattern {quoted(text)} matches no file; check it, or ignore this until one exists",
                "CFG031",
            )
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
        if identity in self.seen:
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
