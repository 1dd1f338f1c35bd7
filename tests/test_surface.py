"""What clients see of a hub: the seven tools of its gateway, everything, or both."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.contract.conftest import asynchronous
from tests.gateway.conftest import ERAS, agent, eras, office
from waypost import Hub
from waypost.api.metrics import collect_metrics
from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.capabilities.principals import ANONYMOUS

OWN = {"mail.send", "skill:count", "workflow:release"}
FOUR = {name for name in GATEWAY_TOOLS if name.startswith("workflow.")}
LISTED: dict[str, set[str]] = {"gateway": set(GATEWAY_TOOLS), "full": OWN | FOUR, "both": OWN | GATEWAY_TOOLS}
TOOLS = '''\
from waypost import Toolkit, tool


class Kit(Toolkit):
    """Tools."""

    @tool(description="Add two numbers")
    async def add(self, a: float, b: float) -> float:
        return a + b
'''


async def listed(hub: Hub, version: str = ERAS[-1]) -> set[str]:
    async with agent(hub, version) as a:
        return {tool["name"] for tool in await a.client.list_tools()}


@eras
@pytest.mark.parametrize("surface", LISTED)
@asynchronous
async def test_a_surface_decides_which_tools_are_listed(surface: str, version: str) -> None:
    assert await listed(office(surface=surface), version) == LISTED[surface]


@asynchronous
async def test_a_hub_in_python_lists_every_tool_by_default() -> None:
    hub = Hub("plain", version="1")
    hub.tool(name="add")(lambda: "x")
    assert await listed(hub) == {"add"}


@pytest.mark.parametrize(
    ("server", "names"),
    [
        ("", set(GATEWAY_TOOLS)),
        ("surface: gateway", set(GATEWAY_TOOLS)),
        ("surface: full", {"add"}),
        ("surface: both", {"add"} | GATEWAY_TOOLS),
    ],
)
@eras
@asynchronous
async def test_a_configuration_file_lists_the_seven_by_default(
    server: str, names: set[str], version: str, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "waypost.yaml").write_text(f"server: {{{server}}}\ntoolkits: [./tools.py]\n")
    hub = Hub.from_config(tmp_path / "waypost.yaml")
    async with agent(hub, version) as a:
        assert {tool["name"] for tool in await a.client.list_tools()} == names
        assert (await a.client.call_tool("add", {"a": 1, "b": 2})).text == "3.0"
        if names >= GATEWAY_TOOLS:
            assert await a.found("add two numbers") == ["add"]


@asynchronous
async def test_a_file_that_is_read_again_leaves_the_seven_and_is_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "waypost.yaml").write_text("toolkits: [./tools.py]\n")
    hub = Hub.from_config(tmp_path / "waypost.yaml")
    async with agent(hub, ERAS[0]) as a:
        (tmp_path / "tools.py").write_text(TOOLS.replace("add", "subtract").replace("Add", "Subtract"))
        assert await hub.reload()
        assert await a.found("") == ["subtract"]
        assert {tool["name"] for tool in await a.client.list_tools()} == GATEWAY_TOOLS
        await a.client.refute_notification("tools/list_changed")


@pytest.mark.parametrize(("surface", "tells"), [("gateway", False), ("full", True), ("both", True)])
@asynchronous
async def test_a_changed_tool_is_notified_only_on_surfaces_that_list_it(surface: str, tells: bool) -> None:
    hub = office(surface=surface)
    async with agent(hub, ERAS[0]) as a:
        hub.tool(name="newcomer")(lambda: "x")
        hub.prompt(name="another")(lambda: "x")
        await a.client.assert_notification("prompts/list_changed")
        if tells:
            await a.client.assert_notification("tools/list_changed")
        await a.client.refute_notification("tools/list_changed")


@pytest.mark.parametrize("surface", LISTED)
def test_metrics_count_the_tools_that_are_listed(surface: str) -> None:
    hub = office(surface=surface)

    async def scenario() -> None:
        async with agent(hub) as a:
            answer = await collect_metrics(hub.runtime, hub.core.pipeline.counters, ANONYMOUS)
            assert answer.mcp.tools_registered == len(await a.client.list_tools()) == len(LISTED[surface])

    asyncio.run(scenario())


@eras
@asynchronous
async def test_portable_names_are_published_and_both_forms_are_taken(version: str) -> None:
    async with agent(office(names="portable"), version) as a:
        tools = await a.client.list_tools()
        assert {tool["name"] for tool in tools} == {name.replace(".", "_") for name in GATEWAY_TOOLS}
        assert {tool["title"] for tool in tools} == GATEWAY_TOOLS
        plain, portable = [await a.client.call_tool(name, {}) for name in ("gateway.home", "gateway_home")]
        assert json.loads(plain.text) == json.loads(portable.text)
