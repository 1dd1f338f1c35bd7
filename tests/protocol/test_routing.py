import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conftest import Json, assorted_hub
from waypost.errors import HeaderMismatch
from waypost.protocol.modern import check_headers, check_parameter_headers, decode_header
from waypost.wire.versions import V2026_07_28

HEADER = b"mcp-name"
DEPLOY = assorted_hub().registry.tool("deploy")


def wrapped(text: str | bytes) -> bytes:
    return b"=?base64?%b?=" % base64.b64encode(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"plain", "plain"),
        (b"with space", "with space"),
        (b"  trimmed\t", "trimmed"),
        (b"", ""),
        (wrapped("Hello"), "Hello"),
        (wrapped("grüße \u2028 東京"), "grüße \u2028 東京"),
        (wrapped(" kept "), " kept "),
        (wrapped("=?base64?SGVsbG8=?="), "=?base64?SGVsbG8=?="),
        (b"\t" + wrapped("Hello") + b" ", "Hello"),
        (b"=?base64??=", ""),
    ],
)
def test_a_value_is_read_plain_or_unwrapped(value: bytes, text: str) -> None:
    assert decode_header(value, HEADER) == text


@pytest.mark.parametrize(
    "value",
    [
        b"=?base64?SGVsbG8=",
        b"SGVsbG8=?=",
        b"=?base64?",
        b"=?base64?=",
        b"?=",
        b"=?BASE64?SGVsbG8=?=",
        b"=?Base64?SGVsbG8=?=",
        b"x=?base64?SGVsbG8=?=",
        b"=?base64?SGVsbG8=?=x",
        b"=?utf-8?SGVsbG8=?=",
    ],
)
def test_an_incomplete_or_misspelled_marker_is_read_literally(value: bytes) -> None:
    assert decode_header(value, HEADER) == value.decode()


@pytest.mark.parametrize(
    "packed",
    [
        b"SGVsbG8",
        b"SGVsbG8==",
        b"SGVsbG8===",
        b"SGVsbG9=",
        b"SGVsbG8 =",
        b"SGVs bG8=",
        b"SGVs\tbG8=",
        b"SGVsbG8*",
        b"SGVsbG8=!",
        b"8J-YgA==",
        b"8J_YgA==",
        b"=",
        b"A",
        b"AB==C",
        b"SGVsbG8=SGVsbG8=",
        b"/w==",
        b"\xc3\xa4==",
    ],
)
def test_base64_that_is_not_canonical_text_is_refused(packed: bytes) -> None:
    with pytest.raises(HeaderMismatch, match="mcp-name"):
        decode_header(b"=?base64?%b?=" % packed, HEADER)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_the_wrapping(text: str) -> None:
    assert decode_header(wrapped(text), HEADER) == text


@given(st.binary(max_size=24))
def test_any_bytes_are_decoded_or_refused(value: bytes) -> None:
    for candidate in (value, b"=?base64?%b?=" % value):
        try:
            decode_header(candidate, HEADER)
        except HeaderMismatch as error:
            assert error.code == -32020


def headers(**values: bytes) -> dict[bytes, bytes]:
    return {name.replace("_", "-").encode(): value for name, value in values.items()}


AGREEING = headers(mcp_protocol_version=V2026_07_28.encode(), mcp_method=b"tools/call", mcp_name=b"add")


def test_headers_that_agree_pass() -> None:
    check_headers(AGREEING, V2026_07_28, "tools/call", "add")
    check_headers(AGREEING | headers(mcp_name=b" add\t", mcp_method=b" tools/call"), V2026_07_28, "tools/call", "add")
    check_headers(AGREEING | headers(mcp_name=wrapped("ünï")), V2026_07_28, "tools/call", "ünï")
    check_headers(AGREEING | headers(mcp_name=wrapped("add")), V2026_07_28, "tools/call", "add")


def test_the_name_header_is_ignored_for_methods_without_a_name() -> None:
    check_headers(headers(mcp_protocol_version=b"x", mcp_method=b"tools/list"), "x", "tools/list", None)
    check_headers(headers(mcp_protocol_version=b"x", mcp_method=b"tools/list", mcp_name=b"y"), "x", "tools/list", None)


@pytest.mark.parametrize("name", list(AGREEING))
def test_the_refusal_of_a_missing_routing_header_names_it(name: bytes) -> None:
    given = {other: value for other, value in AGREEING.items() if other != name}
    with pytest.raises(HeaderMismatch, match=f"{name.decode()} is missing"):
        check_headers(given, V2026_07_28, "tools/call", "add")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"mcp-protocol-version", b"2025-11-25"),
        (b"mcp-protocol-version", b""),
        (b"mcp-method", b"tools/list"),
        (b"mcp-method", b"TOOLS/CALL"),
        (b"mcp-method", b"tools/call,tools/call"),
        (b"mcp-name", b"Add"),
        (b"mcp-name", b"ad"),
        (b"mcp-name", b""),
        (b"mcp-name", b"=?base64?YWRk"),
        (b"mcp-name", b"=?base64?YWR?="),
    ],
)
def test_a_routing_header_that_differs_from_the_body_is_refused(name: bytes, value: bytes) -> None:
    with pytest.raises(HeaderMismatch, match=name.decode()):
        check_headers(AGREEING | {name: value}, V2026_07_28, "tools/call", "add")


