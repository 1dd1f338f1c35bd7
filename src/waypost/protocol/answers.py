"""What a method answers, and how each era wraps it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId
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

    def response(self, request_id: RequestId, answer: Answer, *, cacheable: bool) -> bytes:
        """The whole response."""
        if cacheable or answer.meta is not None or answer.result_type != "complete" or len(answer.body) == 2:
            return messages.result(request_id, self(answer, cacheable=cacheable))
        # What a tool call comes to, put together in one go.
        return b'{"jsonrpc":"2.0","id":%b,"result":%b,%b}}' % (
            messages.encode(request_id),
            answer.body[:-1],
            self._plain,
        )

    def __call__(self, answer: Answer, *, cacheable: bool) -> bytes:
        """The whole result."""
        complete = answer.result_type == "complete"
        kind = b'"resultType":' + messages.encode(answer.result_type)
        if complete and cacheable:
            kind += self._keep[answer.private]
        if answer.meta is None:
            return extend(answer.body, kind + b"," + self._who)
        meta = messages.encode({**answer.meta, SERVER_INFO: self._info})
        return extend(answer.body, kind + b',"_meta":' + meta)
