"""From what a handler returns or raises to an answer."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from waypost.errors import (
    DefinitionError,
    InvalidParams,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    UnknownCapability,
    WaypostError,
    WorkflowRefused,
)

JSON: Final = b"application/json"
Header = tuple[bytes, bytes]

_log: Final = logging.getLogger(__name__)
_STATUS: Final[tuple[tuple[type[WaypostError], int], ...]] = (
    (InvalidParams, 400),
    (UnknownCapability, 404),
    (StoreUnavailable, 503),
    (StoreDamaged, 503),
    (StoreError, 409),
    (DefinitionError, 409),
)
"""The status of each error; the first that fits."""
_REFUSED: Final = {
    "INVALID_DEFINITION": 400,
    "POLICY_DENIED": 403,
    "UNKNOWN_APPROVAL": 404,
    "UNKNOWN_ID": 404,
    "UNKNOWN_WORKFLOW": 404,
}
"""The status of each refusal of a workflow; 409 of the others."""


class Answer(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[Header, ...] = ()


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is answered when something is not done."""

    error: str
    code: str = ""


def answered(value: Any, status: int = 200) -> Answer:
    """A value as JSON."""
    return Answer(status, msgspec.json.encode(value))


def refused(status: int, sentence: str, *headers: Header, code: str = "") -> Answer:
    """A refusal in one sentence."""
    return Answer(status, msgspec.json.encode(Failure(sentence, code)), headers=headers)


def failed(error: Exception) -> Answer:
    """The answer to whoever ran into an error."""
    if isinstance(error, WorkflowRefused):
        return refused(_REFUSED.get(error.code, 409), error.message, code=error.code)
    if isinstance(error, WaypostError):
        for kind, status in _STATUS:
            if isinstance(error, kind):
                return refused(status, error.message, code=str(getattr(error, "code", "") if status == 409 else ""))
    _log.error("the API failed", exc_info=error)
    return refused(500, "The hub failed to answer; its log says why.")
