"""Reading documents with tool calls only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.folders.library import BODY, put, skill, text
from tests.gateway.hubs import call_structured
from waypost import Hub
from waypost.policy.rules import Rule
from waypost.testing import TestClient, connect

READ, START = "resources/read", "workflow.start"


@asynccontextmanager
async def gateway(folder: Path, *hidden: str, **options: Any) -> AsyncIterator[tuple[Hub, TestClient]]:
    """A hub with a folder of skills, and a rule that denies a pattern."""
    rules = [Rule(name=one, type="mcp_restriction", config={"tool_pattern": one}) for one in hidden]
    given = {"workers": {"port": 0}, **options}
    hub = Hub("library", "1", surface="gateway", policies=rules, **given).add_skills(folder)
    try:
        async with connect(hub) as client:
            yield hub, client
    finally:
        await hub.stop()


async def item(client: TestClient, item_id: str) -> dict[str, Any]:
    """An item of the catalog, whose links are the same in a search and a description."""
    everything: list[dict[str, Any]] = (await call_structured(client, "gateway.home"))["items"]
    (found,) = [one for one in everything if one["id"] == item_id]
    searched = (await call_structured(client, "gateway.search", query="", kind=found["kind"], limit=100))["results"]
    described = await call_structured(client, "gateway.describe", id=item_id)
    bare = [{key: value for key, value in link.items() if key != "input_schema"} for link in described["links"]]
    assert [one["item"] for one in searched if one["item"]["id"] == item_id] == [found]
    assert bare == found["links"]
    return found


def methods(found: dict[str, Any]) -> list[str]:
    return [link["method"] for link in found["links"]]


@asynchronous
async def test_a_document_is_read_by_following_its_link_with_the_seven_tools_alone(tmp_path: Path) -> None:
    skill(tmp_path, "pdf")
    async with gateway(tmp_path) as (hub, client):
        await hub.documents.skills.register("walrus", "# All about walruses\n\nThey swim.")
        for item_id, uri, body in (
            ("iii://walrus", "iii://walrus", "# All about walruses\n\nThey swim."),
            ("skill://pdf/SKILL.md", "iii://pdf", BODY.rstrip()),
        ):
            found = await item(client, item_id)
            assert methods(found) == [READ, START]
            link = found["links"][1]
            given = {"capability": "skill__fetch", "arguments": {"uri": uri}}
            assert link == {"rel": "start", "method": START, "args": {"definitionId": "proxy_default", "input": given}}
            begun = await call_structured(client, link["method"], **link["args"])
            assert begun["context"]["lastResult"] == f"# {uri}\n\n{body}"
        assert methods(await item(client, "iii://skills")) == [READ, START]


@asynchronous
async def test_the_title_of_a_skill_is_its_first_heading(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (hub, client):
        await hub.documents.skills.register("walrus", "# All about walruses\n\nThey swim.")
        await hub.documents.skills.register("long", f"# {'x' * 1000}\n")
        await hub.documents.skills.register("bare", "Nothing.")
        titles = [(await item(client, f"iii://{name}"))["title"] for name in ("walrus", "long", "bare")]
        assert titles == ["All about walruses", "x" * 140, "bare"]


@asynchronous
async def test_only_fetchable_documents_have_a_fetch_link(tmp_path: Path) -> None:
    skill(tmp_path, "fn")
    skill(tmp_path, "shadowed")
    put(tmp_path / "bare" / "SKILL.md", text("bare", body=""))
    async with gateway(tmp_path) as (hub, client):
        hub.resource("docs://x", name="x", mime_type="text/markdown")(lambda: "# x")
        await hub.documents.skills.register("shadowed", "# Another text\n", "operator")
        for uri in ("skill://fn/SKILL.md", "skill://bare/SKILL.md", "skill://shadowed/SKILL.md", "docs://x"):
            assert methods(await item(client, uri)) == [READ]
        assert methods(await item(client, "iii://shadowed")) == [READ, START]


@asynchronous
async def test_without_the_fetch_tool_there_is_no_fetch_link(tmp_path: Path) -> None:
    skill(tmp_path, "pdf")
    async with gateway(tmp_path, workers=False) as (hub, client):
        hub.tool(name="skill__fetch")(lambda: "somebody else's")
        assert methods(await item(client, "skill://pdf/SKILL.md")) == [READ]
        assert hub.folders.problems == ()


@pytest.mark.parametrize("denied", ["skill__fetch", "iii://pdf"])
@asynchronous
async def test_a_denied_fetch_is_not_linked(tmp_path: Path, denied: str) -> None:
    skill(tmp_path, "pdf")
    async with gateway(tmp_path, denied) as (_, client):
        assert methods(await item(client, "skill://pdf/SKILL.md")) == [READ]


@asynchronous
async def test_only_documents_have_a_second_link(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (hub, client):
        hub.tool(name="add")(lambda: "x")
        hub.prompt(lambda: "Hello.", name="hello")
        assert methods(await item(client, "add")) == [START]
        assert methods(await item(client, "prompt:hello")) == ["prompts/get"]
