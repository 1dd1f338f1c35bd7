from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

import msgspec
import pydantic
import pytest

from tests.capabilities.client import call, new_hub, text
from waypost import (
    Audio,
    EmbeddedResource,
    Image,
    InvalidParams,
    ResourceLink,
    Result,
    Text,
    ToolError,
)
from waypost.capabilities.results import encode_json, failure, round_trip_json, to_result
from waypost.wire.content import ResourceBlock, TextContents


@dataclass
class Point:
    x: int
    when: date = date(2026, 1, 2)


class Struct(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    x: int
    when: date = date(2026, 1, 2)


class Shout(str):
    __slots__ = ()


class Mode(enum.StrEnum):
    LOUD = "loud"


DATED = {"x": 1, "when": "2026-01-02"}


@pytest.mark.parametrize(
    ("value", "written", "structured"),
    [
        ({"a": [1]}, '{"a":[1]}', {"a": [1]}),
        ({}, "{}", {}),
        (Point(1), '{"x":1,"when":"2026-01-02"}', DATED),
        (Struct(1), '{"x":1}', {"x": 1}),
        (Model(x=1), '{"x":1,"when":"2026-01-02"}', DATED),
        ({"m": Model(x=1)}, '{"m":{"x":1,"when":"2026-01-02"}}', {"m": DATED}),
        (MappingProxyType({"a": 1}), '{"a":1}', {"a": 1}),
        ([1, "two"], '[1,"two"]', {"result": [1, "two"]}),
        ([], "[]", {"result": []}),
        ((1, 2), "[1,2]", {"result": [1, 2]}),
        ({3}, "[3]", {"result": [3]}),
        (["a", "b"], '["a","b"]', {"result": ["a", "b"]}),
        ([Model(x=1)], '[{"x":1,"when":"2026-01-02"}]', {"result": [DATED]}),
        (7, "7", {"result": 7}),
        (1.5, "1.5", {"result": 1.5}),
        (True, "true", {"result": True}),
    ],
)
def test_data_is_structured_and_written_out_as_text(value: Any, written: str, structured: Any) -> None:
    result = to_result(value)
    assert result.content == [Text(written)]
    assert round_trip_json(result.structured) == structured
    assert not result.is_error


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("", ""),
        (date(2026, 1, 2), "2026-01-02"),
        (b"\xff", "/w=="),
        (Mode.LOUD, "loud"),
        (Shout("hey"), "hey"),
    ],
)
def test_text_is_one_block_and_nothing_structured(value: Any, written: str) -> None:
    result = to_result(value)
    assert msgspec.json.decode(encode_json(result.content)) == [{"type": "text", "text": written}]
    assert result.structured is None


def test_none_becomes_an_empty_result() -> None:
    assert to_result(None) == Result()


def test_blocks_are_sent_as_they_are() -> None:
    picture = Image(data=b"\x00", mime_type="image/png")
    link = ResourceLink("docs://x", "x")
    assert to_result(picture).content == [picture]
    assert to_result([Text("a"), picture, link, Audio(b"\x00", "audio/wav")]).content == [
        Text("a"),
        picture,
        link,
        Audio(b"\x00", "audio/wav"),
    ]


def test_a_list_that_contains_a_block_becomes_a_list_of_blocks() -> None:
    assert to_result(["a", Text("b"), {"c": 1}, 4]).content == [Text("a"), Text("b"), Text('{"c":1}'), Text("4")]


def test_an_embedded_resource_is_packed_for_the_wire() -> None:
    assert to_result(EmbeddedResource("docs://x", text="hi")).content == [ResourceBlock(TextContents("docs://x", "hi"))]


def test_a_whole_result_is_taken_verbatim() -> None:
    given = Result(["text", EmbeddedResource("docs://x")], structured={"a": 1}, is_error=True, meta={"k": 2})
    shaped = to_result(given)
    assert shaped.content == [Text("text"), ResourceBlock(TextContents("docs://x", ""))]
    assert (shaped.structured, shaped.is_error, shaped.meta) == ({"a": 1}, True, {"k": 2})
    assert given.content[0] == "text"


def test_the_text_of_a_result_is_its_text_blocks() -> None:
    assert to_result([Text("a"), Image(b"", "image/png"), "b"]).text == "a\nb"


def test_a_failure_is_an_error_result_with_its_text() -> None:
    assert failure("no") == Result([Text("no")], is_error=True)


