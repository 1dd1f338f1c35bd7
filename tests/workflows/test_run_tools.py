"""The tools that run workflows: their schemas, and errors of the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import flow, model
from waypost import Hub
from waypost.testing import connect

DONE: dict[str, Any] = {"a": {"terminal": True}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"$ref": "#/properties/x"}}},
        {
            "$defs": {"n": {"type": "integer"}},
            "type": "object",
            "properties": {"y": {"allOf": [{"$ref": "#/$defs/n"}]}},
        },
        {
            "type": "object",
            "properties": {"y": {"type": "integer"}, "$ref": {"$ref": "#/properties/y"}, "z": {"$ref": "#"}},
        },
        {"$id": "urn:x", "type": "object", "properties": {"x": {"type": "integer"}, "y": {"$ref": "#/properties/x"}}},
    ],
)
@asynchronous
async def test_references_within_the_input_schema_work(schema: dict[str, Any]) -> None:
    hub = Hub("desk", version="1")
    hub.workflow("flow", model(flow(DONE, inputSchema=schema, initialContext={"kept": {"$ref": "#"}})))
    async with connect(hub) as client:
        right = await client.call_tool("workflow:flow", {"input": {"y": 1}})
        wrong = await client.call_tool("workflow:flow", {"input": {"y": "one"}})

    assert (right.get("isError", False), wrong.get("isError", False)) == (False, True)
    assert "input.y" in wrong.text or "y:" in wrong.text


@asynchronous
async def test_no_path_of_the_data_directory_reaches_a_caller(tmp_path: Path) -> None:
    hub = Hub("desk", version="1", store=f"sqlite:///{tmp_path}/desk.db")
    hub.workflow("flow", model(flow({"a": {"transitions": {"go": {"target": "b"}}}, "b": {"terminal": True}})))
    async with connect(hub) as client:
        (tmp_path / "desk.db").mkdir()
        answers = [
            await client.call_tool("workflow.start", {"definitionId": "flow", "input": {}}),
            await client.call_tool("workflow:flow", {"input": {}}),
        ]

    for answer in answers:
        assert answer.get("isError")
        assert "The store cannot be opened" in answer.text
        assert str(tmp_path) not in json.dumps(answer, default=str)
