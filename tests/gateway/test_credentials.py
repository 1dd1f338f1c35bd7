"""Imported tools of an upstream with a credential for each user, called directly and by workflows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gateway.hubs import called
from tests.gateway.importers import imports_of, names, running, write
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import served
from tests.upstreams.people import bearer, guarded
from waypost import Hub
from waypost.capabilities.principals import Principal
from waypost.upstreams.pool import HUB

ADA, BOB = Principal("ada"), Principal("bob")


async def log_in(hub: Hub, *principals: str) -> None:
    """Store the credentials of users."""
    for principal in principals:
        await hub.runtime.vault.put(principal, "far", bearer(principal))


def configured(folder: Path, url: str) -> Path:
    """Write a configuration that imports from such a server and exposes a tool that calls it."""
    call: dict[str, Any] = {"kind": "mcp", "connection": "far", "tool": "who"}
    proxy = {"import": [{"connection": "far"}], "expose": [{"name": "mine", "executor": call}]}
    far = {"kind": "mcp", "url": url, "credentials": "user", "headers": bearer(HUB)}
    return write(folder, {"far": far}, [], proxy=proxy)


@asynchronous
async def test_an_imported_tool_is_called_with_the_credential_of_the_caller(tmp_path: Path) -> None:
    async with served(guarded()) as url, running(configured(tmp_path, url)) as (hub, client):
        assert "far.who" in await names(client)
        await log_in(hub, "ada")
        assert (await called(hub, "far.who", ADA)).text == "ada"
        assert "needs a credential of bob" in (await called(hub, "far.who", BOB)).text
        await log_in(hub, "bob")
        assert (await called(hub, "far.who", BOB)).text == "bob"
        assert imports_of(hub).get_row("far").state == "running"


@asynchronous
async def test_an_executor_uses_the_credential_of_the_caller(tmp_path: Path) -> None:
    async with served(guarded()) as url, running(configured(tmp_path, url)) as (hub, _):
        await log_in(hub, "ada")
        assert "ada" in (await called(hub, "mine", ADA)).text
        refused = await called(hub, "mine", BOB)
        assert refused.is_error
        assert "needs a credential of bob" in refused.text


@asynchronous
async def test_a_credential_survives_a_restart_of_the_hub(tmp_path: Path) -> None:
    async with served(guarded()) as url:
        async with running(configured(tmp_path, url)) as (hub, _):
            await log_in(hub, "ada")
        async with running(configured(tmp_path, url)) as (hub, _):
            assert (await called(hub, "far.who", ADA)).text == "ada"
