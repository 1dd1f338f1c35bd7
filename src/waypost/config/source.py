"""Reading one YAML file."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import yaml

from waypost.config.composing import Composer
from waypost.config.findings import Finding, finding
from waypost.config.nodes import Node, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
_USUAL = "waypost.yaml"
"""What is looked for where nobody names a file."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path, findings: list[Finding]) -> Node | None:
    """The content of a YAML file, or None when it cannot be used; what is wrong is added to `findings`."""
    file = str(path)
    try:
        text = _text(path, file)
        return Composer(file, findings).document(events(text, file))
    except Refused as refused:
        findings.append(refused.found)
        return None


def _text(path: Path, file: str) -> str:
    try:
        # Opening a pipe or a device could block for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            kind = "a directory" if os.path.isdir(path) else "not a regular file"
            raise Refused(finding(file, 1, (), f"the path is {kind}; give the path of a YAML file", "CFG002"))
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Refused(finding(file, 1, (), _missing(file), "CFG001")) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Refused(finding(file, 1, (), f"the file cannot be read: {reason}", "CFG001")) from None
    if len(data) > MAX_BYTES:
        raise Refused(finding(file, 1, (), "the file is larger than 4 MiB; split it with `include`", "CFG002"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(finding(file, line, (), "the file is not UTF-8 text; save it as UTF-8", "CFG003")) from None


def _missing(file: str) -> str:
    if file != _USUAL:
        return "the file does not exist; check the path"
    return f"there is no such file in {os.getcwd()}; run `waypost init`, or name another"


def events(text: str, file: str) -> Iterator[yaml.Event]:
    """What stands in a YAML text, piece by piece."""
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