def parameters(**values: bytes) -> dict[bytes, bytes]:
    return {b"mcp-param-" + name.encode(): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({}, {}),
        ({}, {"region": None}),
        ({}, {"undeclared": 1}),
        (parameters(region=b"eu"), {"region": "eu"}),
        (parameters(region=b""), {"region": ""}),
        (parameters(region=wrapped("zürich")), {"region": "zürich"}),
        (parameters(region=wrapped(" eu ")), {"region": " eu "}),
        (parameters(region=b"=?base64?ZXU="), {"region": "=?base64?ZXU="}),
        (parameters(size=b"42"), {"size": 42}),
        (parameters(size=b"42.0"), {"size": 42}),
        (parameters(size=b"42"), {"size": 42.0}),
        (parameters(size=b"-7"), {"size": -7}),
        (parameters(size=b"0"), {"size": 0}),
        (parameters(size=b"9007199254740991"), {"size": 2**53 - 1}),
        (parameters(dry=b"true"), {"dry": True}),
        (parameters(dry=b"false"), {"dry": False}),
        (parameters(city=b"Bern"), {"place": {"city": "Bern"}}),
        ({}, {"place": {}}),
        ({}, {"place": "not an object"}),
        (parameters(region=b"eu", size=b"1", dry=b"true"), {"region": "eu", "size": 1, "dry": True}),
        (parameters(unknown=b"x", nonsense=b"=?base64?!?="), {}),
    ],
)
def test_parameter_headers_that_agree_with_the_arguments_pass(given: dict[bytes, bytes], arguments: Json) -> None:
    check_parameter_headers(given, DEPLOY, arguments)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        pytest.param({}, {"region": "eu"}, id="header missing"),
        pytest.param({}, {"region": ""}, id="header of an empty string missing"),
        pytest.param({}, {"dry": False}, id="header of false missing"),
        pytest.param({}, {"size": 0}, id="header of zero missing"),
        pytest.param({}, {"place": {"city": "Bern"}}, id="nested header missing"),
        pytest.param(parameters(region=b"eu"), {}, id="argument missing"),
        pytest.param(parameters(region=b"eu"), {"region": None}, id="argument null"),
        pytest.param(parameters(city=b"Bern"), {"place": {}}, id="nested argument missing"),
        pytest.param(parameters(city=b"Bern"), {"place": ["city"]}, id="nothing to look into"),
        pytest.param(parameters(city=b"Bern"), {"city": "Bern"}, id="argument elsewhere"),
        pytest.param(parameters(region=b"us"), {"region": "eu"}, id="other value"),
        pytest.param(parameters(region=b"EU"), {"region": "eu"}, id="other case"),
        pytest.param(parameters(city=b"Basel"), {"place": {"city": "Bern"}}, id="other nested value"),
        pytest.param(parameters(region=b"=?base64?ZXU?="), {"region": "eu"}, id="bad padding"),
        pytest.param(parameters(region=b"=?base64?ZXV=?="), {"region": "eu"}, id="trailing bits"),
        pytest.param(parameters(region=b"=?base64?Z!U=?="), {"region": "eu"}, id="alien character"),
        pytest.param(parameters(size=b"43"), {"size": 42}, id="other number"),
        pytest.param(parameters(size=b"42.5"), {"size": 42}, id="near number"),
        pytest.param(parameters(size=b"forty-two"), {"size": 42}, id="no number"),
        pytest.param(parameters(size=b""), {"size": 0}, id="nothing for zero"),
        pytest.param(parameters(size=b"nan"), {"size": 0}, id="not a number"),
        pytest.param(parameters(size=b"1_000"), {"size": 1000}, id="digits of a programming language"),
        pytest.param(parameters(size=wrapped("٤٢")), {"size": 42}, id="digits of another script"),
        pytest.param(parameters(size=b"1"), {"size": True}, id="number for a boolean"),
        pytest.param(parameters(dry=b"True"), {"dry": True}, id="boolean in other case"),
        pytest.param(parameters(dry=b"1"), {"dry": True}, id="boolean as a number"),
        pytest.param(parameters(dry=b"false"), {"dry": True}, id="other boolean"),
        pytest.param(parameters(region=b"7"), {"region": {"a": 7}}, id="argument of another type"),
    ],
)
def test_parameter_headers_that_disagree_with_the_arguments_are_refused(
    given: dict[bytes, bytes], arguments: Json
) -> None:
    with pytest.raises(HeaderMismatch, match="mcp-param-"):
        check_parameter_headers(given, DEPLOY, arguments)


def test_a_tool_without_header_parameters_ignores_them() -> None:
    check_parameter_headers(parameters(region=b"eu"), assorted_hub().registry.tool("add"), {"a": 1, "b": 2})


@given(st.integers(-(2**53) + 1, 2**53 - 1), st.sampled_from(["{}", "{}.0", "{}.00"]))
def test_integers_are_compared_as_numbers(number: int, written: str) -> None:
    text = written.format(number).encode()
    check_parameter_headers(parameters(size=text), DEPLOY, {"size": number})
    with pytest.raises(HeaderMismatch):
        check_parameter_headers(parameters(size=text), DEPLOY, {"size": number + 1})


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_header_passes_only_if_it_equals_the_argument(header: str, argument: str) -> None:
    def passes(arguments: dict[str, Any]) -> bool:
        try:
            check_parameter_headers(parameters(region=wrapped(header)), DEPLOY, arguments)
        except HeaderMismatch:
            return False
        return True

    assert passes({"region": header})
    assert passes({"region": argument}) == (header == argument)
