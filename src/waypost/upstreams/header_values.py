"""Text as HTTP header values, and the arguments that are repeated in headers."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from waypost.capabilities.headers import HeaderParameter, header_parameters
from waypost.errors import DefinitionError


def header_value(text: str) -> str:
    """`text` as an HTTP header value, wrapped where it would not survive as it is."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def parameters_of(tools: Iterable[Any]) -> dict[str, tuple[HeaderParameter, ...]]:
    """The header parameters of tools by their names; definitions that make no sense have none."""
    found: dict[str, tuple[HeaderParameter, ...]] = {}
    for tool in tools:
        name, schema = (tool.get("name"), tool.get("inputSchema")) if isinstance(tool, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(schema, dict):
            continue
        try:
            found[name] = header_parameters(schema)
        except DefinitionError:
            found[name] = ()
    return found


def repeated(parameters: Iterable[HeaderParameter], arguments: Any) -> dict[str, str]:
    """The arguments of a call that its tool wants repeated, as headers."""
    headers = {}
    for parameter in parameters:
        value = arguments
        for name in parameter.path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            headers[f"Mcp-Param-{parameter.header}"] = header_value(text)
    return headers
