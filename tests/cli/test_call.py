"""`waypost call`, on every kind of target."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.operated import Captured, complaint, printed
from tests.cli.shell import waypost
from tests.cli.targets import TARGETS, on
from waypost.cli import main
from waypost.cli.call import read_pairs
from waypost.cli.command import Output, WrongUsage, format_text


@on(*TARGETS)
def test_a_tool_is_called(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", '{"a": 1, "b": 2.5}']) == 0
    assert printed(capsys) == "3.5\n"


@on(*TARGETS)
def test_a_result_is_printed_as_json(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", '{"a": 1, "b": 2.5}', "--json"]) == 0

    result = json.loads(printed(capsys))
    assert result["structuredContent"] == {"result": 3.5}
    assert result["content"] == [{"type": "text", "text": "3.5"}]


@on("server.py:hub", "URL")
def test_a_hidden_tool_without_arguments_is_called(target: str, capsys: Captured) -> None:
    assert main(["call", target, "secret"]) == 0
    assert printed(capsys) == "found me\n"


@on("server.py:hub", "URL")
def test_blocks_other_than_text_are_printed_as_json(target: str, capsys: Captured) -> None:
    assert main(["call", target, "picture"]) == 0

    word, picture = printed(capsys).splitlines()
    assert word == "a dot"
    assert json.loads(picture) == {"type": "image", "data": base64.b64encode(b"dot").decode(), "mimeType": "image/png"}


@on("server.py:hub", "URL")
def test_a_tool_that_fails_fails_the_command(target: str, capsys: Captured) -> None:
    assert main(["call", target, "refuse"]) == 1
    assert complaint(capsys) == "Not today."


@on("server.py:hub", "URL")
def test_a_failure_as_json_still_goes_to_stdout(target: str, capsys: Captured) -> None:
    assert main(["call", target, "refuse", "--json"]) == 1
    assert json.loads(printed(capsys))["isError"] is True


@on(*TARGETS)
def test_invalid_arguments_are_an_error(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", '{"a": "one"}']) == 1
    assert complaint(capsys).startswith("Invalid arguments for tool add: ")


@on(*TARGETS)
def test_an_unknown_tool_is_an_error(target: str, capsys: Captured) -> None:
    assert main(["call", target, "nothing"]) == 1
    assert complaint(capsys) == "waypost: Unknown tool: nothing"


@pytest.mark.parametrize("arguments", ["{", "[1]", "three", '"text"', ""])
def test_arguments_other_than_a_json_object_are_refused(arguments: str, project: Path, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["call", "server.py:hub", "add", arguments])
    assert ended.value.code == 2
    assert "not a JSON object" in complaint(capsys)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list", "server.py:hub", "--json"], 0),
        (["call", "server.py:hub", "add", '{"a": 1, "b": 2}', "--json"], 0),
        (["call", "server.py:hub", "refuse"], 1),
    ],
)
def test_a_process_prints_its_data_and_nothing_else(arguments: list[str], code: int, project: Path) -> None:
    done = waypost(*arguments, cwd=project)

    assert done.returncode == code
    if code == 0:
        assert done.stderr == ""
        decoded: Any = json.loads(done.stdout)
        assert decoded
    else:
        assert (done.stdout, done.stderr) == ("", "Not today.\n")


@on("server.py:hub", "URL")
def test_arguments_may_be_pairs_that_are_read_by_the_schema(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", "a=1", "b=2.5"]) == 0
    assert printed(capsys) == "3.5\n"


@on("server.py:hub", "GATEWAY")
def test_pairs_are_read_by_the_schema_of_a_tool_behind_a_gateway_too(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", "a=one", "b=2"]) == 2
    assert "The argument 'a' is of type number, and 'one' is not." in complaint(capsys)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (["n=3", "x=2", "on=true"], {"n": 3, "x": 2, "on": True}),
        (["text=3", "maybe=null", "word=a=b"], {"text": "3", "maybe": None, "word": "a=b"}),
        (["text="], {"text": ""}),
        (["tags=a", "tags=b"], {"tags": ["a", "b"]}),
        (['tags=["a", "b"]'], {"tags": ["a", "b"]}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (['object={"a": 1}'], {"object": {"a": 1}}),
        (["object.a=1", "object.b.c=x"], {"object": {"a": 1, "b.c": "x"}}),
        (["point.x=1", "point.name=2", "point.inner.name=3"], {"point": {"x": 1, "name": "2", "inner": {"name": "3"}}}),
        (["linked.name=7", "n.x=1"], {"linked.name": 7, "n.x": 1}),
        (["level=2"], {"level": 2}),
        (["linked=7", "older=8"], {"linked": "7", "older": "8"}),
        (["anything=7", "free=x"], {"anything": 7, "free": "x"}),
    ],
)
def test_a_value_is_converted_by_the_schema(pairs: list[str], expected: dict[str, Any]) -> None:
    schema = {
        "properties": {
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "on": {"type": "boolean"},
            "text": {"type": "string"},
            "word": {"type": ["string", "null"]},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "numbers": {"type": "array", "items": {"type": "integer"}},
            "object": {"type": "object"},
            "level": {"enum": [1, 2]},
            "linked": {"$ref": "#/$defs/Name"},
            "older": {"$ref": "#/definitions/a~1name"},
            "anything": {},
            "point": {"$ref": "#/$defs/Point"},
        },
        "additionalProperties": True,
        "definitions": {"a/name": {"type": "string"}},
        "$defs": {
            "Name": {"type": "string"},
            "Point": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "name": {"type": "string"}, "inner": {"$ref": "#/$defs/Point"}},
            },
        },
    }
    assert read_pairs("tool", pairs, schema) == expected


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (["point.x=one"], "The argument 'point.x' is of type number, and 'one' is not."),
        (["point.y=1"], "draw has no argument 'point.y'; it takes x"),
        (["point.x=1", "point.x=2"], "The argument 'point.x' is given twice."),
        (["point={}", "point.x=2"], "The argument 'point' is given twice."),
    ],
)
def test_an_invalid_field_is_named_with_its_full_path(pairs: list[str], sentence: str) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    with pytest.raises(WrongUsage) as caught:
        read_pairs("draw", pairs, {"properties": {"point": point}})
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a=x"], "waypost: The argument 'a' is of type number, and 'x' is not."),
        (["a=1", "a=2"], "waypost: The argument 'a' is given twice."),
        (["aa=1"], "waypost: add has no argument 'aa'; did you mean 'a'?"),
        (['{"a": 1}', "b=2"], "waypost: The arguments are one JSON object, or pairs such as name=value, not both."),
    ],
)
def test_invalid_pairs_are_wrong_usage(words: list[str], sentence: str, capsys: Captured, project: Path) -> None:
    assert main(["call", "server.py:hub", "add", *words]) == 2
    assert complaint(capsys) == sentence


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_json_is_indented_at_a_terminal_and_compact_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"a": [1]}
    for stream, expected in ((Terminal(), '{\n  "a": [\n    1\n  ]\n}\n'), (io.StringIO(), '{"a": [1]}\n')):
        monkeypatch.setattr("sys.stdout", stream)
        Output(data).print(as_json=True)
        assert stream.getvalue() == expected
        assert json.loads(format_text('{"a": [1]}')) == data
        assert ("\n" in format_text('{"a": [1]}')) == stream.isatty()
        assert format_text("{no json") == "{no json"
