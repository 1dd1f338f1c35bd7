from __future__ import annotations

from typing import Any

import pytest

from tests.capabilities.client import new_hub
from waypost.capabilities.capability import HeaderParameter, read_header_parameters
from waypost.errors import DefinitionError


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_header_parameters_are_found_with_their_paths() -> None:
    found = read_header_parameters(
        schema(
            region={"type": "string", "x-mcp-header": "Region"},
            where=schema(zone={"type": "integer", "x-mcp-header": "Zone-Id"}, other={"type": "string"}),
            dry={"type": "boolean", "x-mcp-header": "Dry"},
        )
    )
    assert found == (
        HeaderParameter("region", ("region",), "string"),
        HeaderParameter("zone-id", ("where", "zone"), "integer"),
        HeaderParameter("dry", ("dry",), "boolean"),
    )


def test_a_schema_without_annotations_has_no_header_parameters() -> None:
    assert read_header_parameters(schema(a={"type": "string"})) == ()
    assert read_header_parameters({"type": "object"}) == ()


def test_a_property_of_that_name_is_only_a_property() -> None:
    assert read_header_parameters(schema(**{"x-mcp-header": {"type": "string"}})) == ()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (schema(a={"type": "string", "x-mcp-header": "no spaces"}), "a: x-mcp-header must be an HTTP token"),
        (schema(a={"type": "string", "x-mcp-header": ""}), "a: x-mcp-header must be an HTTP token"),
        (schema(a={"type": "string", "x-mcp-header": 3}), "a: x-mcp-header must be an HTTP token"),
        (schema(a={"type": "string", "x-mcp-header": "a\r\nb"}), "a: x-mcp-header must be an HTTP token"),
        (schema(a={"type": "number", "x-mcp-header": "A"}), "needs the type string, integer or boolean"),
        (schema(a={"x-mcp-header": "A"}), "needs the type string, integer or boolean"),
        (schema(o=schema(a={"type": "object", "x-mcp-header": "A"})), "o.a: x-mcp-header needs the type"),
        (
            schema(a={"type": "string", "x-mcp-header": "Same"}, b={"type": "string", "x-mcp-header": "same"}),
            "must be unique, whatever their case",
        ),
        (schema(a={"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}), "no client can reach"),
        ({"type": "object", "anyOf": [schema(a={"type": "string", "x-mcp-header": "A"})]}, "no client can reach"),
        ({"type": "object", "$defs": {"a": {"type": "string", "x-mcp-header": "A"}}}, "no client can reach"),
        ({"type": "object", "x-mcp-header": "A"}, "no client can reach"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        read_header_parameters(given)


def test_a_tool_with_an_invalid_header_is_refused_with_its_name() -> None:
    with pytest.raises(DefinitionError, match=r"Tool 'work': a: x-mcp-header"):

        @new_hub().tool(input_schema=schema(a={"type": "string", "x-mcp-header": "?"}))
        def work(args: dict[str, Any]) -> None: ...
