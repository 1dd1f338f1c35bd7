"""The one place where an error of the hub becomes one that workers know."""

from __future__ import annotations

import logging
from typing import Final

from waypost.errors import (
    DeadlineExceeded,
    InsufficientScope,
    InvocationFailed,
    PolicyDenied,
    UnknownTool,
    WaypostError,
    shorten,
)
from waypost.redaction import redacted
from waypost.workers.frames import Failure

_log: Final = logging.getLogger(__name__)
UNKNOWN: Final = "function_not_found"
"""That nobody offers a function."""
_CODES: Final = (
    (PolicyDenied, "FORBIDDEN"),
    (InsufficientScope, "FORBIDDEN"),
    (UnknownTool, UNKNOWN),
    (DeadlineExceeded, "TIMEOUT"),
)


class Unreached(InvocationFailed):
    """Nobody could be asked, or whoever was asked is gone: the function itself did not fail."""


def failure_of(error: BaseException) -> Failure:
    """What a worker is told about an error."""
    if isinstance(error, InvocationFailed):
        return Failure(error.code, error.message, error.stacktrace)
    if isinstance(error, WaypostError):
        code = next((code for kind, code in _CODES if isinstance(error, kind)), "invocation_error")
        return Failure(code, error.message)
    _log.error("a call of a worker crashed", exc_info=error)
    return Failure("invocation_error", redacted(f"{type(error).__name__}: {error}"))


def not_found(function_id: str, namespace: str) -> InvocationFailed:
    """Nobody offers a function."""
    return Unreached(f"Function {shorten(function_id)} not found in namespace {shorten(namespace)}.", UNKNOWN)
