from typing import Any

import pytest

from tests.capabilities.schemas.hostile import many_patterns, refer
from waypost.capabilities.schemas.graph import MAX_DEPTH, MAX_PATTERN_SIZE, MAX_PATTERNS, MAX_SUBSCHEMAS, SchemaGraph
from waypost.errors import DefinitionError

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": TEXT}},
        {"$ref": "#/definitions/a~1b~0c", "definitions": {"a/b~c": TEXT}},
        {"$ref": "#/%24defs/a%20b", "$defs": {"a b": TEXT}},
        {"$ref": "#/anyOf/1", "anyOf": [{}, TEXT]},
        {"$ref": "#/x-words/of/my/own", "x-words": {"of": {"my": {"own": TEXT}}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here", **TEXT}}},
        {"$dynamicRef": "#here", "$defs": {"a": {"$dynamicAnchor": "here", **TEXT}}},
        {"$ref": "#here", "$defs": {"a": {"$id": "#here", **TEXT}}},
        {"$id": "http://x.example/root", "$ref": "http://x.example/root#/$defs/a", "$defs": {"a": TEXT}},
        {"$ref": "other", "$defs": {"a": {"$id": "other", **TEXT}}},
    ],
)
def test_a_reference_is_followed(schema: dict[str, Any]) -> None:
    graph = SchemaGraph(schema)

    assert any(one.get("type") == "string" for one in graph.targets(schema))
    assert graph.unresolved is None


def test_a_reference_may_lead_to_a_flag() -> None:
    schema = {"$ref": "#/$defs/never", "$defs": {"never": False}}

    assert SchemaGraph(schema).targets(schema) == [False]


def test_a_reference_into_several_resources_may_lead_into_each() -> None:
    inner = {"$id": "inner", "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}
    graph = SchemaGraph({"$defs": {"a": TEXT, "b": inner}})

    assert graph.targets(inner) == [TEXT, {"type": "integer"}]
    assert not graph.is_one_resource


@pytest.mark.parametrize("reference", ["#/$defs/b", "#b", "#/anyOf/7", "#/anyOf/" + "9" * 5000, "http://x.example/"])
def test_an_unresolved_reference_is_recorded(reference: str) -> None:
    assert SchemaGraph({"anyOf": [{"$ref": reference}], "$defs": {"a": TEXT}}).unresolved == reference


def test_the_dialects_themselves_are_the_engines() -> None:
    schema = {"$ref": "https://json-schema.org/draft/2020-12/schema"}

    assert SchemaGraph(schema).targets(schema) == []


def test_an_embedded_schema_with_the_id_of_a_dialect_is_followed() -> None:
    posing = {"$id": "https://json-schema.org/draft/2020-12/mine", "type": "string"}
    schema = {"$ref": "https://json-schema.org/draft/2020-12/mine", "$defs": {"a": posing}}

    assert posing in SchemaGraph(schema).targets(schema)


def test_subschemas_under_custom_keywords_count_when_they_are_referenced() -> None:
    hidden: dict[str, Any] = {"anyOf": [{} for _ in range(MAX_SUBSCHEMAS)]}

    SchemaGraph({"x-hidden": hidden})
    with pytest.raises(DefinitionError, match=f"more than {MAX_SUBSCHEMAS} subschemas"):
        SchemaGraph({"$ref": "#/x-hidden", "x-hidden": hidden})


def test_a_long_chain_of_references_under_custom_keywords_is_followed() -> None:
    hidden: dict[str, Any] = {f"d{number}": {"$ref": f"#/x/d{number + 1}"} for number in range(3000)}

    graph = SchemaGraph({"$ref": "#/x/d0", "x": {**hidden, "d3000": TEXT}})

    assert len(graph.pointers) == 3002


def test_many_references_into_many_resources_are_refused() -> None:
    parts = {f"a{number}": {"$id": f"r{number}", "$ref": f"#/$defs/a{number}"} for number in range(1000)}

    with pytest.raises(DefinitionError, match="more than 100000 combinations"):
        SchemaGraph({"$defs": parts})


def test_every_subschema_has_its_pointer() -> None:
    inner: dict[str, Any] = {"type": "integer"}
    graph = SchemaGraph({"properties": {"a/b": {"items": {"oneOf": [{}, inner]}}}})

    assert graph.pointers[id(inner)] == "/properties/a~1b/items/oneOf/1"


def test_depth_is_limited() -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        for _ in range(levels - 1):
            schema = {"not": schema}
        return schema

    SchemaGraph(nested(MAX_DEPTH))
    with pytest.raises(DefinitionError, match=f"nested deeper than {MAX_DEPTH} levels"):
        SchemaGraph(nested(MAX_DEPTH + 1))


def test_the_number_of_patterns_is_limited() -> None:
    def simple(count: int) -> dict[str, Any]:
        return {"patternProperties": {f"^{number}$": {} for number in range(count)}}

    SchemaGraph(simple(MAX_PATTERNS))
    with pytest.raises(DefinitionError, match=f"more than {MAX_PATTERNS} patterns"):
        SchemaGraph(simple(MAX_PATTERNS + 1))


@pytest.mark.parametrize("schema", [many_patterns(100), {"pattern": "a" * 1_000_000}, {"pattern": "(a{999}){999}"}])
def test_the_size_of_patterns_is_limited(schema: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=f"its patterns have more than {MAX_PATTERN_SIZE} positions"):
        SchemaGraph(schema)


def test_values_that_are_not_schemas_are_ignored() -> None:
    odd = {"properties": 3, "anyOf": {"type": "string"}, "items": [1, None], "$ref": 5, "pattern": ["x"], "not": "x"}

    assert SchemaGraph(odd).targets(odd) == []


def test_the_same_object_in_two_places_counts_twice() -> None:
    shared: dict[str, Any] = {"anyOf": [{}, {}]}
    for _ in range(20):
        shared = {"anyOf": [shared, shared]}

    with pytest.raises(DefinitionError, match="more than"):
        SchemaGraph({"anyOf": [shared], "$defs": {"x": refer("x")}})
