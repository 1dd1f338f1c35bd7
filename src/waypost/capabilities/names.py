"""Names: from code to wire, and from any wire name to one that every model API accepts."""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal

from waypost.errors import DefinitionError

_WIRE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_PORTABLE: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_PORTABLE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_PORTABLE_LENGTH: Final = 64


def snake_case(class_name: str) -> str:
    """`GetWeather` as `get_weather`, `HTTPServer` as `http_server`."""
    return _WORD_START.sub("_", class_name).lower()


def is_wire_name(name: str) -> bool:
    """Whether a name can go over the wire as it is."""
    return _WIRE_NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """The name itself, if it can go over the wire."""
    if isinstance(name, str) and is_wire_name(name):
        return name
    raise DefinitionError(f"The name {name!r} is not usable: take 1 to 128 of the characters A-Z a-z 0-9 _ . : / -.")


def is_portable(name: str) -> bool:
    """Whether every model API accepts `name` as it is."""
    return _PORTABLE.fullmatch(name) is not None


def to_portable(name: str) -> str:
    """`name` in the characters every model API accepts; equal names in give equal names out."""
    if is_portable(name):
        return name
    spelled = name.lower() if " " in name else name
    plain = _NOT_PORTABLE.sub("_", spelled.replace(":", "__"))
    return plain if len(plain) <= _PORTABLE_LENGTH else disambiguate(name, plain)


def disambiguate(name: str, taken: str, attempt: int = 0) -> str:
    """A portable name for `name` when `taken` is somebody else's already; another one for each attempt."""
    digest = hashlib.sha256(f"{name}{attempt or ''}".encode()).hexdigest()[:8]
    return f"{taken[: _PORTABLE_LENGTH - 9]}_{digest}"


Surface = Literal["gateway", "full", "both"]
"""The seven tools of the gateway, every visible capability, or both."""

GATEWAY_TOOLS: Final = frozenset(
    {
        "gateway.describe",
        "gateway.home",
        "gateway.search",
        "workflow.explain",
        "workflow.get",
        "workflow.start",
        "workflow.submit",
    }
)
"""The tools of the gateway, whatever is wired in."""
