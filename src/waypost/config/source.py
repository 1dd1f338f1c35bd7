"""Parsing one YAML file into nodes that remember their lines."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

import yaml

from waypost.config.composing import Composer
from waypost.config.findings import Finding, finding
from waypost.config.nodes import Node, Refused
from waypost.config.snapshots import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from waypost.config.snapshots import FileState, Snapshot

_DEFAULT_FILE = "waypost.yaml"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path, snapshot: Snapshot, findings: list[Finding]) -> Node | None:
    """Parse a YAML file as a snapshot holds it; None, with a finding, where it cannot be used."""
    file = str(path)
    try:
        text = _decode(snapshot.read(path), file)
        return Composer(file, findings).document(events(text, file))
    except Refused as refused:
        findings.append(refused.found)
        return None


def _decode(state: FileState, file: str) -> str:
    if state.error == errno.ENOENT:
        raise Refused(finding(file, 1, (), _missing(file), "CFG001"))
    if state.error:
        raise Refused(finding(file, 1, (), f"the file cannot be read: {os.strerror(state.error)}", "CFG001"))
    if not state.is_readable:
        kind = "a directory" if stat.S_ISDIR(state.mode) else "not a regular file"
        raise Refused(finding(file, 1, (), f"the path is {kind}; give the path of a YAML file", "CFG002"))
    if len(state.content) > MAX_FILE_BYTES:
        raise Refused(finding(file, 1, (), "the file is larger than 4 MiB; split it with `include`", "CFG002"))
    try:
        return state.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = state.content.count(b"\n", 0, error.start) + 1
        raise Refused(finding(file, line, (), "the file is not UTF-8 text; save it as UTF-8", "CFG003")) from None


def _missing(file: str) -> str:
    if file != _DEFAULT_FILE:
        return "the file does not exist; check the path"
    return f"there is no such file in {os.getcwd()}; run `waypost init`, or name another"


def events(text: str, file: str) -> Iterator[yaml.Event]:
    """Yield the parser events of a YAML text; raises `Refused` where it is not valid YAML."""
    try:
        yield from yaml.parse(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise Refused(finding(file, line, (), _syntax_problem(error, text, line), "CFG004")) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = "the file holds a control character that YAML does not allow; remove it"
        raise Refused(finding(file, line, (), message, "CFG004")) from None


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    lines = text.split("\n", line)
    content = lines[line - 1] if line <= len(lines) else ""
    indentation = content[: len(content) - len(content.lstrip())]
    if "\t" in indentation:
        return "the line is indented with a tab; use spaces"
    context = f" {error.context}" if error.context else ""
    hint = "; put a value with `${` in quotes here" if "${" in content else ""
    return f"the YAML is not valid: {error.problem}{context}{hint}"
