from datetime import date
from enum import Enum
from typing import Annotated, Any

import pydantic
import pytest
from pydantic import Field

from waypost.capabilities.schemas.signatures import from_function, returns
from waypost.errors import DefinitionError, InvalidArguments


class Color(Enum):
    RED = "red"


class Address(pydantic.BaseModel):
    """Where somebody lives."""

    street: str
    zip_code: int = 0


class Node(pydantic.BaseModel):
    children: list["Node"] = []


@pydantic.dataclasses.dataclass
class Point:
    x: int
    y: int = 0


def register(
    address: Address,
    count: Annotated[int, Field(ge=1, description="How many")] = 1,
    color: Color = Color.RED,
    tags: list[str] = [],  # noqa: B006
    limit: int = Field(5, le=10),
    json: bool = False,
) -> None: ...


def test_a_signature_with_models_is_described_by_pydantic() -> None:
    assert from_function(register, frozenset()).schema == {
        "type": "object",
        "properties": {
            "address": {"$ref": "#/$defs/Address"},
            "count": {"type": "integer", "minimum": 1, "default": 1, "description": "How many"},
            "color": {"$ref": "#/$defs/Color", "default": "red"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "limit": {"type": "integer", "maximum": 10, "default": 5},
            "json": {"type": "boolean", "default": False},
        },
        "required": ["address"],
        "$defs": {
            "Address": {
                "title": "Address",
                "description": "Where somebody lives.",
                "type": "object",
                "properties": {"street": {"type": "string"}, "zip_code": {"type": "integer", "default": 0}},
                "required": ["street"],
            },
            "Color": {"title": "Color", "type": "string", "enum": ["red"]},
        },
    }


def test_models_reach_the_function_as_models() -> None:
    arguments = {"address": {"street": "Main"}, "color": "red", "undeclared": 1}

    assert from_function(register, frozenset()).admit(arguments) == {
        "address": Address(street="Main"),
        "count": 1,
        "color": Color.RED,
        "tags": [],
        "limit": 5,
        "json": False,
    }


def test_every_problem_of_a_model_is_reported_with_its_path() -> None:
    with pytest.raises(InvalidArguments) as caught:
        from_function(register, frozenset()).admit({"address": {}, "count": 0, "tags": ["a", 3]})

    assert caught.value.problems == (
        "address.street: is required",
        "count: Input should be greater than or equal to 1",
        "tags[1]: Input should be a valid string",
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"tags": [1] * 5000}, "and 4900 more problems"),
        ({"tags": [1] * 200_000}, "has 200000 problems, too many to list"),
    ],
)
def test_thousands_of_problems_are_not_all_reported(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        from_function(register).admit({"address": {"street": "Main"}, **arguments})

    assert caught.value.problems[-1] == sentence
    assert len(caught.value.message) < 20_000


def test_pydantic_dataclasses_are_converted() -> None:
    def move(to: Point, on: date) -> None: ...

    assert from_function(move, frozenset()).admit({"to": {"x": 1}, "on": "2026-01-02"}) == {
        "to": Point(1),
        "on": date(2026, 1, 2),
    }


def test_a_type_that_pydantic_cannot_describe_is_refused() -> None:
    class Strange: ...

    def function(a: Address, b: Strange) -> None: ...

    with pytest.raises(DefinitionError, match="function: pydantic cannot describe the parameters: "):
        from_function(function, frozenset())


@pytest.mark.parametrize(
    ("annotation", "wrapped"), [(Address, False), (Point, False), (Node, False), (list[Address], True)]
)
def test_returned_models_have_an_output_schema(annotation: Any, wrapped: bool) -> None:
    returned = returns(annotation)

    assert returned is not None
    assert returned.wrapped is wrapped
    assert returned.schema["type"] == "object"
    assert ("result" in returned.schema["properties"]) is wrapped


@pytest.mark.parametrize("annotation", [Address | None, dict[str, Address], pydantic.AnyUrl])
def test_return_types_that_are_not_always_records_have_no_output_schema(annotation: Any) -> None:
    assert returns(annotation) is None
