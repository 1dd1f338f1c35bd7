"""The capabilities that a hub declares, and the methods that come with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.hub.samples import ERAS, Greet, Readme, Shout, empty, names
from waypost import Hub, RemoteError
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY


def declared(hub: Hub, version: str) -> dict[str, Any]:
    async def scenario() -> dict[str, Any]:
        async with connect(hub, version) as client:
            return dict((await client.open())["capabilities"])

    return asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_capabilities_follow_from_the_registered_kinds(version: str) -> None:
    hub = empty().add(Shout)
    assert declared(hub, version).keys() == {"tools", "logging"}

    hub.add(Greet).add(Readme)
    assert declared(hub, version) == {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "logging": {},
        "completions": {},
    }


@pytest.mark.parametrize("version", ERAS)
def test_configured_capabilities_are_declared_as_they_are(version: str) -> None:
    given: dict[str, Any] = {"tools": {}, "resources": {"subscribe": True}, "prompts": {"listChanged": True}}

    assert declared(empty(capabilities=given), version) == given


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "resources/templates/list"])
def test_methods_of_undeclared_capabilities_do_not_exist(method: str, version: str) -> None:
    async def scenario(hub: Hub) -> None:
        async with connect(hub, version) as client:
            with pytest.raises(RemoteError, match=method) as caught:
                await client.request(method)
            assert caught.value.code == -32601

    asyncio.run(scenario(empty().add(Shout)))
    asyncio.run(scenario(empty(capabilities={"tools": {}}).add(Greet).add(Readme)))


@pytest.mark.parametrize("version", ERAS)
def test_a_capability_appears_with_its_first_prompt(version: str) -> None:
    hub = empty()

    async def scenario() -> None:
        async with connect(hub, version) as client:
            with pytest.raises(RemoteError):
                await client.list_prompts()
            hub.add(Greet)
            assert names(await client.list_prompts()) == ["greet"]

    asyncio.run(scenario())


def test_a_hub_does_not_send_list_changes_that_it_does_not_declare() -> None:
    hub = empty(capabilities={"tools": {}, "prompts": {"listChanged": True}})

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as client:
            hub.add(Shout).add(Greet)
            await client.assert_notification("prompts/list_changed")
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())
