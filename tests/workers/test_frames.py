"""Messages as data."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from waypost.errors import ProtocolError
from waypost.workers import frames
from waypost.workers.frames import decode_message, encode, read_failure

MESSAGES: list[dict[str, Any]] = [
    {"type": "registerfunction", "id": "a", "description": None, "request_format": None, "metadata": {}, "new": 1},
    {"type": "registerfunction", "id": "a", "invocation": {"url": "http://x", "method": "POST"}},
    {"type": "registerfunction", "id": "a", "observe": {"delivery": "auto", "allow": True}},
    {"type": "unregisterfunction", "id": "a"},
    {"type": "invokefunction", "function_id": "a", "data": None, "action": {"type": "void"}},
    {"type": "invokefunction", "function_id": "a", "action": {"type": "enqueue", "queue": "q"}, "namespace": "n"},
    {"type": "invocationresult", "invocation_id": "i", "function_id": "a", "result": None},
    {"type": "registertriggertype", "id": "t", "description": "d", "trigger_request_format": {}},
    {"type": "unregistertriggertype", "id": "t", "description": "d"},
    {"type": "registertrigger", "id": "b", "trigger_type": "t", "function_id": "a"},
    {"type": "unregistertrigger", "id": "b", "message_type": "unregistertrigger"},
    {"type": "triggerregistrationresult", "id": "b", "error": {"code": "c", "message": "m"}},
    {"type": "registerservice", "id": "s", "name": "n"},
    {"type": "reattach", "previous_worker_id": "w"},
    {"type": "ping"},
    {"type": "pong"},
    {"type": "observe", "id": "o", "source": {"function_id": "a"}, "target": {"function_id": "b"}},
    {"type": "unobserve", "id": "o"},
    {"type": "observerack", "function_id": "a", "id": "o", "revision": 1},
    {"type": "invocationsobserved", "items": []},
    {"type": "localinvocationstats", "window_ms": 1, "functions": []},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: str(message["type"]))
def test_every_message_is_read_in_any_order_of_its_fields(message: dict[str, Any]) -> None:
    backwards = dict(reversed(message.items()))
    assert decode_message(json.dumps(message).encode()) == decode_message(json.dumps(backwards).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"type":"x"}', b'{"type":"ping"}x', b"\xff", b'"NaN', b"NaN"]
)
def test_an_invalid_message_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message that the hub knows"):
        decode_message(data)


def test_what_passes_through_stays_the_bytes_that_it_was() -> None:
    frame = decode_message(b'{"type":"invokefunction","function_id":"a","data":{ "n" : 1.0e2, "u":"\\u00e9" }}')
    assert isinstance(frame, frames.InvokeFunction)
    assert frame.data is not msgspec.UNSET
    assert bytes(frame.data) == b'{ "n" : 1.0e2, "u":"\\u00e9" }'


@pytest.mark.parametrize("body", ["NaN", "[Infinity, -Infinity]", r'"\ud800"', r'{"a": ["\uDFFF", NaN]}'])
def test_what_only_python_writes_is_made_readable(body: str) -> None:
    frame = decode_message(b'{"type":"invocationresult","invocation_id":"i","result":' + body.encode() + b"}")
    assert isinstance(frame, frames.InvocationResult)
    assert frame.result is not msgspec.UNSET
    msgspec.json.decode(frame.result)


def test_nothing_is_said_that_is_not_known() -> None:
    assert encode(frames.WorkerRegistered("w")) == b'{"type":"workerregistered","worker_id":"w"}'
    assert encode(frames.InvokeFunction("a", frames.NULL)) == b'{"type":"invokefunction","function_id":"a","data":null}'


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (b"null", None),
        (b'{"code":"c","message":"m"}', frames.Failure("c", "m")),
        (b'{"message":"m"}', frames.Failure("UNKNOWN", "m")),
        (b'"text"', frames.Failure("UNKNOWN", '"text"')),
        (b"{}", frames.Failure("UNKNOWN", "")),
    ],
)
def test_an_error_is_read_whatever_it_looks_like(error: bytes, failure: frames.Failure | None) -> None:
    assert read_failure(msgspec.Raw(error)) == failure
    assert read_failure(msgspec.UNSET) is None
