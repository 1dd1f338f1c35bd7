"""What a method answers, and how each era wraps it."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from waypost.capabilities.resources import MAX_URI_CHARACTERS
from waypost.errors import (
    CallError,
    InsufficientScope,
    InvalidArguments,
    PolicyDenied,
    ProtocolError,
    UnknownCapability,
    UnknownResource,
    WaypostError,
    shorten,
)
from waypost.wire import messages
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId, readable
from waypost.wire.params import SERVER_INFO
from waypost.wire.versions import is_modern


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


_log: Final = logging.getLogger(__name__)

INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CALL_FAILED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002


class Failure(msgspec.Struct, frozen=True):
    """A JSON-RPC error, not yet addressed to a request."""

    code: int
    message: str
    data: Any = None
    scopes: tuple[str, ...] = ()

    def outcome(self, request_id: RequestId | None) -> Outcome:
        """The error response to `request_id`, and what a transport must know about it."""
        return Outcome(self.response(request_id), self.code, self.scopes)

    def response(self, request_id: RequestId | None) -> bytes:
        """The error response to `request_id`."""
        return messages.error(request_id, self.code, self.message, self.data)


STOPPING: Final = Failure(INTERNAL_ERROR, "The hub is stopping.")
"""What a client is told whose request was given up because the hub stops."""
REFUSED: Final = Failure(INTERNAL_ERROR, "The key of this request is refused by now.")
"""What a client is told whose request was given up because its key was taken away."""


def failure(error: Exception, version: str) -> Failure:
    """What a client of `version` is told about `error`; surprises are logged and told without details."""
    told = _failure(error, version)
    return msgspec.structs.replace(told, message=readable(told.message), data=readable(told.data))


def _failure(error: Exception, version: str) -> Failure:
    match error:
        case InsufficientScope():
            return Failure(error.code, error.message, error.data, error.required)
        case ProtocolError():
            return Failure(error.code, error.message, error.data)
        case UnknownResource():
            code = INVALID_PARAMS if is_modern(version) else RESOURCE_NOT_FOUND
            return Failure(code, error.message, {"uri": shorten(error.uri, MAX_URI_CHARACTERS)})
        case InvalidArguments():
            return Failure(INVALID_PARAMS, f"Invalid arguments: {error.message}")
        case UnknownCapability():
            return Failure(INVALID_PARAMS, error.message)
        case CallError() | PolicyDenied():
            return Failure(CALL_FAILED, error.message)
        case WaypostError():
            return Failure(INTERNAL_ERROR, error.message)
        case _:
            _log.exception("a request failed", exc_info=error)
            return Failure(INTERNAL_ERROR, "Internal error")
