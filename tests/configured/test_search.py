"""The section `search`, and its settings after a reload."""

from __future__ import annotations

from typing import Any

from tests.configured.conftest import KIT, Folder, using
from tests.protocol.conftest import asynchronous
from waypost.testing import TestClient

HEAD = 'version: "1"\nserver: {name: desk, surface: both}\ntoolkits: [./tools.py]\n'
SENTENCE = "please say a word to me"


async def found(client: TestClient, query: str) -> Any:
    return (await client.call_tool("gateway.search", {"query": query})).structured


@asynchronous
async def test_another_ranking_applies_after_a_reload(folder: Folder) -> None:
    folder.write("waypost.yaml", HEAD + "search: {ranking: weighted}\n")
    hub = folder.hub()
    async with using(hub) as client:
        assert (await found(client, SENTENCE))["ranking"] == "weighted"
        for ranking, named in (("hybrid", "hybrid"), ("auto", "hybrid"), ("weighted", "weighted")):
            folder.write("waypost.yaml", HEAD + f"search: {{ranking: {ranking}}}\n")
            assert await hub.reload()
            answer = await found(client, SENTENCE)
            assert (answer["ranking"], answer["results"][0]["item"]["id"]) == (named, "speak")
        folder.write("tools.py", KIT.replace("speak", "shout"))
        assert await hub.reload()
        assert (await found(client, "word"))["results"][0]["item"]["id"] == "shout"
