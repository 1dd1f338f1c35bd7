"""Arguments of prompts and of resource templates, which travel as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.capabilities.schemas.forms import Arguments


class TextArguments:
    """Arguments that clients can only send as text; fields of other types are read from it."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        properties: Mapping[str, Any] = arguments.schema.get("properties", {})
        known: Mapping[str, Any] = arguments.schema.get("$defs", {})
        self._texts = frozenset(name for name, part in properties.items() if _takes_text(part, known))
        self.schema = arguments.schema
        self.cast_plan = arguments.cast_plan

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Read each value as what its field is, then check them all."""
        return self._arguments.admit(
            {name: value if name in self._texts else _read(value) for name, value in arguments.items()}
        )


def _takes_text(part: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether a field takes text as it is."""
    if "$ref" in part:
        return _takes_text(known.get(part["$ref"].rpartition("/")[2], {}), known)
    if any(_takes_text(option, known) for option in part.get("anyOf", ())):
        return True
    kind = part.get("type", ())
    return kind == "string" or "string" in kind or any(isinstance(value, str) for value in part.get("enum", ()))


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value
