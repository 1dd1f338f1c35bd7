"""The one place where an error becomes a JSON-RPC error."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from waypost.errors import (
    CallError,
    InsufficientScope,
    InvalidArguments,
    PolicyDenied,
    ProtocolError,
    UnknownCapability,
    UnknownResource,
    WaypostError,
)
from waypost.protocol.answers import Outcome
from waypost.wire import messages
from waypost.wire.messages import RequestId
from waypost.wire.readable import readable
from waypost.wire.versions import is_modern

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
            return Failure(code, error.message, {"uri": error.uri})
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
