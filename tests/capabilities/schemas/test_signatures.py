from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict

import jsonschema
import msgspec
import pytest

from waypost.capabilities.schemas.signatures import MISSING, from_fields, from_function, returns
from waypost.errors import DefinitionError, InvalidArguments

NOTHING: frozenset[str] = frozenset()


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


@dataclass
class Point:
    x: int
    y: int = 2


class Line(msgspec.Struct):
    points: list[Point]


class Node(msgspec.Struct):
    children: list[Node] = []


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("must be even")


class Options(TypedDict):
    a: int
    b: NotRequired[str]


class Pair(NamedTuple):
    a: int
    b: str


async def add(a: float, b: float) -> float:
    return a + b


def many(  # type: ignore[no-untyped-def]
    count: Annotated[int, msgspec.Meta(ge=1, description="How many")],
    where: Annotated[Point, "Where to"],
    anything,
    color: Color = Color.RED,
    limit: Optional[int] = None,  # noqa: UP045
    on: date = date(2026, 1, 2),
    tags: list[str] = ["a"],  # noqa: B006
    line: Line = Line([Point(1)]),  # noqa: B008
    folder: Path = Path("/tmp"),
    *,
    ctx: Unknown = None,  # type: ignore[name-defined]  # noqa: F821
): ...


def test_a_plain_signature_becomes_a_schema() -> None:
    assert from_function(add, NOTHING).schema == {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    }


def test_a_rich_signature_becomes_a_schema() -> None:
    schema = from_function(many, frozenset({"ctx"})).schema

    assert list(schema) == ["type", "properties", "required", "$defs"]
    assert schema["required"] == ["count", "where", "anything"]
    assert set(schema["$defs"]) == {"Point", "Line", "Color"}
    assert schema["properties"] == {
        "count": {"type": "integer", "minimum": 1, "description": "How many"},
        "where": {"$ref": "#/$defs/Point", "description": "Where to"},
        "anything": {},
        "color": {"$ref": "#/$defs/Color", "default": "red"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "on": {"type": "string", "format": "date", "default": "2026-01-02"},
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
        "line": {"$ref": "#/$defs/Line", "default": {"points": [{"x": 1, "y": 2}]}},
        "folder": {"type": "string", "format": "path", "default": "/tmp"},
    }
    jsonschema.Draft202012Validator.check_schema(schema)


def test_arguments_of_a_signature_without_parameters_are_dropped() -> None:
    form = from_function(lambda: None, NOTHING)

    assert form.schema == {"type": "object", "properties": {}}
    assert form.admit({"a": 1}) == {}
    assert form.cast_plan is None


def test_values_are_converted_and_defaults_applied() -> None:
    form = from_function(many, frozenset({"ctx"}))

    assert form.admit({"count": 1, "where": {"x": 1}, "anything": [None], "color": "blue", "undeclared": 1}) == {
        "count": 1,
        "where": Point(1, 2),
        "anything": [None],
        "color": Color.BLUE,
        "limit": None,
        "on": date(2026, 1, 2),
        "tags": ["a"],
        "line": Line([Point(1)]),
        "folder": Path("/tmp"),
    }
    assert (
        form.admit({"count": 1, "where": {"x": 1}, "anything": 1, "folder": "/x", "on": "2026-03-04"}).items()
        >= {
            "folder": Path("/x"),
            "on": date(2026, 3, 4),
        }.items()
    )


def test_mutable_defaults_are_fresh_for_every_call() -> None:
    form = from_fields("f", [("a", list[int], [1]), ("p", Point, Point(1))])
    first = form.admit({})
    first["a"].append(2)
    first["p"].x = 9

    assert form.admit({}) == {"a": [1], "p": Point(1)}


def test_a_default_without_json_form_is_delivered_but_not_published() -> None:
    sentinel = object()
    form = from_fields("f", [("a", Any, sentinel), ("b", object, MISSING)])

    assert form.schema == {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}
    assert form.admit({"b": 1})["a"] is sentinel


def problems(form_of: Any, arguments: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as caught:
        from_function(form_of, frozenset({"ctx"})).admit(arguments)
    return caught.value.problems


def test_every_problem_is_reported_with_its_path() -> None:
    assert sorted(problems(many, {"count": 0, "where": {"y": "a"}, "color": "green"})) == [
        "anything: is required",
        'color: must be one of "blue", "red", got "green"',
        "count: must be at least 1, got 0",
        "where.x: is required",
        'where.y: must be of type integer, got "a"',
    ]


def test_an_integral_float_is_an_integer() -> None:
    def function(a: int, b: list[Point]) -> None: ...

    admitted = from_function(function, NOTHING).admit({"a": 1.0, "b": [{"x": 2.0}]})

    assert admitted == {"a": 1, "b": [Point(2)]}
    assert type(admitted["a"]) is type(admitted["b"][0].x) is int


@pytest.mark.parametrize("value", ["1", True, 1.5, None])
def test_other_values_are_not_integers(value: Any) -> None:
    def function(a: int) -> None: ...

    [problem] = problems(function, {"a": value})
    assert problem.startswith("a: must be of type integer, got ")


def test_an_error_of_a_dataclass_is_reported_with_its_path() -> None:
    def function(rows: list[Even]) -> None: ...

    assert problems(function, {"rows": [{"number": 2}, {"number": 3}]}) == ("rows[1]: must be even",)


def test_a_pattern_only_python_reads_still_refuses() -> None:
    def function(a: Annotated[str, msgspec.Meta(pattern="^(?=a)")], b: int) -> None: ...

    [problem] = problems(function, {"a": "b", "b": "1"})
    assert problem.startswith("a: Expected `str` matching regex")


def test_a_long_value_is_not_repeated() -> None:
    def choose(kind: Annotated[str, msgspec.Meta(pattern="(?=a)a")], mode: Literal["a", "b"]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        from_function(choose).admit({"kind": "ab", "mode": "x" * 1_000_000})

    assert len(caught.value.message) < 1000


def test_a_partial_and_a_method_are_described_like_functions() -> None:
    class Kit:
        def greet(self, name: str, times: int = 1) -> str:
            return name * times

    assert set(from_function(Kit().greet, NOTHING).schema["properties"]) == {"name", "times"}
    assert set(from_function(functools.partial(Kit.greet, Kit()), NOTHING).schema["properties"]) == {"name", "times"}


def variadic(*args: int) -> None: ...
def keywords(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...
def unresolved(a: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def untypable(good: int, bad: type[int]) -> None: ...
def ambiguous(a: Point | dict[str, int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (variadic, "variadic: the parameter *args: 'int' cannot be given by name"),
        (keywords, "keywords: the parameter **kwargs: 'int' cannot be given by name"),
        (positional, "positional: the parameter a: 'int' cannot be given by name"),
        (unresolved, "name 'Unknown' is not defined"),
        (untypable, "untypable: the type of bad cannot be described: "),
        (ambiguous, "ambiguous: the type of a cannot be described: "),
    ],
)
def test_a_signature_that_cannot_be_called_by_name_is_refused(function: Any, sentence: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        from_function(function, NOTHING)

    assert sentence in caught.value.message
    assert "\n" not in caught.value.message


def test_a_type_with_the_name_of_the_function_keeps_its_definition() -> None:
    schema = from_fields("Point", [("p", Point, MISSING)]).schema

    assert list(schema["properties"]) == ["p"]
    jsonschema.Draft202012Validator(schema).validate({"p": {"x": 1}})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({"p": {"x": "1"}})


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 2}},
                "required": ["x"],
            },
        ),
        (
            Options,
            {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]},
        ),
    ],
)
def test_a_returned_record_has_its_own_output_schema(annotation: Any, schema: dict[str, Any]) -> None:
    returned = returns(annotation)

    assert returned is not None
    assert not returned.wrapped
    assert returned.schema == schema


