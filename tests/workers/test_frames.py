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


def test_data_that_passes_through_keeps_its_bytes() -> None:
    frame = decode_message(b'{"type":"invokefunction","function_id":"a","data":{ "n" : 1.0e2, "u":"\\u00e9" }}')
    assert isinstance(frame, frames.InvokeFunction)
    assert frame.data is not msgspec.UNSET
    assert bytes(frame.data) == b'{ "n" : 1.0e2, "u":"\\u00e9" }'


@pytest.mark.parametrize(
    "body", ["NaN", "[Infinity, -Infinity]", r'"\ud800"', r'{"a": ["\uDFFF", NaN]}', f"[NaN{',[]' * 400}]"]
)
def test_numbers_that_only_python_writes_become_valid_json(body: str) -> None:
    frame = decode_message(b'{"type":"invocationresult","invocation_id":"i","result":' + body.encode() + b"}")
    assert isinstance(frame, frames.InvocationResult)
    assert frame.result is not msgspec.UNSET
    msgspec.json.decode(frame.result)


def large_registration(**parts: Any) -> frames.RegisterFunction:
    """A function in a large message; what the hub does not know is a part of it."""
    message = {"type": "registerfunction", "id": "a", **parts, "unknown": "u" * frames.LARGE_MESSAGE_BYTES}
    frame = decode_message(json.dumps(message).encode())
    assert isinstance(frame, frames.RegisterFunction)
    return frame


def test_the_schemas_of_a_large_registration_are_kept_as_bytes_and_nothing_else_of_the_message() -> None:
    schema, metadata = {"enum": list(range(1_000))}, {"internal": True}
    frame = large_registration(request_format=schema, response_format=None, metadata=metadata)
    assert type(frame.request_format) is msgspec.Raw
    assert len(encode(frame)) < 10_000
    assert json.loads(encode(frame))["request_format"] == schema
    assert frame.response_format is None
    assert frames.read_parts(frame) == (schema, None, metadata)
    assert frames.is_marked_internal(frame)
    assert not frames.is_marked_internal(large_registration(metadata=["internal"]))


def test_a_schema_with_a_number_that_no_worker_could_read_is_removed_from_a_large_registration() -> None:
    frame = large_registration(request_format={"maximum": "here"}, metadata={"a": 1})
    frame.request_format = msgspec.Raw(b'{"maximum":1e999}')
    assert frames.read_parts(frame) == (None, None, {"a": 1})
    assert frame.request_format is None


def large_call(data: bytes) -> bytes:
    """A call in a large message."""
    return b'{"type":"invokefunction","function_id":"a","data":[%b,"%b"]}' % (data, b"x" * frames.LARGE_MESSAGE_BYTES)


def test_a_large_message_may_have_many_brackets_but_not_be_nested_too_deeply() -> None:
    decode_message(large_call(b"[" + b"[],{}," * 10_000 + b"1]"))
    with pytest.raises(ProtocolError):
        decode_message(large_call(b"[" * 800 + b"]" * 800))


def test_a_large_message_is_text_wherever_its_characters_are_cut() -> None:
    for shift in range(4):
        decode_message(large_call(b'"%b%b"' % (b"." * shift, "🌍".encode() * 40_000)))
    for broken in (b"\xff", "🌍".encode()[:3]):
        with pytest.raises(ProtocolError):
            decode_message(large_call(b'"%b%b"' % ("🌍".encode() * 40_000, broken)))


def test_unset_fields_are_not_sent() -> None:
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
def test_an_error_of_any_shape_is_read(error: bytes, failure: frames.Failure | None) -> None:
    assert read_failure(msgspec.Raw(error)) == failure
    assert read_failure(msgspec.UNSET) is None
