"""Ten thousand capabilities are paged, found, and available after a restart without listing the upstream again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gateway.importers import Turncoat, running, tool, write
from tests.protocol.conftest import asynchronous
from waypost.testing import TestClient

MANY = 10_000
PAGE = 200
GATEWAY: dict[str, Any] = {"server": {"name": "desk", "version": "1.0.0", "surface": "gateway"}}


async def pages(client: TestClient) -> list[list[str]]:
    """The ids on each page of the gateway's home, by following the links."""
    found: list[list[str]] = []
    arguments: dict[str, Any] | None = {}
    while arguments is not None:
        page = (await client.call_tool("gateway.home", arguments))["structuredContent"]
        found.append([item["id"] for item in page["items"]])
        arguments = next((link["args"] for link in page["links"] if link["rel"] == "next"), None)
    return found


@asynchronous
async def test_ten_thousand_capabilities_are_pages_of_two_hundred_also_after_a_start(tmp_path: Path) -> None:
    names = [f"collection{number:05d}" for number in range(MANY)]
    server = Turncoat(tmp_path, *(tool(name, f"Look something up in {name}.") for name in names))
    file = write(tmp_path, {"up": server.connection}, [{"connection": "up"}], **GATEWAY)
    for _ in range(2):
        async with running(file) as (_, client):
            found = await pages(client)
            assert [len(page) for page in found] == [PAGE] * (MANY // PAGE)
            assert [one for page in found for one in page] == [f"up.{name}" for name in names]
            answer = await client.call_tool("gateway.search", {"query": names[-1]})
            assert answer["structuredContent"]["results"][0]["item"]["id"] == f"up.{names[-1]}"
            assert len(await client.list_tools()) == 7
    assert server.starts == 1
