"""Arguments and results described through pydantic, for users who have it; imported only after they did."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, Literal

import pydantic
from pydantic.json_schema import GenerateJsonSchema

from waypost.capabilities.schemas.problems import MAX_SENTENCE, listed, problem
from waypost.errors import InvalidArguments, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

REQUIRED = ...
_MAX_ERRORS: Final = 10_000
"""Pydantic lists all of its errors or none; more would take seconds."""


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that only repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class ModelForm:
    """Arguments read by a pydantic model, under pydantic's own rules of conversion."""

    cast_plan = None

    def __init__(self, name: str, fields: Iterable[tuple[str, Any, Any]]) -> None:
        definitions: dict[str, Any] = {field: (annotation, default) for field, annotation, default in fields}
        with warnings.catch_warnings():
            # A parameter may well be called `json` or `copy`, which shadows a method that is not called here.
            warnings.simplefilter("ignore", UserWarning)
            config = pydantic.ConfigDict(protected_namespaces=())
            self._model: type[pydantic.BaseModel] = pydantic.create_model(name, __config__=config, **definitions)
        self.schema = describe(self._model, mode="validation")

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The model's fields by name."""
        try:
            return dict(self._model.model_validate(arguments).__dict__)
        except pydantic.ValidationError as error:
            raise InvalidArguments(_problems(error)) from None


def describe(annotation: Any, *, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """The JSON Schema of anything pydantic understands."""
    return pydantic.TypeAdapter(annotation).json_schema(mode=mode, schema_generator=_Untitled)


def _problems(error: pydantic.ValidationError) -> list[str]:
    if error.error_count() > _MAX_ERRORS:
        return [f"has {error.error_count()} problems, too many to list"]
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return listed(
        problem(detail["loc"], "is required" if detail["type"] == "missing" else shorten(detail["msg"], MAX_SENTENCE))
        for detail in details
    )
