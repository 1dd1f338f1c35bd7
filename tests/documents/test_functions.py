"""The thirteen functions and the two trigger types of the registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.conftest import asynchronous
from tests.documents.desk import desk, fuzzed
from waypost.capabilities.schemas.validators import Validator
from waypost.documents.documents import TRIGGER_TYPES, make_change_payload
from waypost.documents.records import REGISTER_PROMPT, read_request
from waypost.errors import InvocationFailed

INTERFACE: dict[str, Any] = json.loads((Path(__file__).parent / "interface.json").read_text())
SAMPLE: dict[str, Any] = {
    "title": "Sample",
    "properties": {
        "text": {"type": "string"},
        "texts": {"type": ["array", "null"], "items": {"type": "string"}, "default": None},
        "arguments": REGISTER_PROMPT["properties"]["arguments"],
    },
    "required": ["text"],
    "definitions": REGISTER_PROMPT["definitions"],
}
KNOWN = list(SAMPLE["properties"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*KNOWN, "name", "required"]), inner),
)


@asynchronous
async def test_the_functions_are_declared_as_in_the_interface() -> None:
    async with desk() as it:
        declared = [
            {
                "name": frame.id,
                "description": frame.description,
                "metadata": frame.metadata,
                "request_schema": frame.request_format,
                "response_schema": frame.response_format,
            }
            for frame in (function.frame for function in it.functions.values())
        ]

        assert len(declared) == 13
        assert sorted(declared, key=lambda one: one["name"]) == sorted(
            INTERFACE["functions"], key=lambda one: one["name"]
        )


def test_the_trigger_types_are_declared_as_in_the_interface() -> None:
    assert {(kind.id, kind.description) for kind in TRIGGER_TYPES.values()} == {
        (kind["name"], kind["description"]) for kind in INTERFACE["triggers"]
    }
    assert make_change_payload("skills", "register", "a") == {"op": "register", "id": "a"}
    assert make_change_payload("prompts", "unregister", "a") == {"op": "unregister", "name": "a"}


@asynchronous
async def test_answers_match_the_declared_schemas() -> None:
    async with desk() as it:
        it.engine.functions["demo::write"] = lambda _: "Hi"
        given: dict[str, Any] = {
            "skills::register": {"id": "a", "skill": "# A iii://gone"},
            "skills::list": {},
            "skills::resources-list": {},
            "skills::resources-templates": {},
            "skills::resources-read": {"uri": "iii://a"},
            "skill::fetch": {"uri": "iii://a"},
            "skills::fetch_skill": {"uris": ["iii://skills"]},
            "prompts::register": {"name": "p", "description": "P.", "function_id": "demo::write"},
            "prompts::list": {},
            "prompts::mcp-list": {},
            "prompts::mcp-get": {"name": "p"},
            "skills::unregister": {"id": "a"},
            "prompts::unregister": {"name": "p"},
        }
        for function_id, payload in given.items():
            frame = it.functions[function_id].frame
            assert Validator(frame.request_format).is_valid(payload)
            assert Validator(frame.response_format).is_valid(await it.call(function_id, payload)), function_id


@pytest.mark.parametrize(
    "function_id",
    ["skills::list", "skills::resources-list", "skills::resources-templates", "prompts::list", "prompts::mcp-list"],
)
@pytest.mark.parametrize("payload", [None, {}, {"more": 1}, []])
@asynchronous
async def test_functions_without_fields_take_anything(function_id: str, payload: Any) -> None:
    async with desk() as it:
        assert isinstance(await it.call(function_id, payload), dict)


@fuzzed
@given(VALUES)
def test_any_payload_is_read_or_refused_in_one_line(payload: Any) -> None:
    try:
        assert set(read_request(payload, SAMPLE)) == set(KNOWN)
    except InvocationFailed as error:
        assert error.message.startswith(("missing field `", "invalid type: "))
        assert "\n" not in error.message
