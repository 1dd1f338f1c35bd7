"""Names: the hub's own, and the forms in which those of tools are published."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.hub.samples import ERAS, Arithmetic, empty, names
from waypost import DefinitionError, Hub
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


@pytest.mark.parametrize("version", ERAS)
def test_canonical_names_are_published_as_they_are_and_both_forms_are_accepted(version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert "maths.power" in names(await client.list_tools())
            for name in ("maths_power", "maths.power"):
                assert (await client.call_tool(name, {"a": 2, "b": 5})).structured == {"result": 32}

    asyncio.run(scenario())