def test_a_returned_record_may_be_recursive() -> None:
    returned = returns(Node)

    assert returned is not None
    assert set(returned.schema["$defs"]) == {"Node"}
    jsonschema.Draft202012Validator(returned.schema).validate({"children": [{"children": []}]})


@pytest.mark.parametrize(
    ("annotation", "result"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (int | float, {"anyOf": [{"type": "integer"}, {"type": "number"}]}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (Literal[1, 2], {"enum": [1, 2]}),
        (Size, {"$ref": "#/$defs/Size"}),
        (list[Point], {"type": "array", "items": {"$ref": "#/$defs/Point"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
                "items": False,
            },
        ),
    ],
)
def test_other_structured_results_are_wrapped_in_result(annotation: Any, result: dict[str, Any]) -> None:
    returned = returns(annotation)

    assert returned is not None
    assert returned.wrapped
    assert {key: returned.schema[key] for key in ("type", "properties", "required")} == {
        "type": "object",
        "properties": {"result": result},
        "required": ["result"],
    }
    jsonschema.Draft202012Validator.check_schema(returned.schema)


@pytest.mark.parametrize(
    "annotation",
    [
        str, None, Any, MISSING, dict, dict[str, int], Mapping[str, int], bytes, Path, date, object, type, Color,
        Literal["a"], Literal["a", 1], int | None, Point | None, str | int, "Unknown", list[Path],
        list, list[Any], tuple, Sequence[object],
    ],
)  # fmt: skip
def test_other_return_types_have_no_output_schema(annotation: Any) -> None:
    assert returns(annotation) is None


def test_a_return_type_with_an_opaque_part_has_no_output_schema() -> None:
    assert returns(Point, opaque=(Point,)) is None
    assert returns(list[Point | int], opaque=(Point,)) is None
    assert returns(list[int], opaque=(Point,)) is not None


def test_a_named_tuple_is_returned_as_a_list() -> None:
    returned = returns(Pair)

    assert returned is not None
    assert returned.wrapped


def test_a_dataclass_may_have_a_default_factory() -> None:
    @dataclass
    class Bag:
        items: list[int] = field(default_factory=list)

    assert from_fields("f", [("bag", Bag, MISSING)]).admit({"bag": {}}) == {"bag": Bag()}


def test_the_defaults_of_nested_dataclasses_are_filled_in() -> None:
    form = from_fields("f", [("line", Line, MISSING), ("by_name", dict[str, tuple[Point, ...]], MISSING)])

    admitted = form.admit({"line": {"points": [{"x": 1}]}, "by_name": {"a": [{"x": 3.0}]}})

    assert msgspec.to_builtins(admitted) == {
        "line": {"points": [{"x": 1, "y": 2}]},
        "by_name": {"a": ({"x": 3, "y": 2},)},
    }
