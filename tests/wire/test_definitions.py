from __future__ import annotations

from typing import Any

import msgspec
import pytest

from waypost.wire.content import Annotations
from waypost.wire.definitions import (
    Implementation,
    PromptArgument,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
    ToolExecution,
)


@pytest.mark.parametrize(
    ("definition", "wire"),
    [
        (ToolDefinition("t"), {"name": "t", "inputSchema": {"type": "object"}}),
        (
            ToolDefinition(
                "t",
                title="T",
                output_schema={"type": "object"},
                annotations={"readOnlyHint": True},
                execution=ToolExecution("optional"),
                meta={"category": "C"},
            ),
            {
                "name": "t",
                "title": "T",
                "inputSchema": {"type": "object"},
                "outputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
                "execution": {"taskSupport": "optional"},
                "_meta": {"category": "C"},
            },
        ),
        (ResourceDefinition("u:x", "x"), {"uri": "u:x", "name": "x"}),
        (
            ResourceDefinition("u:x", "x", mime_type="a/b", size=0, annotations=Annotations(priority=1)),
            {"uri": "u:x", "name": "x", "mimeType": "a/b", "size": 0, "annotations": {"priority": 1}},
        ),
        (TemplateDefinition("u:{x}", "x"), {"uriTemplate": "u:{x}", "name": "x"}),
        (
            PromptDefinition("p", arguments=[PromptArgument("a", required=False)]),
            {"name": "p", "arguments": [{"name": "a", "required": False}]},
        ),
        (
            Implementation("s", "1", website_url="https://example.com"),
            {"name": "s", "version": "1", "websiteUrl": "https://example.com"},
        ),
    ],
)
def test_definitions_use_wire_names_and_omit_unset_fields(definition: Any, wire: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(definition)) == wire
