"""Bytes that resemble messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION

TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b"\\u2028",
    b"\\ud800",
    b"null",
    b"true",
    b"-",
    b"1e999",
    b"9" * 30,
    b"\xff",
    b"\x00",
    b",",
    b":",
    b'"id":null,',
    b'"params":[]',
    b'"_meta":{}',
    b'"method":7,',
]

_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
_methods = st.sampled_from(
    [
        "initialize",
        "ping",
        "tools/call",
        "tools/list",
        "resources/read",
        "resources/subscribe",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "server/discover",
        "notifications/cancelled",
        "no/such",
        "",
    ]
)
_meta = st.fixed_dictionaries(
    {},
    optional={
        PROTOCOL_VERSION: st.one_of(st.sampled_from(["2026-07-28", "2025-06-18", "v999"]), _values),
        CLIENT_CAPABILITIES: st.one_of(st.just({}), _values),
        "progressToken": _values,
        "io.modelcontextprotocol/logLevel": _values,
    },
)
_params = st.fixed_dictionaries(
    {},
    optional={
        "_meta": st.one_of(_meta, _values),
        "name": st.one_of(st.sampled_from(["add", "deploy", "greet", "count"]), _values),
        "arguments": _values,
        "uri": st.one_of(st.sampled_from(["docs://readme", "notes://7", "x"]), _values),
        "cursor": _values,
        "level": _values,
        "requestId": _values,
        "ref": _values,
        "argument": _values,
    },
)
_envelopes = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.one_of(st.just("2.0"), _values),
        "id": _values,
        "method": st.one_of(_methods, _values),
        "params": st.one_of(_params, _values),
        "result": _values,
        "error": _values,
    },
)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@st.composite
def _mutated(draw: st.DrawFn, examples: Sequence[Any]) -> bytes:
    data = _encoded(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 8)))
        data = data[:start] + draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=3))) + data[end:]
    return data.replace(b"\n", b" ")


def hostile_bytes(examples: Sequence[Any]) -> st.SearchStrategy[bytes]:
    """Random bytes, random JSON in the shape of messages, and real messages with damage."""
    return st.one_of(
        st.binary(max_size=40).map(lambda data: data.replace(b"\n", b" ")),
        _values.map(_encoded),
        _envelopes.map(_encoded),
        st.sampled_from(examples).map(_encoded),
        _mutated(examples),
    )
