"""A server of the official SDK behind a hub, used by the official SDK's client, in both eras on either side."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.gateway.importers import stdio, write
from tests.gateway.passers import started
from tests.interop.official import text_of
from tests.protocol.conftest import asynchronous
from tests.upstreams.pools import Recorded, listening
from tests.upstreams.servers import official_asking

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.parametrize("mode", ["legacy", "2026-07-28"]),
    pytest.mark.parametrize("reached", ["stdio", "http", "http with sessions"]),
]


@asynccontextmanager
async def server(reached: str) -> AsyncIterator[dict[str, Any]]:
    """The entry of the server for the section `connections`."""
    if reached == "stdio":
        yield stdio("official_asking")
        return
    app = Recorded(official_asking.build().streamable_http_app(), sessions_only=reached != "http")
    async with listening(app) as url:
        yield {"kind": "mcp", "url": url}


async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Accept with the colour red."""
    assert isinstance(params, types.ElicitRequestFormParams)
    assert params.message == "Which colour?"
    return types.ElicitResult(action="accept", content={"colour": "red"})


async def decline(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Decline."""
    return types.ElicitResult(action="decline")


async def think(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """A model."""
    assert params.max_tokens == 9
    content = types.TextContent(type="text", text="A cat.")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


@asynccontextmanager
async def client_of(folder: Path, reached: str, mode: Any, **callbacks: Any) -> AsyncIterator[Client]:
    """The official client of a hub that imports the server as `sdk`."""
    async with server(reached) as connection:
        file = write(folder, {"sdk": connection}, [{"connection": "sdk"}])
        async with (
            started(file) as hub,
            listening(hub.asgi()) as url,
            Client(url, mode=mode, sampling_callback=think, **callbacks) as client,
        ):
            yield client


def test_elicitations_and_sampling_requests_are_answered(tmp_path: Path, mode: str, reached: str) -> None:
    @asynchronous
    async def answered() -> None:
        async with client_of(tmp_path, reached, mode, elicitation_callback=answer) as client:
            assert text_of(await client.call_tool("sdk.paint", {})) == "red"
            assert text_of(await client.call_tool("sdk.think", {})) == "A cat."

    answered()


def test_an_elicitation_may_be_declined(tmp_path: Path, mode: str, reached: str) -> None:
    @asynchronous
    async def declined() -> None:
        async with client_of(tmp_path, reached, mode, elicitation_callback=decline) as client:
            assert text_of(await client.call_tool("sdk.paint", {})) == "decline"

    declined()


def test_prompts_and_resources_are_used(tmp_path: Path, mode: str, reached: str) -> None:
    @asynchronous
    async def used() -> None:
        async with client_of(tmp_path, reached, mode) as client:
            (prompt,) = (await client.list_prompts()).prompts
            assert (prompt.name, prompt.title) == ("sdk.greet", "Greeting")
            written = await client.get_prompt("sdk.greet", {"name": "Ada"})
            assert isinstance(written.messages[0].content, types.TextContent)
            assert written.messages[0].content.text == "Greet Ada."
            (resource,) = (await client.list_resources()).resources
            assert (str(resource.uri), resource.name) == ("memo://one", "sdk.one")
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "memo://search{?words,limit}"
            for uri in ("memo://one", "memo://search?words=a&limit=3"):
                (read,) = (await client.read_resource(uri)).contents
                assert isinstance(read, types.TextResourceContents)
                assert read.text == f"All of {uri}."

    used()
