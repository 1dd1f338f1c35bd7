"""The example server of the protocol's project behind a hub: all of its answers are passed on unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.importers import imports_of, names
from tests.interop.behind import ERAS, behind, everything
from tests.protocol.conftest import asynchronous

pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("version", ERAS)]


def test_its_tools_are_listed_with_their_schemas(version: str, tmp_path: Path) -> None:
    server = everything()

    @asynchronous
    async def scenario() -> None:
        async with behind(tmp_path, version, every=server) as (hub, client):
            listed = {tool["name"]: tool for tool in await client.list_tools()}
            assert {"every.echo", "every.get-sum", "every.trigger-long-running-operation"} <= listed.keys()
            assert listed["every.get-sum"]["inputSchema"]["required"] == ["a", "b"]
            assert "temperature" in listed["every.get-structured-content"]["outputSchema"]["properties"]
            row = imports_of(hub).get_row("every")
            assert (row.state, row.held, row.left_out) == ("running", [], [])

    scenario()


def test_its_answers_are_passed_on_unchanged(version: str, tmp_path: Path) -> None:
    server = everything()

    @asynchronous
    async def scenario() -> None:
        async with behind(tmp_path, version, every=server) as (_, client):
            assert (await client.call_tool("every.echo", {"message": "hello"})).text == "Echo: hello"
            weather = await client.call_tool("every.get-structured-content", {"location": "Chicago"})
            assert weather["structuredContent"].keys() == {"temperature", "conditions", "humidity"}
            picture = await client.call_tool("every.get-tiny-image")
            assert [block["mimeType"] for block in picture["content"] if block["type"] == "image"] == ["image/png"]
            marked = await client.call_tool("every.get-annotated-message", {"messageType": "error"})
            assert marked["content"][0]["annotations"]["priority"] == 1
            linked = await client.call_tool("every.get-resource-links", {"count": 2})
            assert [block["type"] for block in linked["content"]] == ["text", "resource_link", "resource_link"]

    scenario()


def test_its_errors_and_its_progress_are_passed_on(version: str, tmp_path: Path) -> None:
    server = everything()

    @asynchronous
    async def scenario() -> None:
        async with behind(tmp_path, version, every=server) as (_, client):
            wrong = await client.call_tool("every.get-sum", {"a": "x"})
            assert wrong.is_error
            assert "expected number" in wrong.text
            done = await client.call_with_progress(
                "every.trigger-long-running-operation", {"duration": 0.3, "steps": 3}
            )
            assert "completed" in done.text
            await client.assert_progress(1, 2, 3)
            assert "every.echo" in await names(client)

    scenario()
