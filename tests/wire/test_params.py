from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from waypost.errors import InvalidParams, InvalidRequest, ParseError
from waypost.wire import params
from waypost.wire.messages import Message, P, parse

KINDS = [
    params.Params,
    params.Initialize,
    params.List,
    params.CallTool,
    params.GetPrompt,
    params.ReadResource,
    params.Complete,
    params.SetLevel,
    params.Cancelled,
    params.Listen,
]


def read(kind: type[P], given: object) -> P:
    return Message("2.0", params=Raw(json.dumps(given).encode())).read(kind)


def test_the_envelope_of_a_stateless_request_is_read() -> None:
    meta = read(
        params.Params,
        {
            "_meta": {
                params.PROTOCOL_VERSION: "2026-07-28",
                params.CLIENT_CAPABILITIES: {"roots": {}},
                params.CLIENT_INFO: {"name": "c", "version": "1", "websiteUrl": "u"},
                params.LOG_LEVEL: "info",
                "progressToken": 4,
                "vendor/key": True,
            }
        },
    ).meta
    assert meta is not UNSET
    assert (meta.protocol_version, meta.client_capabilities, meta.log_level) == ("2026-07-28", {"roots": {}}, "info")
    assert meta.progress_token == 4
    assert meta.client_info is not UNSET
    assert meta.client_info.website_url == "u"


def test_parameters_that_are_left_out_are_empty() -> None:
    assert Message("2.0").read(params.List) == params.List()
    assert Message("2.0").read(params.Params).meta is UNSET


def test_a_call_may_leave_out_its_arguments() -> None:
    assert read(params.CallTool, {"name": "a"}).arguments is None
    assert read(params.CallTool, {"name": "a", "arguments": None}).arguments is None
    assert read(params.CallTool, {"name": "a", "arguments": {"b": [1]}}).arguments == {"b": [1]}


def test_wire_names_are_camel_case() -> None:
    given = {"protocolVersion": "x", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}, "extra": 1}
    assert read(params.Initialize, given).client_info.name == "c"
    assert read(params.Cancelled, {"requestId": "r", "reason": "why"}).request_id == "r"
    assert read(params.Listen, {"notifications": {"toolsListChanged": True}}).notifications == params.ListenFilter(
        tools_list_changed=True
    )


@pytest.mark.parametrize(
    ("kind", "given", "same"),
    [
        (params.List, {"_meta": None, "cursor": None}, {}),
        (params.CallTool, {"name": "a", "_meta": {"progressToken": None}}, {"name": "a", "_meta": {}}),
        (
            params.CallTool,
            {"name": "a", "_meta": None, "arguments": {"b": None, "c": {"d": None}}},
            {"name": "a", "arguments": {"b": None, "c": {"d": None}}},
        ),
        (
            params.Initialize,
            {
                "_meta": None,
                "protocolVersion": "x",
                "capabilities": {"roots": None},
                "clientInfo": {"name": "c", "version": "1", "title": None, "icons": None},
            },
            {"protocolVersion": "x", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
        ),
        (
            params.Complete,
            {"ref": {"type": "t", "name": None, "uri": "u"}, "argument": {"name": "a", "value": ""}, "context": None},
            {"ref": {"type": "t", "uri": "u"}, "argument": {"name": "a", "value": ""}},
        ),
        (
            params.Listen,
            {"notifications": {"toolsListChanged": None, "taskIds": None}},
            {"notifications": {}},
        ),
    ],
)
def test_null_stands_for_a_field_that_is_left_out(kind: type[params.Params], given: Any, same: Any) -> None:
    """Some clients write all of their optional fields; in the arguments of a tool, null is a value."""
    assert read(kind, given) == read(kind, same)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (params.Initialize, {}),
        (params.Initialize, {"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
        (params.Initialize, {"protocolVersion": "x", "capabilities": {}, "clientInfo": {"name": "c"}}),
        (params.List, {"cursor": 3}),
        (params.CallTool, {}),
        (params.CallTool, {"name": 3}),
        (params.CallTool, {"name": "a", "arguments": [1]}),
        (params.ReadResource, {"uri": None}),
        (params.Complete, {"ref": {"type": "ref/prompt"}, "argument": {"name": "a"}}),
        (params.SetLevel, {"level": 1}),
        (params.Params, {"_meta": {"progressToken": 1.5}}),
        (params.Params, {"_meta": []}),
        (params.Params, []),
        (params.Params, None),
        (params.Params, "x"),
        (params.CallTool, None),
        (params.CallTool, {"name": None}),
        (
            params.Initialize,
            {"protocolVersion": "x", "capabilities": None, "clientInfo": {"name": "c", "version": "1"}},
        ),
        (params.Initialize, {"protocolVersion": "x", "capabilities": {}, "clientInfo": {"name": "c", "version": None}}),
        (params.Cancelled, {"requestId": 1.5, "reason": None}),
    ],
)
def test_params_that_do_not_fit_are_invalid(kind: type[params.Params], given: Any) -> None:
    with pytest.raises(InvalidParams, match=r"^Invalid params: .*\.$") as caught:
        read(kind, given)
    assert caught.value.code == -32602


fragments = st.sampled_from(
    [b'"name"', b'"uri"', b'"_meta"', b'"a"', b"1", b"1e999", b"null", b"{", b"}", b"[", b"]", b":", b",", b'"']
) | st.sampled_from([b"\\ud800", b"\\", b"\xff", b"\xc3\xa9"])


@settings(deadline=None)
@given(st.lists(fragments, max_size=8).map(b"".join), st.sampled_from(KINDS))
@example(b'{"name":"\xff"}', params.CallTool)
@example(b'{"name":"\\ud800 and so on"}', params.CallTool)
@example(b'{"name":"a","arguments":{"n":1e999}}', params.CallTool)
def test_any_params_are_read_or_refused(data: bytes, kind: type[params.Params]) -> None:
    try:
        message = parse(b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + data + b"}")
        read_as = message.read(kind)
    except (ParseError, InvalidRequest, InvalidParams):
        return
    assert type(read_as) is kind
