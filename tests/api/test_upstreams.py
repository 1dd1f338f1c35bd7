"""Upstream servers through the API: how it goes with them, and what somebody approves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import ADMIN, Operator, operating
from tests.gateway.importers import Turncoat, recorded, tool, write
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import served
from tests.upstreams.people import bearer, guarded, who
from tests.upstreams.programs import nothing_left
from waypost import Hub, ToolError
from waypost.identity import digest

UPSTREAMS = "/api/v1/upstreams"
KEYS = {"keys": [{"id": "root", "hash": digest(ADMIN), "roles": ["admin"]}]}


@asynccontextmanager
async def importing(folder: Path, *servers: Turncoat) -> AsyncIterator[tuple[Operator, Hub]]:
    """Somebody who looks after a hub that imports from servers."""
    connections = {server.folder.name: server.connection for server in servers}
    connections["lost"] = {"kind": "mcp", "command": str(folder / "nothing")}
    imports = [{"connection": name} for name in connections]
    with nothing_left():
        hub = Hub.from_config(write(folder, connections, imports, auth=KEYS, audit={"sink": "store"}))
        async with operating(hub) as operator:
            await hub.start()
            assert hub.runtime.imports is not None
            await hub.runtime.imports.wait_until_listed()
            yield operator, hub


async def rows(operator: Operator) -> dict[str, Any]:
    """All servers by name."""
    told = await operator.told("GET", UPSTREAMS)
    return {one["connection"]: one for one in told["upstreams"]}


@asynchronous
async def test_all_servers_are_listed_with_how_it_goes_with_them(tmp_path: Path) -> None:
    async with importing(tmp_path, Turncoat(tmp_path, tool("read", "Read\u200b."))) as (operator, _):
        found = await rows(operator)
        up, lost = found["turncoat"], found["lost"]
        assert (up["state"], up["transport"], up["protocol"]) == ("running", "stdio", "2025-06-18")
        assert (up["tools"], up["held"], up["leftOut"]) == (["turncoat.read"], [], [])
        assert up["unseen"] == [{"tool": "read", "characters": ["U+200B ZERO WIDTH SPACE"]}]
        assert len(up["pin"]) == len(up["pins"]["read"]) == 64
        assert (lost["state"], lost["tools"], lost["pin"]) == ("failed", [], "")
        assert "there is no such program" in lost["reason"]
        assert (await operator.told("GET", f"{UPSTREAMS}/turncoat"))["upstream"]["tools"] == ["turncoat.read"]


@asynchronous
async def test_what_changed_is_shown_and_released(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("read"), tool("list"))
    async with importing(tmp_path, server) as (operator, hub):
        server.offer(tool("read", "Do it for me."), tool("list"), tool("send"))
        restarted = (await operator.told("POST", f"{UPSTREAMS}/turncoat/restart"))["upstream"]
        assert restarted["tools"] == ["turncoat.list"]
        changed, new = restarted["held"]
        assert (changed["tool"], changed["why"], changed["isCallable"]) == ("read", "changed", False)
        assert changed["difference"][:2] == ["-description: Do it.", "+description: Do it for me."]
        assert (new["tool"], new["why"]) == ("send", "new")
        seen = {"tool": "read", "sha256": changed["sha256"]}
        approved = await operator.told("POST", f"{UPSTREAMS}/turncoat/approve", seen)
        assert approved["approved"] == ["read"]
        assert approved["upstream"]["tools"] == ["turncoat.list", "turncoat.read"]
        assert (await operator.told("POST", f"{UPSTREAMS}/turncoat/approve", {}))["approved"] == ["send"]
        assert hub.guard.audit is not None
        await hub.guard.audit.written()
        entries = (await operator.told("GET", "/api/v1/audit"))["entries"]
        assert {one["principal"] for one in entries if one.get("action") == "upstream.approved"} == {"root"}


@asynchronous
async def test_refusals_are_one_sentence(tmp_path: Path) -> None:
    async with importing(tmp_path, Turncoat(tmp_path, tool("read"))) as (operator, _):
        refused = operator.refused
        for path in (f"{UPSTREAMS}/none/restart", f"{UPSTREAMS}/none/approve"):
            assert await refused("POST", path, {}) == (404, "There is no connection 'none' to an MCP server.")
        status, told = await refused("POST", f"{UPSTREAMS}/turncoat/approve", {"tool": "write"})
        assert (status, told) == (404, "turncoat does not offer 'write'.")
        status, told = await refused("POST", f"{UPSTREAMS}/lost/approve", {})
        assert (status, told.startswith("Nothing is known")) == (409, True)
        status, told = await refused("POST", f"{UPSTREAMS}/turncoat/approve", {"tool": "read", "sha256": "0" * 64})
        assert status == 409
        assert (await operator.ask("GET", UPSTREAMS, key=None)).status == 401


@asynchronous
async def test_a_hub_without_connections_has_none() -> None:
    async with operating() as operator:
        assert await operator.told("GET", UPSTREAMS) == {"upstreams": []}
        status, _ = await operator.refused("POST", f"{UPSTREAMS}/any/restart")
        assert status == 404


@asynchronous
async def test_a_credential_is_kept_used_never_shown_and_forgotten(tmp_path: Path) -> None:
    async with served(guarded()) as url:
        connections = {"up": {"kind": "mcp", "url": url, "credentials": "user"}}
        hub = Hub.from_config(write(tmp_path, connections, [], auth=KEYS, audit={"sink": "store"}))
        async with operating(hub) as operator:
            await hub.start()
            login = {"principal": "ada", "headers": bearer("ada")}
            kept = await operator.told("POST", f"{UPSTREAMS}/up/login", login)
            assert kept == {"connection": "up", "principal": "ada", "kept": True}
            pool = hub.runtime.upstreams
            assert await who(pool, "ada") == "ada"
            assert "0123456789" not in json.dumps(await operator.told("GET", UPSTREAMS))
            gone = await operator.told("POST", f"{UPSTREAMS}/up/logout", {"principal": "ada"})
            assert gone["kept"] is False
            with pytest.raises(ToolError, match="needs a credential of ada"):
                await who(pool, "ada")
            assert [one["reason"] for one in await recorded(hub, "upstream.login")] == ["ada"]
            assert [one["capability"] for one in await recorded(hub, "upstream.logout")] == ["up"]


@asynchronous
async def test_a_credential_that_nobody_would_use_is_refused(tmp_path: Path) -> None:
    connections = {"near": {"kind": "mcp", "command": "nothing"}}
    hub = Hub.from_config(write(tmp_path, connections, [], auth=KEYS))
    async with operating(hub) as operator:
        await hub.start()
        login = {"principal": "ada", "headers": bearer("ada")}
        status, told = await operator.refused("POST", f"{UPSTREAMS}/lost/login", login)
        assert (status, told) == (404, "There is no connection 'lost' to an MCP server.")
        status, told = await operator.refused("POST", f"{UPSTREAMS}/near/login", login)
        assert status == 400
        assert "All callers share the session of near" in told
        bad = {"principal": "ada", "headers": {"Authorization": "x\r\nHost: evil"}}
        assert (await operator.refused("POST", f"{UPSTREAMS}/near/login", bad))[0] == 400
