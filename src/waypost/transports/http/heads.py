"""Heads of requests that were parsed before: a client sends the same one over and over, so it is looked up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from waypost.transports.http.asgi import Header, KnownHeaders, Scope

END: Final = b"\r\n\r\n"
_MOST: Final = 512
_LONGEST: Final = 4096
_LARGEST: Final = 16_384
"""Bytes of a body that is waited for before anybody looks at its request."""
_SPECIAL: Final = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
"""Headers that say how a request goes on; heads with one of them are parsed each time."""
_VERSION: Final = "1.1"


class Head(NamedTuple):
    """What a request is about, and how many bytes follow it."""

    about: dict[str, Any]
    """The part of an ASGI scope that does not depend on the connection."""
    length: int


class Heads:
    """The heads that were seen of late, by their bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}
        self.get: Final = self._known.get

    def learn(self, data: bytes, scope: Scope) -> None:
        """Remember what a head came to, unless it is long or special, or much follows it."""
        is_plain = scope["http_version"] == _VERSION and scope["method"] != "HEAD"
        length = _length(scope["headers"]) if is_plain else None
        if length is None or length > _LARGEST or len(data) > _LONGEST:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        about = {name: scope[name] for name in ("http_version", "method", "path", "raw_path", "query_string")}
        self._known[data] = Head({**about, "headers": KnownHeaders(scope["headers"])}, length)


def _length(headers: Iterable[Header]) -> int | None:
    """How long a body is; nothing where a look at the headers alone does not tell."""
    length = b"0"
    for name, value in headers:
        if name in _SPECIAL or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        if name == b"content-length":
            length = value
    return int(length) if length.isdigit() else None
