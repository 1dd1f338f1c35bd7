"""HTTP headers that repeat what the body says, so that proxies can route; both must agree."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from waypost.capabilities.capability import Capability
from waypost.capabilities.headers import HeaderParameter
from waypost.errors import HeaderMismatch

VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
PARAMETER: Final = b"mcp-param-"

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_OPEN: Final = b"=?base64?"
_CLOSE: Final = b"?="

REPEATED: Final = b"=?base64?given more than once?="
"""What stands for a header that is given more than once: no value of a body is ever equal to it."""


def check(headers: Mapping[bytes, bytes], version: str, method: str, name: str | None) -> None:
    """Refuse a request whose version, method or name differ between headers and body."""
    if (
        headers.get(VERSION) == version.encode()
        and headers.get(METHOD) == method.encode()
        and (name is None or headers.get(NAME) == name.encode())
    ):
        return
    _expect(headers, VERSION, version)
    _expect(headers, METHOD, method)
    if name is not None:
        _expect(headers, NAME, name)


def check_parameters(headers: Mapping[bytes, bytes], tool: Capability, arguments: Mapping[str, Any]) -> None:
    """Refuse a call whose `Mcp-Param-*` headers differ from its arguments."""
    for parameter in tool.headers:
        header = PARAMETER + parameter.header.encode()
        expected = _argument(arguments, parameter)
        given = headers.get(header)
        if expected is None and given is None:
            continue
        if expected is None or given is None:
            where = "arguments" if expected is None else "headers"
            raise HeaderMismatch(f"{header.decode()} is missing from the {where}.")
        if not _agrees(decode(given, header), expected, parameter.type):
            raise HeaderMismatch(f"{header.decode()} does not match the argument {'.'.join(parameter.path)}.")


def _expect(headers: Mapping[bytes, bytes], header: bytes, value: str) -> None:
    given = headers.get(header)
    if given is None:
        raise HeaderMismatch(f"The header {header.decode()} is missing.")
    if decode(given, header) != value:
        raise HeaderMismatch(f"The header {header.decode()} does not match the body.")


def decode(value: bytes, header: bytes) -> str:
    """The text of a header value, which may be wrapped in base64."""
    value = value.strip(b" \t")
    if value == REPEATED:
        raise HeaderMismatch(f"The header {header.decode('latin-1')} is given more than once.")
    if not (value.startswith(_OPEN) and value.endswith(_CLOSE) and len(value) >= len(_OPEN) + len(_CLOSE)):
        return value.decode("latin-1")
    packed = value[len(_OPEN) : -len(_CLOSE)]
    try:
        raw = base64.b64decode(packed, validate=True)
        if base64.b64encode(raw) == packed:
            return raw.decode()
    except (binascii.Error, ValueError):
        pass
    raise HeaderMismatch(f"The header {header.decode('latin-1')} is not valid base64 of UTF-8 text.")


def _argument(arguments: Mapping[str, Any], parameter: HeaderParameter) -> Any:
    value: Any = arguments
    for name in parameter.path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _agrees(text: str, expected: Any, kind: str) -> bool:
    if kind == "integer" and isinstance(expected, (int, float)) and not isinstance(expected, bool):
        return _NUMBER.fullmatch(text) is not None and Decimal(text) == expected
    if isinstance(expected, bool):
        return text == ("true" if expected else "false")
    return text == str(expected)
