"""Reading type hints: what they mention, what they say, how they resolve."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from waypost.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PYDANTIC_PACKAGES = frozenset(("pydantic", "pydantic_core", "annotated_types"))


def parts(annotation: Any) -> Iterator[Any]:
    """Everything an annotation is made of: types, their arguments, the metadata of Annotated."""
    yield annotation
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    for argument in get_args(annotation):
        yield from parts(argument)


def text(annotation: Any) -> str | None:
    """The words in `Annotated[int, "words"]`."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((item for item in annotation.__metadata__ if isinstance(item, str)), None)


def needs_pydantic(annotations: Iterable[Any]) -> bool:
    """Whether only pydantic can read these; never so before the user has imported it."""
    return "pydantic" in sys.modules and any(_is_pydantic(part) for given in annotations for part in parts(given))


def _is_pydantic(part: Any) -> bool:
    if isinstance(part, type):
        return hasattr(part, "__get_pydantic_core_schema__") or hasattr(part, "__pydantic_validator__")
    return type(part).__module__.partition(".")[0] in _PYDANTIC_PACKAGES


def underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function that a partial or a callable object runs."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def resolved(function: Callable[..., Any], skip: frozenset[str]) -> dict[str, Any]:
    """The resolved type hints of the parameters that are not skipped."""
    parameters = inspect.signature(function).parameters.values()
    given = {p.name: p.annotation for p in parameters if p.name not in skip and p.annotation is not p.empty}
    namespace = getattr(inspect.unwrap(underlying(function)), "__globals__", {})
    try:
        return typing.get_type_hints(SimpleNamespace(__annotations__=given), namespace, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise DefinitionError(f"an annotation cannot be resolved at run time: {error}") from None