@pytest.mark.parametrize("value", [object(), {"a": object()}, [lambda: None], iter([1])])
def test_a_value_without_a_json_form_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        to_result(value)


def answer(value: Any, **options: Any) -> dict[str, Any]:
    hub = new_hub()

    @hub.tool(name="work", **options)
    def work() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return call(hub, "work")


def test_a_good_result_says_nothing_about_errors() -> None:
    assert answer("fine") == {"content": [{"type": "text", "text": "fine"}]}
    assert answer(None) == {"content": []}


def test_a_result_keeps_its_meta_on_the_wire() -> None:
    assert answer(Result(["x"], meta={"k": 1}))["_meta"] == {"k": 1}


def test_what_a_tool_reports_itself_is_an_error_with_its_words() -> None:
    assert answer(ToolError("the disk is full")) == {
        "content": [{"type": "text", "text": "the disk is full"}],
        "isError": True,
    }
    assert answer(Result(["partly"], is_error=True))["isError"] is True


@pytest.mark.parametrize("crash", [ValueError("odd value"), KeyError("k"), RecursionError("deep"), StopIteration("s")])
def test_a_crash_is_an_error_with_type_and_message(crash: Exception, caplog: pytest.LogCaptureFixture) -> None:
    result = answer(crash)
    assert result["isError"] is True
    message = "RuntimeError: " if isinstance(crash, StopIteration) else f"{type(crash).__name__}: {crash}"
    assert text(result).startswith(f"Tool crashed: {message}")
    assert "Traceback" not in text(result)
    assert caplog.records[-1].exc_info is not None


def test_a_protocol_error_is_left_to_the_protocol() -> None:
    hub = new_hub()

    @hub.tool
    def work() -> None:
        raise InvalidParams("not like this")

    with pytest.raises(AssertionError, match=r"-32602.*not like this"):
        call(hub, "work")


@pytest.mark.parametrize("value", [object(), {"a": object()}, Result(structured={"a": object()})])
def test_a_value_that_cannot_be_sent_is_a_crash_of_the_tool(value: Any) -> None:
    result = answer(value)
    assert result["isError"] is True
    assert text(result).startswith("Tool crashed: TypeError: ")


OUTPUT: Mapping[str, Any] = {"total": {"type": "integer", "required": True}}


def test_a_structured_result_is_checked_against_the_output_schema() -> None:
    assert answer({"total": 3}, output=OUTPUT)["structuredContent"] == {"total": 3}
    refused = answer({"total": "three"}, output=OUTPUT)
    assert refused["isError"] is True
    assert "structuredContent" not in refused
    assert text(refused).startswith("Tool work returned a result that does not fit its output schema: total: ")


def test_the_check_sees_what_the_client_will_see() -> None:
    dated = {"type": "object", "properties": {"when": {"type": "string", "format": "date"}}, "required": ["when"]}
    assert answer(Point(1), output_schema=dated)["structuredContent"] == DATED


@pytest.mark.parametrize("value", ["text only", None, Result(["text"])])
def test_a_result_without_structured_data_does_not_fit_an_output_schema(value: Any) -> None:
    refused = answer(value, output=OUTPUT)
    assert refused["isError"] is True
    assert text(refused).endswith("does not fit its output schema: structured content is missing")


@pytest.mark.parametrize("value", [ToolError("no"), Result([], is_error=True)])
def test_a_failure_is_not_checked_against_the_output_schema(value: Any) -> None:
    result = answer(value, output=OUTPUT)
    assert result["isError"] is True
    assert "does not fit" not in str(result["content"])


@pytest.mark.parametrize("content", ["abc", Text("abc"), ["abc"], [Text("abc")]])
def test_the_content_of_a_result_may_be_a_single_block(content: Any) -> None:
    assert answer(Result(content=content))["content"] == [{"type": "text", "text": "abc"}]


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        (5, "a value of type int is no content block"),
        (None, "a value of type NoneType is no content block"),
        (Text(5), "Text takes a str, not a value of type int"),  # type: ignore[arg-type]  # the mistake that is meant
    ],
)
def test_what_is_no_content_block_is_refused(block: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        to_result(Result([Text("first"), block]))


def test_a_block_may_be_written_as_it_goes_over_the_wire() -> None:
    block: Any = {"type": "text", "text": "plain"}
    assert to_result(Result([block])).content == [block]
