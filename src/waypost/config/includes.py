"""Putting a configuration together from its file and those it includes."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from waypost.config.checking import plain, recognise
from waypost.config.environment import expand
from waypost.config.findings import quoted, quoted_file
from waypost.config.names import Name
from waypost.config.nodes import Node
from waypost.config.source import read
from waypost.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from waypost.config.findings import Finding

MAX_FILES = 1_000
MAX_NESTING = 32


@dataclass(frozen=True, slots=True)
class Gathered:
    """The merged content, the files it came from, and the folders in which an include may find more."""

    root: Node
    files: tuple[Path, ...]
    folders: tuple[Path, ...]


def gather(path: Path, environ: Mapping[str, str], findings: list[Finding]) -> Gathered:
    """Read a file and everything it includes; what is wrong is added to `findings`."""
    gatherer = _Gatherer(environ, findings)
    identity = _identity(path)
    gatherer.seen.add(identity)
    root = gatherer.content(path, (identity,))
    if isinstance(root.value, dict) and gatherer.patterns:
        root = replace(root, value={**root.value, "include": replace(root, value=gatherer.patterns)})
    return Gathered(root, tuple(gatherer.files), tuple(dict.fromkeys(gatherer.folders)))


def merge(included: Node, including: Node) -> Node:
    """Mappings merged deeply, lists concatenated; anything else is the including file's."""
    below, above = included.value, including.value
    if isinstance(below, dict) and isinstance(above, dict):
        both = {key: merge(below[key], node) if key in below else node for key, node in above.items()}
        return replace(including, value={**below, **both})
    if isinstance(below, list) and isinstance(above, list):
        return replace(including, value=[*below, *above])
    return including


class _Gatherer:
    def __init__(self, environ: Mapping[str, str], findings: list[Finding]) -> None:
        self.environ = environ
        self.findings = findings
        self.files: list[Path] = []
        self.folders: list[Path] = []
        self.patterns: list[Node] = []
        self.seen: set[str] = set()

    def content(self, path: Path, chain: tuple[str, ...]) -> Node:
        self.files.append(Path(os.path.abspath(path)))
        node = read(path, self.findings)
        if node is None:
            return Node({}, str(path), 1)
        node = recognise(expand(node, self.environ, self.findings), Settings, self.findings)
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
        """The files an include pattern stands for, in sorted order, written relative to the including file."""
        text = pattern.value
        if not isinstance(text, str) or not text:
            return []
        folder = os.path.dirname(pattern.file)
        absolute = os.path.join(glob.escape(os.path.abspath(folder)), text)
        self.patterns.append(replace(pattern, value=absolute))
        try:
            if not glob.has_magic(text):
                return self.one_match(Path(folder, text), pattern, index)
            found = sorted(glob.glob(text, root_dir=folder or None, recursive=True))
            self.folders.extend(Path(p) for p in _folders(absolute))
        except ValueError:
            found = []
        files = [file for name in found if not (file := Path(folder, name)).is_dir()]
        if not files:
            self.report(
                pattern,
                index,
                f"the pattern {quoted(text)} matches no file; check it, or ignore this until one exists",
                "CFG031",
            )
        return files

    def one_match(self, file: Path, pattern: Node, index: int) -> list[Path]:
        if os.path.lexists(file):
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
        if len(chain) > MAX_NESTING or len(self.files) >= MAX_FILES:
            message = f"at most {MAX_FILES:,} files may be included, {MAX_NESTING} levels deep; include fewer"
            self.report(pattern, index, message, "CFG033")
            return nothing
        self.seen.add(identity)
        return self.content(file, (*chain, identity))

    def report(self, pattern: Node, index: int, message: str, code: str) -> None:
        found = pattern.finding(("include", index), message, code)
        if found not in self.findings:
            self.findings.append(found)


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
