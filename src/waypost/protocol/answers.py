"""What a method answers, and how each era wraps it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.params import SERVER_INFO


class Answer(msgspec.Struct):
    """The encoded body of a result, with `_meta` kept apart because eras add to it."""

    body: bytes
    meta: dict[str, Any] | None = None
    private: bool = False
    result_type: str = "complete"


EMPTY: Final = Answer(b"{}")


class Outcome(msgspec.Struct):
    """A response ready to send: its JSON-RPC error code or 0, and the scopes that were missing, if that was it."""

    payload: bytes
    code: int = 0
    scopes: tuple[str, ...] = ()


def extend(body: bytes, members: bytes) -> bytes:
    """An encoded object with more members."""
    return b"%b%b%b}" % (body[:-1], b"," if len(body) > 2 else b"", members)


def legacy_body(answer: Answer) -> bytes:
    """A result as clients with sessions get it."""
    if answer.meta is None:
        return answer.body
    return extend(answer.body, b'"_meta":' + messages.encode(answer.meta))


class ModernBody:
    """A result as stateless clients get it: its type, who answered, and how long it may be kept."""

    def __init__(self, info: Implementation, ttl_ms: int = 0) -> None:
        self._info = info
        self._who = b'"_meta":' + messages.encode({SERVER_INFO: info})
        self._plain = b'"resultType":"complete",' + self._who
        self._keep = {
            private: b',"ttlMs":%d,"cacheScope":"%b"' % (ttl_ms, b"private" if private else b"public")
            for private in (False, True)
        }

    def __call__(self, answer: Answer, *, cacheable: bool) -> bytes:
        """The whole result."""
        complete = answer.result_type == "complete"
        if complete and answer.meta is None and not cacheable:
            return extend(answer.body, self._plain)
        kind = b'"resultType":' + messages.encode(answer.result_type)
        if complete and cacheable:
            kind += self._keep[answer.private]
        if answer.meta is None:
            return extend(answer.body, kind + b"," + self._who)
        meta = messages.encode({**answer.meta, SERVER_INFO: self._info})
        return extend(answer.body, kind + b',"_meta":' + meta)
