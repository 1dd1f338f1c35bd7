"""A hostile server behind a hub does not prevent other servers from answering."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.importers import imports_of, names, stdio
from tests.interop.behind import behind, python
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.servers.hostile import MISDEEDS
from waypost.testing import TestClient

CALLS = 50


async def served(client: TestClient) -> None:
    """Check that the other server answers sequential and concurrent calls."""
    for number in range(10):
        assert (await client.call_tool("sdk.add", {"a": number, "b": 1})).text == str(number + 1)
    calls = [client.call_tool("sdk.add", {"a": number, "b": 1}) for number in range(CALLS)]
    assert [answer.text for answer in await asyncio.gather(*calls)] == [str(number + 1) for number in range(CALLS)]


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_a_hostile_server_does_not_affect_another_server(misdeed: str, tmp_path: Path) -> None:
    bad = stdio("hostile", str(tmp_path / "starts"))

    @asynchronous
    async def scenario() -> None:
        async with behind(tmp_path, bad=bad, sdk=python("sdk_upstream")) as (_, client):
            assert (await client.call_tool("bad.behave")).text == "behave"
            doing = asyncio.ensure_future(client.call_tool(f"bad.{misdeed}"))
            await served(client)
            await served(client)
            doing.cancel()
            await asyncio.wait({doing})
            assert "sdk.add" in await names(client)

    scenario()


@asynchronous
async def test_an_endless_line_ends_the_server_and_the_next_call_starts_a_new_one(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    async with behind(tmp_path, bad=stdio("hostile", str(starts))) as (_, client):
        answer = await client.call_tool("bad.endless")
        assert answer.is_error
        assert "wrote a line of more than" in answer.text
        assert (await client.call_tool("bad.behave")).text == "behave"
        assert len(starts.read_text().splitlines()) == 2


@asynchronous
async def test_a_server_that_crashes_at_every_call_is_not_started_at_every_call(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    async with behind(tmp_path, bad=stdio("hostile", str(starts)), sdk=python("sdk_upstream")) as (_, client):
        message = [(await client.call_tool("bad.crash")).text for _ in range(20)]
        assert "exit code 9" in message[0]
        assert any("It is tried again in" in text for text in message)
        assert len(starts.read_text().splitlines()) < 10
        await served(client)


@asynchronous
async def test_a_server_with_changing_definitions_is_quarantined(tmp_path: Path) -> None:
    async with behind(tmp_path, bad=stdio("hostile", str(tmp_path / "starts"))) as (hub, client):
        before = await names(client)
        await client.call_tool("bad.change")
        await until(lambda: imports_of(hub).get_row("bad").held)
        assert set(await names(client)) <= set(before)
        refused = await client.call_tool("bad.behave")
        assert "waypost upstreams approve bad behave" in refused.text
