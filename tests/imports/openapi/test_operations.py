"""Operations of documents: their arguments, and invalid documents."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from tests.imports.openapi.documents import PETS, document
from tests.workflows.executors.test_building import surroundings
from waypost.capabilities.capability import read_header_parameters
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.imports.exposures import Offer
from waypost.imports.openapi import MAX_OPERATIONS, LeftOut, list_operations
from waypost.workflows.executors import build
from waypost.workflows.executors.rest import Rest


def found(written: dict[str, Any], *headers: str) -> dict[str, Offer]:
    return {one.name: one for one in list_operations(written, "api", headers) if isinstance(one, Offer)}


def only(written: dict[str, Any]) -> Offer:
    (one,) = list_operations(written, "api")
    assert isinstance(one, Offer), one
    return one


def request_of(offer: Offer) -> Rest:
    assert isinstance(offer.executor, Rest)
    return offer.executor


def why_not(written: dict[str, Any]) -> str:
    (one,) = list_operations(written, "api")
    assert isinstance(one, LeftOut), one
    return one.why


def test_every_operation_is_named_by_its_id_or_its_method_and_path() -> None:
    assert list(found(PETS)) == ["listPets", "addPet", "get_pets_petId", "changePet", "removePet"]


def test_the_title_description_and_tags_of_an_operation_are_used() -> None:
    pets = found(PETS)
    listing = pets["listPets"]
    assert (listing.title, listing.description, listing.tags) == ("List pets", "All pets, page by page", ["pets"])
    assert pets["get_pets_petId"].description == "One pet"
    assert pets["removePet"].description == "DELETE /pets/{petId}"


def test_parameters_of_the_path_the_query_and_headers_are_arguments() -> None:
    listing = found(PETS)["listPets"]
    assert set(listing.input_schema["properties"]) == {"limit", "kind", "X-Trace", "X-Key"}
    assert listing.input_schema["required"] == ["X-Key"]
    assert request_of(listing).query == {"limit": '$.arguments["limit"]', "kind": '$.arguments["kind"]'}
    assert found(PETS)["get_pets_petId"].input_schema["required"] == ["petId"]


def test_a_header_that_the_connection_sends_is_not_an_argument() -> None:
    assert "X-Key" not in found(PETS, "x-key")["listPets"].input_schema["properties"]
    fixed: Any = [{"name": name, "in": "header", "schema": {}} for name in ("Authorization", "Host", "Cookie", "a b")]
    assert only(document({"parameters": fixed})).input_schema["properties"] == {}


def test_only_reading_operations_are_marked_read_only() -> None:
    hints = {id: one.annotations for id, one in found(PETS).items()}
    assert [id for id, one in hints.items() if one.get("read_only_hint")] == ["listPets", "get_pets_petId"]
    assert hints["removePet"]["destructive_hint"]


def test_a_body_that_contains_itself_is_checked_all_the_way_down() -> None:
    adding = found(PETS)["addPet"]
    assert adding.input_schema["required"] == ["body"]
    assert adding.bare is None
    schema = Validator(adding.input_schema)
    assert schema.is_valid({"body": {"name": None, "age": 1, "friends": [{"name": "a", "friends": []}]}})
    assert not schema.is_valid({"body": {"name": "a", "friends": [{"name": 1}]}})
    assert not schema.is_valid({"body": {"name": "a", "age": 0}})
    assert not schema.is_valid({"body": {}})
    name = adding.input_schema["$defs"]["Pet"]["properties"]["name"]
    assert name == {"type": ["string", "null"]}


def test_an_optional_body_may_be_omitted() -> None:
    changing = found(PETS)["changePet"]
    assert "body" not in changing.input_schema["required"]
    assert changing.bare is not None
    assert changing.bare.body is None
    assert request_of(changing).headers == {"Content-Type": "application/merge-patch+json"}


def test_two_parameters_with_one_name_get_different_arguments() -> None:
    both = [{"name": "id", "in": place, "schema": {"type": "string"}} for place in ("query", "header", "path")]
    body: Any = {"content": {"application/json": {}}}
    more = [{"name": "body", "in": "query", "schema": {}}]
    one = only(document({"parameters": [*both, *more], "requestBody": body}, path="/x/{id}"))
    assert set(one.input_schema["properties"]) == {"id", "query_id", "header_id", "query_body", "body"}
    assert request_of(one).query["id"] == '$.arguments["query_id"]'


def test_an_undeclared_path_variable_is_a_string() -> None:
    one = only(document({}, path="/a/{x}/{y}"))
    assert one.input_schema["properties"] == {"x": {"type": "string"}, "y": {"type": "string"}}


def test_a_list_that_is_sent_as_text_is_a_string_argument() -> None:
    many = {"name": "ids", "in": "query", "explode": False, "schema": {"type": "array", "items": {}}}
    schema = only(document({"parameters": [many]})).input_schema["properties"]["ids"]
    assert schema == {"type": "string", "description": "Several values, with commas between them"}


def test_a_pattern_for_another_engine_is_dropped_and_the_rest_kept() -> None:
    odd = {"name": "a", "in": "query", "schema": {"type": "string", "pattern": "^(?=x)y$", "maxLength": 3}}
    assert only(document({"parameters": [odd]})).input_schema["properties"]["a"] == {"type": "string", "maxLength": 3}


def test_misplaced_schema_keywords_are_corrected_or_dropped() -> None:
    name = {"type": "string", "required": True, "nullable": True, "enum": ["a"]}
    body = {"type": "object", "properties": {"name": name}}
    schema = only(document(taking(body), version="3.1.0")).input_schema["properties"]["body"]
    assert schema["properties"]["name"] == {"type": ["string", "null"], "enum": ["a", None]}


def deep(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def taking(schema: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


def circle(*names: str) -> dict[str, Any]:
    following = dict(zip(names, (*names[1:], names[0]), strict=True))
    return {"parameters": {name: {"$ref": f"#/components/parameters/{other}"} for name, other in following.items()}}


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ([], "the operation is not a mapping"),
        ({"parameters": {}}, "is not a list"),
        ({"parameters": [1]}, "a parameter is not a mapping"),
        ({"parameters": [{"name": 1, "in": "query"}]}, "a parameter has no name"),
        ({"parameters": [{"name": "a", "in": ["query"]}]}, "no place that is known"),
        ({"parameters": [{"name": "a", "in": "cookie", "required": True}]}, "as a cookie"),
        ({"parameters": [{"name": "a", "in": "query", "style": "deepObject", "required": True}]}, "spread"),
        ({"parameters": [{"name": "a", "in": "query", "schema": 1}]}, "a schema is not a mapping"),
        ({"parameters": [{"$ref": "#/components/parameters/a"}]}, "refers to itself"),
        ({"parameters": [{"$ref": "other.yaml#/a"}]}, "leads out of the document"),
        ({"parameters": [{"name": str(n), "in": "query"} for n in range(500)]}, "more than 200 parameters"),
        ({"requestBody": 3}, "the request body is not a mapping"),
        ({"requestBody": {"content": []}, "tags": 1}, "is not a list"),
        ({"requestBody": {"required": True, "content": {"text/plain": {}}}}, "not JSON"),
        (taking({"$ref": "https://example.com/a.json"}), "leads out of the document"),
        (taking({"$ref": "#/components/schemas/none"}), "leads nowhere"),
        (taking({"$ref": 7}), "a reference is not text"),
        (taking({"$ref": ["x"]}), "a reference is not text"),
        (taking(deep(200)), "nested too deeply"),
        (taking({"enum": list(range(10_000))}), "more than 5,000 values"),
        (taking({"type": "wat"}), "invalid JSON Schema"),
        (taking({"properties": []}), "`properties` is not a mapping"),
        (taking({"allOf": {}}), "`allOf` of a schema is not a list"),
        (taking({"minLength": "a"}), "invalid JSON Schema"),
    ],
)
def test_an_operation_that_cannot_be_used_is_left_out_with_a_reason(operation: Any, why: str) -> None:
    assert why in why_not(document(operation, components=circle("a", "b")))


@pytest.mark.parametrize("path", ["x", "/a?b=c", "/a#b"])
def test_an_invalid_path_is_left_out(path: str) -> None:
    assert "is not valid" in why_not(document({}, path=path))


@pytest.mark.parametrize("paths", [[1], 1, "x"])
def test_paths_that_are_not_a_mapping_are_refused(paths: Any) -> None:
    with pytest.raises(DefinitionError, match="`paths` is not a mapping"):
        list(list_operations({"openapi": "3.1.0", "paths": paths}, "api"))


@pytest.mark.parametrize("entry", [None, 1, [], {"$ref": "#/paths/~1x"}])
def test_an_invalid_path_entry_does_not_affect_the_others(entry: Any) -> None:
    written = {"openapi": "3.1.0", "paths": {"/x": entry, "/y": {"get": {}}}}
    assert list(found(written)) == ["get_y"]


def test_schemas_that_only_refer_to_each_other_can_be_used() -> None:
    schemas = {"A": {"$ref": "#/components/schemas/B"}, "B": {"allOf": [{"$ref": "#/components/schemas/A"}]}}
    one = only(document(taking({"$ref": "#/components/schemas/A"}), components={"schemas": schemas}))
    Validator(one.input_schema).is_valid({"body": 1})


def test_a_long_chain_of_references_is_followed_without_recursion() -> None:
    schemas: dict[str, Any] = {f"S{n}": {"$ref": f"#/components/schemas/S{n + 1}"} for n in range(2_000)}
    schemas["S2000"] = {"type": "string"}
    one = only(document(taking({"$ref": "#/components/schemas/S0"}), components={"schemas": schemas}))
    assert len(one.input_schema["$defs"]) == 2_001


def test_a_document_with_too_many_operations_is_refused() -> None:
    paths: Any = {f"/{n}": {"get": {}} for n in range(MAX_OPERATIONS + 1)}
    with pytest.raises(DefinitionError, match="more than 5,000 operations"):
        list(list_operations({"openapi": "3.1.0", "paths": paths}, "api"))


JUNK: list[Any] = [
    *(None, 1, 1e308, "x", "", True, [], {}, [[]], [{}], "$.arguments.x", ["string", "null"], {"": {}}, "\0", "\n"),
    *({"$ref": to} for to in ("#/components/schemas/Pet", "#/", "#", "#/paths", "http://x", 1, None)),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("seed", range(300))
def test_a_mutated_document_is_read_or_refused(seed: int) -> None:
    chance = Random(seed)
    written = deepcopy(PETS)
    for _ in range(chance.randint(1, 4)):
        *above, key = chance.choice(list(places(written)))
        inner: Any = written
        for part in above:
            inner = inner[part]
        inner[key] = deepcopy(chance.choice(JUNK))
        if not written:
            break
    try:
        found = list(list_operations(written, "api"))
    except DefinitionError:
        return
    for one in found:
        if isinstance(one, Offer):
            build(one.executor, surroundings())
            assert isinstance(read_header_parameters(one.input_schema), tuple)
