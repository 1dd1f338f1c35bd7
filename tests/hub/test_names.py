"""Names: the hub's own, and the forms in which those of tools are published."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.hub.samples import ERAS, Arithmetic, empty, names
from waypost import DefinitionError, Hub, RemoteError
from waypost.testing import connect
from waypost.wire.versions import ALL, V2026_07_28


@pytest.mark.parametrize(
    ("given", "missing"), [({}, "name"), ({"version": "1"}, "name"), ({"name": "x"}, "version"), ({"name": ""}, "name")]
)
def test_a_hub_needs_a_name_and_a_version(given: dict[str, Any], missing: str) -> None:
    with pytest.raises(DefinitionError, match=f"needs a {missing}"):
        Hub(**given)


@pytest.mark.parametrize("version", ALL)
def test_clients_of_every_version_learn_name_and_version(version: str) -> None:
    async def scenario() -> None:
        async with connect(Hub("shop", version="2.1", title="The shop"), version) as client:
            assert (client.server_info.name, client.server_info.version) == ("shop", "2.1")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_portable_names_are_published_and_both_forms_are_accepted(version: str) -> None:
    hub = empty(names="portable").add(Arithmetic)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            rows = {row.name: row for row in await client.list_tools()}
            assert list(rows) == ["add", "maths_power", "multiply", "subtract"]
            if version == V2026_07_28:
                assert rows["maths_power"].title == "maths.power"
            for name in ("maths_power", "maths.power"):
                assert (await client.call_tool(name, {"a": 2, "b": 5})).structured == {"result": 32}

    asyncio.run(scenario())


async def list_as(hub: Hub, client: str, version: str) -> list[str]:
    """The names of the tools that a client of a name gets, in the order of the list."""
    async with connect(hub, version, name=client) as connected:
        return names(await connected.list_tools())


@pytest.mark.parametrize("version", ERAS)
def test_a_client_that_cannot_use_canonical_names_gets_portable_ones_by_default(version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        for client in ("claude-code", "opencode", "claude-ai (via mcp-remote 0.1.37)"):
            assert "maths_power" in await list_as(hub, client, version), client
        for client in ("codex-mcp-client", "an-unknown-client", "my-claude-code"):
            assert "maths.power" in await list_as(hub, client, version), client

    asyncio.run(scenario())


@pytest.mark.parametrize(("setting", "name"), [("canonical", "maths.power"), ("portable", "maths_power")])
def test_a_setting_other_than_auto_holds_for_every_client(setting: str, name: str) -> None:
    hub = empty(names=setting).add(Arithmetic)

    async def scenario() -> None:
        for client in ("claude-code", "an-unknown-client"):
            assert name in await list_as(hub, client, V2026_07_28), client

    asyncio.run(scenario())


def test_an_unknown_name_gets_a_suggestion_that_the_client_knows() -> None:
    hub = empty().add(Arithmetic)

    async def suggest(client: str) -> str:
        async with connect(hub, name=client) as connected:
            with pytest.raises(RemoteError) as caught:
                await connected.call_tool("maths_powr", {})
            return str(caught.value)

    assert '"maths_power"' in asyncio.run(suggest("opencode"))
    assert '"maths.power"' in asyncio.run(suggest("codex-mcp-client"))


@pytest.mark.parametrize("version", ERAS)
def test_canonical_names_are_published_as_they_are_and_both_forms_are_accepted(version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert "maths.power" in names(await client.list_tools())
            for name in ("maths_power", "maths.power"):
                assert (await client.call_tool(name, {"a": 2, "b": 5})).structured == {"result": 32}

    asyncio.run(scenario())
