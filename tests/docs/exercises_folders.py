"""The examples of folders of skills and prompts."""

from __future__ import annotations

from tests.docs.exercises import of
from tests.docs.pages import DOCS, EXAMPLES
from waypost import Hub
from waypost.testing import TestClient

SKILL = "skill://release-notes/SKILL.md"


@of("skill_folders.py")
async def exercise_folders(client: TestClient, hub: Hub) -> None:
    assert hub.folders.problems == ()
    (listed,) = (await client.request("skills/list"))["skills"]
    assert listed["frontmatter"]["metadata"] == {"version": "1.2"}
    assert [one["uri"] for one in listed["resources"]] == [SKILL, "skill://release-notes/references/style.md"]
    inside = await client.request("resources/directory/read", {"uri": "skill://release-notes"})
    assert [one["name"] for one in inside["resources"]] == ["release-notes", "references"]
    (resource,) = await client.list_resources()
    assert (resource.uri, resource.name) == (SKILL, "release-notes")
    page = (DOCS / "skill-folders.md").read_text()
    assert (await client.read_resource(SKILL)).text in page
    assert (EXAMPLES / "prompts" / "summarise.md").read_text() in page
    written = await client.get_prompt("summarise", {"text": "Much."})
    assert written.text == "Summarise this in three sentences:\n\nMuch.\n"


@of("skill-folders.yaml")
async def exercise_configured_folders(client: TestClient, hub: Hub) -> None:
    await exercise_folders(client, hub)
    found = (await client.call_tool("gateway.search", {"query": "release notes"}))["content"][0].text
    assert SKILL in found
