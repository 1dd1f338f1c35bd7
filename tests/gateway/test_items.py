"""Rows of the registry as items that agents can find."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from waypost import Hub
from waypost.capabilities.capability import Capability
from waypost.config.models import Workflow
from waypost.gateway.directory import Item, to_item, workflow_text
from waypost.kinds import convert

FLOW = msgspec.convert(
    {
        "initialState": "lint",
        "inputSchema": {"type": "object", "properties": {"service": {"type": "string"}}},
        "states": {
            "lint": {
                "goal": "No warnings",
                "guidance": "Mend what it finds",
                "description": "Not a word of the text",
                "transitions": {"run_lint": {"target": "done"}},
            },
            "done": {"terminal": True},
        },
    },
    Workflow,
)


def row(hub: Hub, kind: Any = "tools") -> Capability:
    (found,) = hub.expand(kind)
    return found


def tool(name: str, **options: Any) -> Capability:
    hub = Hub("one", version="1")
    hub.tool(name=name, **options)(lambda: "x")
    return row(hub)


def item(given: Capability, workflow: Workflow | None = None) -> Item:
    found = to_item(given, lambda name: workflow)
    assert found is not None
    return found


def test_a_tool_is_a_capability_that_is_started_through_proxy_default() -> None:
    made = item(tool("mail.send", description="Send it", tags=["mail"], aliases=["post"], category="Mail"))

    assert (made.id, made.kind, made.title, made.description) == ("mail.send", "capability", "mail.send", "Send it")
    assert (made.tags, made.aliases, made.text, made.category) == (("mail",), ("post",), "mail.send", "Mail")
    assert made.link == {
        "rel": "start",
        "method": "workflow.start",
        "args": {"definitionId": "proxy_default", "input": {"capability": "mail.send"}},
    }


def test_a_missing_title_is_the_id_and_a_missing_description_is_empty() -> None:
    bare = item(tool("bare"))
    assert (bare.title, bare.description, bare.category) == ("bare", "", "none")


@pytest.mark.parametrize(("name", "kind"), [("skill:count", "skill"), ("skills", "capability"), ("a.b", "capability")])
def test_an_executable_skill_has_the_kind_skill(name: str, kind: str) -> None:
    assert item(tool(name)).kind == kind


def test_a_workflow_is_started_by_its_own_id() -> None:
    made = item(tool("workflow:deploy", title="Deploy"), FLOW)

    assert (made.id, made.kind, made.title) == ("deploy", "workflow", "Deploy")
    assert made.link["args"] == {"definitionId": "deploy", "input": {}}
    assert made.schema == FLOW.input_schema


def test_a_tool_named_like_a_workflow_is_a_capability() -> None:
    made = item(tool("workflow:deploy"))
    assert (made.id, made.kind) == ("workflow:deploy", "capability")


def test_the_text_of_a_workflow_is_its_states_transitions_goals_and_guidance() -> None:
    assert workflow_text(FLOW) == "lint run_lint No warnings Mend what it finds done"
    steps = convert({"steps": [{"skill": "web_search"}, {"name": "sum", "capability": "add"}]}, Workflow)
    assert workflow_text(steps) == "web_search sum"


def test_a_prompt_links_to_prompts_get_and_has_its_arguments_as_a_schema() -> None:
    hub = Hub("one", version="1")

    @hub.prompt
    def greet(name: str, tone: str = "warm") -> str:
        return f"{name} {tone}"

    made = item(row(hub, "prompts"))
    assert (made.id, made.kind) == ("prompt:greet", "prompt")
    assert made.link == {"rel": "get", "method": "prompts/get", "args": {"name": "greet", "arguments": {}}}
    assert made.schema is not None
    assert made.schema["required"] == ["name"]
    assert made.schema["properties"]["tone"]["type"] == "string"


@pytest.mark.parametrize("mime_type", ["image/png", "application/json", None])
def test_only_markdown_is_a_document(mime_type: str | None) -> None:
    hub = Hub("one", version="1")
    hub.resource("docs://x", name="x", mime_type=mime_type)(lambda: "x")
    assert to_item(row(hub, "resources"), lambda name: None) is None


def test_a_document_links_to_resources_read() -> None:
    hub = Hub("one", version="1")
    hub.resource("docs://x", name="x", mime_type="text/markdown")(lambda: "# x")
    made = item(row(hub, "resources"))
    assert (made.id, made.kind, made.title) == ("docs://x", "document", "x")
    assert made.link == {"rel": "read", "method": "resources/read", "args": {"uri": "docs://x"}}


def test_templates_and_hidden_tools_are_not_items() -> None:
    hub = Hub("one", version="1")
    hub.resource("docs://{x}", name="x", mime_type="text/markdown")(lambda x: "# x")
    assert to_item(row(hub, "resource_templates"), lambda name: None) is None
    assert to_item(tool("attic", hidden=True), lambda name: None) is None


def test_a_description_adds_the_schema_and_the_aliases() -> None:
    made = item(tool("mail.send", aliases=["post"]))
    assert "aliases" not in made.summarise()
    assert made.describe()["aliases"] == ["post"]
    assert "input_schema" not in made.summarise()["links"][0]
    assert made.describe()["links"][0]["input_schema"]["type"] == "object"
    assert "aliases" not in item(tool("bare")).describe()
