"""Workflows through the API: listed, shown, drawn, and changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.conftest import operated_hub, operating
from tests.api.releasing import RELEASE, Releases, releasing
from tests.protocol.conftest import asynchronous

WORKFLOWS = "/api/v1/workflows"


@asynchronous
async def test_all_workflows_are_listed_disabled_ones_too() -> None:
    async with releasing(asleep={**RELEASE, "enabled": False}) as hub:
        assert (await hub.fetch("GET", WORKFLOWS))["workflows"] == [
            {
                "id": "asleep",
                "title": "Release",
                "version": "1.0.0",
                "enabled": False,
                "source": "given",
                "revision": None,
            },
            {
                "id": "release",
                "title": "Release",
                "version": "1.0.0",
                "enabled": True,
                "source": "given",
                "revision": None,
            },
        ]


@asynchronous
async def test_a_workflow_is_shown_with_its_states() -> None:
    async with releasing() as hub:
        shown = await hub.fetch("GET", f"{WORKFLOWS}/release")
        assert (shown["id"], shown["initialState"], shown["source"]) == ("release", "draft", "given")
        assert shown["states"]["review"] == {"transitions": ["ship", "revise"]}


@pytest.mark.parametrize(
    ("query", "format", "begins"),
    [
        ("", "mermaid", "stateDiagram-v2"),
        ("?format=dot", "dot", 'digraph "Release"'),
        ("?format=svg&state=review", "svg", "<svg"),
    ],
)
@asynchronous
async def test_a_workflow_is_drawn(query: str, format: str, begins: str) -> None:
    async with releasing() as hub:
        drawn = await hub.fetch("GET", f"{WORKFLOWS}/release/graph{query}")
        assert drawn["format"] == format
        assert drawn["text"].startswith(begins)


@pytest.mark.parametrize("path", ["", "/graph"])
@asynchronous
async def test_an_unknown_workflow_is_404_with_a_suggestion(path: str) -> None:
    async with releasing() as hub:
        assert await hub.refused("GET", f"{WORKFLOWS}/realease{path}") == (
            404,
            "There is no workflow realease; did you mean release?",
        )


@asynchronous
async def test_a_picture_of_another_kind_is_refused() -> None:
    async with releasing() as hub:
        assert (await hub.refused("GET", f"{WORKFLOWS}/release/graph?format=png"))[0] == 400


SMALL: dict[str, Any] = {
    "initialState": "open",
    "states": {"open": {"transitions": {"close": {"target": "closed"}}}, "closed": {"terminal": True}},
}


@asynchronous
async def test_a_workflow_is_made_changed_switched_off_and_removed() -> None:
    async with releasing() as hub:
        made = await hub.fetch("POST", WORKFLOWS, {"name": "small", "workflow": SMALL})
        row = {"id": "small", "title": "small", "version": "1.0.0", "enabled": True, "source": "created", "revision": 1}
        assert made == {"workflow": row}
        run = await hub.start("small")
        changed = {"workflow": {**SMALL, "title": "Small"}, "revision": 1}
        assert (await hub.fetch("POST", f"{WORKFLOWS}/small/change", changed))["workflow"]["title"] == "Small"
        status, sentence = await hub.refused("POST", f"{WORKFLOWS}/small/change", changed)
        assert (status, "has changed since" in sentence) == (409, True)
        assert (await hub.fetch("POST", f"{WORKFLOWS}/small/disable"))["workflow"]["enabled"] is False
        assert (await hub.call("workflow.start", definitionId="small", input={}))["error"][
            "code"
        ] == "WORKFLOW_DISABLED"
        assert (await hub.fetch("POST", f"{WORKFLOWS}/small/enable"))["workflow"]["enabled"] is True
        assert await hub.fetch("DELETE", f"{WORKFLOWS}/small") == {"id": "small", "status": "removed"}
        assert (await hub.refused("GET", f"{WORKFLOWS}/small"))[0] == 404
        assert (await hub.submit(run, "close"))["status"] == "succeeded"


@asynchronous
async def test_a_hub_that_had_no_workflows_can_be_given_one() -> None:
    async with operating(operated_hub(rules=())) as operator:
        hub = Releases(operator)
        assert await hub.fetch("GET", WORKFLOWS) == {"workflows": []}
        await hub.fetch("POST", WORKFLOWS, {"name": "small", "workflow": SMALL})
        run = await hub.start("small")
        assert (await hub.submit(run, "close"))["status"] == "succeeded"


@asynchronous
async def test_a_workflow_is_exported_and_imported() -> None:
    async with releasing() as hub:
        document = await hub.fetch("GET", f"{WORKFLOWS}/release/export")
        assert (document["version"], document["workflow"]["name"], document["steps"]) == (1, "release", [])
        taken_in = await hub.fetch("POST", f"{WORKFLOWS}/import", document)
        assert taken_in["workflow"]["id"] == "release (imported 1)"
        copied = await hub.fetch("POST", f"{WORKFLOWS}/release/duplicate")
        assert (copied["workflow"]["id"], copied["workflow"]["enabled"]) == ("release (copy)", False)
        assert len((await hub.fetch("GET", WORKFLOWS))["workflows"]) == 3


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    [
        ("", {"name": "release", "workflow": SMALL}, 409, "There is already a workflow release"),
        ("", {"name": " ", "workflow": SMALL}, 400, "1 to 128 printable characters"),
        ("", {"name": "x", "workflow": {}}, 400, "cannot be used"),
        ("", {"name": "x", "workflow": {**SMALL, "initialState": 7}}, 400, "Invalid workflow: "),
        ("", {"name": "x", "workflow": {**SMALL, "colour": "red"}}, 400, "unknown key colour"),
        ("", {"name": "x", "workflow": {**SMALL, "states": {"a": {"goals": ""}}}}, 400, "unknown key states.a.goals"),
        ("", {"name": "x", "workflow": {**SMALL, "initialState": "nowhere"}}, 400, "cannot be used"),
        ("/release/change", {"workflow": SMALL}, 409, "part of the configuration"),
        ("/release/enable", None, 409, "part of the configuration"),
        ("/nothing/disable", None, 404, "workflow not found: nothing"),
        ("/nothing/duplicate", None, 404, "workflow not found: nothing"),
        ("/import", {"version": 9}, 400, "Unsupported or missing version"),
    ],
)
@asynchronous
async def test_an_invalid_change_is_refused_with_its_reason(path: str, body: Any, status: int, part: str) -> None:
    async with releasing() as hub:
        found, sentence = await hub.refused("POST", f"{WORKFLOWS}{path}", body)
        assert (found, part in sentence) == (status, True), sentence
        assert [one["id"] for one in (await hub.fetch("GET", WORKFLOWS))["workflows"]] == ["release"]
