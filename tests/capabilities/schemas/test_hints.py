import subprocess
import sys
from typing import Annotated, Any

import pydantic
import pytest

from waypost.capabilities.schemas import signatures
from waypost.errors import DefinitionError


class Model(pydantic.BaseModel):
    x: int


@pydantic.dataclasses.dataclass
class Point:
    x: int


def test_parts_are_the_types_their_arguments_and_their_metadata() -> None:
    parts = list(signatures.parts(dict[str, Annotated[int | None, "words"]]))

    assert {str, int, type(None), "words"} <= set(parts)


@pytest.mark.parametrize(
    ("annotation", "text"), [(Annotated[int, "words", "more"], "words"), (Annotated[int, 3], None), (int, None)]
)
def test_descriptions_are_found_in_annotated(annotation: Any, text: str | None) -> None:
    assert signatures.text(annotation) == text


@pytest.mark.parametrize(
    "annotation",
    [
        Model,
        list[Model],
        Model | None,
        Point,
        Annotated[int, pydantic.Field(ge=1)],
        pydantic.PositiveInt,
        pydantic.AnyUrl,
    ],
)
def test_pydantic_is_needed_for_its_own_types(annotation: Any) -> None:
    assert signatures.needs_pydantic([int, annotation])


@pytest.mark.parametrize("annotation", [int, Any, list[str], Annotated[int, "words"], dict[str, Any], None, "x"])
def test_pydantic_is_not_needed_otherwise(annotation: Any) -> None:
    assert not signatures.needs_pydantic([annotation])


def test_pydantic_is_never_loaded_for_users_without_it() -> None:
    code = """
import sys
from waypost.capabilities.schemas import signatures
def add(a: float, b: float = 1.0) -> list[int]: ...
signatures.from_function(add, frozenset()).admit({"a": 1})
signatures.returns(list[int])
sys.exit("pydantic" in sys.modules or "jsonschema_rs" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_string_annotations_are_resolved() -> None:
    def function(a: "list[Model]", b: Annotated["int", "words"], c=3, *, ctx: "Unknown"): ...  # type: ignore[no-untyped-def,name-defined]  # noqa: F821

    assert signatures.resolved(function, frozenset({"ctx"})) == {"a": list[Model], "b": Annotated[int, "words"]}
    with pytest.raises(DefinitionError, match="name 'Unknown' is not defined"):
        signatures.resolved(function, frozenset())
