"""Toolkit references: files such as `./tools.py:Kit`, and modules such as `package.module:Kit`."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAMED = re.compile(r"(?P<target>.+):(?P<name>[A-Za-z_]\w*)", re.DOTALL)
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def split(reference: str) -> tuple[str, str | None]:
    """The file or module of a reference, and the name inside it if one is given."""
    match = _NAMED.fullmatch(reference)
    return (match["target"], match["name"]) if match else (reference, None)


def file_of(reference: str) -> Path | None:
    """The file a reference names, or None when it names a module."""
    target, _ = split(reference)
    is_file = target.startswith(("./", "../", "/")) or target.endswith(".py")
    return Path(target) if is_file else None


def absolute(reference: str, folder: str) -> str:
    """The reference with its file, if it names one, taken relative to `folder`."""
    file = file_of(reference)
    if file is None:
        return reference
    _, name = split(reference)
    path = os.path.abspath(os.path.join(folder, file))
    return f"{path}:{name}" if name else path


def is_module(reference: str) -> bool:
    """Whether a reference has the form of a module or of a name in one."""
    return _MODULE.fullmatch(split(reference)[0]) is not None
