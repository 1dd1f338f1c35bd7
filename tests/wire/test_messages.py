from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from waypost.errors import InvalidRequest, ParseError
from waypost.wire import messages
from waypost.wire.messages import DEFAULT_DEPTH, find_id, is_too_deep, parse, parse_batch

CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"q":["\\"[{"]}}}'

SPANNERS = (b'"', b"\\", b"{", b"null", b"\\ud800", b"\xff")

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('[]{}"\\a', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\', max_size=2), inner, max_size=3),
    max_leaves=12,
)


def depth_of(value: Any) -> int:
    """The nesting depth of a value, found recursively."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def depth_of_text(data: bytes) -> int:
    """The deepest bracket outside of strings, one byte after the other, up to a backslash, where no decoder goes on."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            in_string, escaped = escaped or byte != ord('"'), not escaped and byte == ord("\\")
        elif byte == ord('"'):
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
        elif byte == ord("\\"):
            break
    return deepest


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@settings(deadline=None)
@given(values, st.integers(0, 4), st.booleans())
def test_the_depth_limit_agrees_with_a_recursive_count(value: Any, limit: int, indented: bool) -> None:
    data = json.dumps(value, indent=1 if indented else None).encode()
    assert is_too_deep(data, limit) == (depth_of(value) > limit) == (depth_of_text(data) > limit)


@settings(deadline=None)
@given(st.text('[]{}"\\a', max_size=30).map(str.encode), st.integers(0, 4))
def test_the_depth_of_invalid_json_is_never_underestimated(data: bytes, limit: int) -> None:
    if depth_of_text(data) > limit:
        assert is_too_deep(data, limit)


def test_the_limit_itself_is_allowed() -> None:
    assert not is_too_deep(nested(DEFAULT_DEPTH), DEFAULT_DEPTH)
    assert is_too_deep(nested(DEFAULT_DEPTH + 1), DEFAULT_DEPTH)


def test_depth_is_found_without_recursion() -> None:
    assert is_too_deep(b"[" * 1_000_000, DEFAULT_DEPTH)


_SIZE = 3_000_000


@pytest.mark.parametrize(
    "piece",
    [
        b'"' + b'\\"' * (_SIZE // 2),
        b'"' + b"a" * _SIZE + b'"',
        b"[]" * (_SIZE // 2),
        nested(DEFAULT_DEPTH - 1) * (_SIZE // (2 * DEFAULT_DEPTH)),
        nested(5) * (_SIZE // 10),
        (b"[[[[]]" * 20 + b"]]" * 20) * (_SIZE // 160),
        (b"[" * 60 + b"[]]" * 60) * (_SIZE // 240),
        b'"",' * (_SIZE // 3),
        b'["[",' * (_SIZE // 5),
        b"[" * _SIZE,
    ],
    ids=["unfinished", "long string", "flat", "towers", "low towers", "stairs", "combs", "strings", "pairs", "open"],
)
def test_depth_is_found_in_linear_time(piece: bytes) -> None:
    # Taking pairs away, once for each level, took 25 times as long for towers as for a flat list of the same size.
    assert time_depth(piece) < 15 * time_depth(b"[]" * (_SIZE // 2))


def time_depth(piece: bytes) -> float:
    """The shortest of a few tries, in CPU time."""
    tries = []
    for _ in range(3):
        start = time.thread_time()
        is_too_deep(b"[]" * (DEFAULT_DEPTH + 1) + piece, DEFAULT_DEPTH)
        tries.append(time.thread_time() - start)
    return min(tries)


def test_a_request_has_an_id_and_a_method() -> None:
    message = parse(CALL)
    assert (message.id, message.method) == (7, "tools/call")
    assert message.params is not UNSET
    assert json.loads(bytes(message.params))["name"] == "a"
    assert (message.result, message.error) == (UNSET, UNSET)


@pytest.mark.parametrize("number", ["0", "-1", '"a"', '""', "123456789012345678901234567890"])
def test_an_id_is_any_integer_or_text(number: str) -> None:
    assert parse(f'{{"jsonrpc":"2.0","id":{number},"method":"m"}}'.encode()).id == json.loads(number)


def test_a_notification_has_no_id_and_a_response_no_method() -> None:
    assert parse(b'{"jsonrpc":"2.0","method":"m"}').id is UNSET
    assert parse(b'{"jsonrpc":"2.0","id":1,"result":{}}').method is UNSET
    assert parse(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}').id is None


def test_unknown_members_are_ignored() -> None:
    assert parse(b'{"jsonrpc":"2.0","method":"m","more":[1]}').method == "m"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"nonsense",
        b'{"jsonrpc":"2.0","method":"m"} trailing',
        b'{"jsonrpc":"2.0","method":"m","params":{bad}}',
        b'{"jsonrpc":"2.0","method":"m","params":[01]}',
        b'{"jsonrpc":"2.0","method":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"\xff"}}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"m"}',
        b'{"jsonrpc":"2.0","method":"m","params":' + nested(DEFAULT_DEPTH) + b"}",
    ],
)
def test_invalid_json_is_a_parse_error(data: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        parse(data)
    assert caught.value.code == -32700


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"3",
        b"null",
        b"{}",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"1.0","id":1,"method":"m"}',
        b'{"jsonrpc":2.0,"id":1,"method":"m"}',
        b'{"id":1,"method":"m"}',
        b'{"jsonrpc":"2.0","id":null,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"m"}',
        b'{"jsonrpc":"2.0","id":true,"method":"m"}',
        b'{"jsonrpc":"2.0","id":[1],"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":3}',
    ],
)
def test_json_that_is_no_message_is_an_invalid_request(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(data)
    assert caught.value.code == -32600


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(CALL)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 5)))
        data[start:end] = draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"{", b"null", b"\\ud800", b"\xff"])
        )
    return bytes(data)


@settings(deadline=None)
@given(st.binary(max_size=60) | mutated() | values.map(lambda value: json.dumps(value).encode()))
def test_anything_else_is_refused_as_one_of_two_errors(data: bytes) -> None:
    try:
        message = parse(data)
    except (ParseError, InvalidRequest):
        return
    assert message.jsonrpc == "2.0"


@settings(deadline=None)
@given(mutated() | st.binary(max_size=40))
@example(CALL)
def test_the_id_found_in_any_bytes_is_an_integer_or_a_string_or_none(data: bytes) -> None:
    found = find_id(data)
    assert found is None or isinstance(found, int | str)


def test_the_id_of_a_refused_message_is_found() -> None:
    assert find_id(b'{"jsonrpc":"1.0","id":3,"method":5}') == 3
    assert find_id(b'{"id":"x"}') == "x"
    assert find_id(b'{"id":null}') is None
    assert find_id(b'{"id":[1]}') is None
    assert find_id(b"[1]") is None
    assert find_id(b"{") is None


def test_a_batch_is_taken_apart() -> None:
    assert parse_batch(b'[{"a": 1}, 2,"x"]') == [b'{"a": 1}', b"2", b'"x"']


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"[", ParseError),
        (b"[1,]", ParseError),
        (nested(DEFAULT_DEPTH + 1), ParseError),
        (b"[]", InvalidRequest),
    ],
)
def test_a_wrong_batch_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_batch(data)


def test_responses_and_notifications_are_written_out() -> None:
    assert messages.result("a", b'{"x":1}') == b'{"jsonrpc":"2.0","id":"a","result":{"x":1}}'
    assert json.loads(messages.error(None, -32600, "no")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32600, "message": "no"},
    }
    assert json.loads(messages.error(1, -1, "no", {"k": 1}))["error"]["data"] == {"k": 1}
    assert json.loads(messages.notification("n")) == {"jsonrpc": "2.0", "method": "n"}
    assert json.loads(messages.notification("n", {"a": 1}))["params"] == {"a": 1}
    assert json.loads(messages.request(5, "m", {"a": 1})) == {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "m",
        "params": {"a": 1},
    }
    assert "params" not in json.loads(messages.request(5, "m"))


@settings(deadline=None)
@given(
    st.integers() | st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
)
def test_a_written_request_is_one_line_that_parses_again(number: int | str, method: str) -> None:
    written = messages.request(number, method, {"text": method})
    assert b"\n" not in written
    message = parse(written)
    assert (message.id, message.method) == (number, method)


def test_a_message_with_half_a_surrogate_pair_is_refused_by_its_id() -> None:
    torn = b'{"jsonrpc":"2.0","id":%b,"method":"m","params":{"a":"\\uD800"}}'

    with pytest.raises(InvalidRequest, match="half of a surrogate pair"):
        parse(torn % b"7")
    assert [find_id(torn % given) for given in (b"7", b'"x"', b'"\\ud801"', b"true", b"[1]")] == [
        7,
        "x",
        *[None] * 3,
    ]
    with pytest.raises(ParseError):
        parse(torn[:-1] % b"7")
    assert find_id(torn[:-1] % b"7") is None
