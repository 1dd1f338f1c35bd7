"""The error tree: as drawn in its module, with a sentence for each class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from waypost import errors
from waypost.errors import (
    ConfigError,
    InvalidArguments,
    ProtocolError,
    RemoteError,
    ToolError,
    UnknownResource,
    WaypostError,
)

MOST = 36
INDENT = 4

CLASSES = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, BaseException)]


def drawn(text: str) -> Iterator[tuple[str, str | None]]:
    """The classes of the drawing, each with the class it hangs on."""
    path: list[str] = []
    for line in text.splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+(?:Error|\b))", line)
        if found is None or (not found[1] and found[2] != "WaypostError"):
            continue
        depth = len(found[1]) // INDENT
        del path[depth:]
        yield found[2], path[-1] if path else None
        path.append(found[2])


def without_arguments(kind: type[WaypostError]) -> WaypostError:
    """An error without a message."""
    if issubclass(kind, RemoteError):
        return kind("", -32000)
    if issubclass(kind, InvalidArguments):
        return kind([])
    return kind()


def test_the_drawing_is_the_real_tree() -> None:
    real = {kind.__name__: None if kind is WaypostError else kind.__base__.__name__ for kind in CLASSES}  # type: ignore[union-attr]

    assert dict(drawn(errors.__doc__ or "")) == real
    assert len(list(drawn(errors.__doc__ or ""))) == len(real)


def test_the_number_of_error_classes_is_bounded() -> None:
    assert 1 < len(CLASSES) <= MOST


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_class_has_its_own_docstring(kind: type[WaypostError]) -> None:
    own = vars(kind).get("__doc__")

    assert own
    assert own == own.strip()
    assert "\n" not in own


@pytest.mark.parametrize(
    "kind", [kind for kind in CLASSES if kind is not UnknownResource], ids=lambda kind: kind.__name__
)
def test_an_error_without_arguments_has_its_docstring_as_message(kind: type[WaypostError]) -> None:
    error = without_arguments(kind)

    assert str(error) == error.message == inspect.getdoc(kind)


def test_an_error_keeps_the_message_it_is_given() -> None:
    assert str(ToolError("The printer is out of paper.")) == "The printer is out of paper."


def test_an_unknown_resource_names_its_uri() -> None:
    error = UnknownResource("docs://gone")

    assert error.uri == "docs://gone"
    assert "docs://gone" in error.message


def test_invalid_arguments_join_their_problems() -> None:
    error = InvalidArguments(["a: is missing", "b: is not a number"])

    assert error.problems == ("a: is missing", "b: is not a number")
    assert error.message == "a: is missing; b: is not a number"


def test_a_remote_error_carries_message_code_and_data_of_the_server() -> None:
    error = RemoteError("No such tool.", -32602, {"name": "x"})

    assert (error.message, error.code, error.data) == ("No such tool.", -32602, {"name": "x"})


def test_a_configuration_error_carries_its_findings() -> None:
    assert ConfigError("wrong", ["one", "two"]).findings == ("one", "two")


def test_the_refusals_of_messages_have_a_code_each() -> None:
    kinds = [kind for kind in CLASSES if issubclass(kind, ProtocolError)]

    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(-32768 <= kind.code <= -32000 for kind in kinds)
