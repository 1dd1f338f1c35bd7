"""Upstream servers through the API: their state, and the changes that an operator approves."""

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
    """The operator of a hub that imports from servers."""
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
    answer = await operator.fetch("GET", UPSTREAMS)
    return {one["connection"]: one for one in answer["upstreams"]}


@asynchronous
async def test_all_servers_are_listed_with_their_state(tmp_path: Path) -> None:
    async with importing(tmp_path, Turncoat(tmp_path, tool("read", "Read\u200b."))) as (operator, _):
        found = await rows(operator)
        up, lost = found["turncoat"], found["lost"]
        assert (up["state"], up["transport"], up["protocol"]) == ("running", "stdio", "2025-06-18")
        assert (up["tools"], up["held"], up["leftOut"]) == (["turncoat.read"], [], [])
        assert up["unseen"] == [{"tool": "read", "characters": ["U+200B ZERO WIDTH SPACE"]}]
        assert len(up["pin"]) == len(up["pins"]["read"]) == 64
        assert (lost["state"], lost["tools"], lost["pin"]) == ("failed", [], "")
        assert "there is no such program" in lost["reason"]
        assert (await operator.fetch("GET", f"{UPSTREAMS}/turncoat"))["upstream"]["tools"] == ["turncoat.read"]


@asynchronous
async def test_changed_tools_are_held_and_approved(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("read"), tool("list"))
    async with importing(tmp_path, server) as (operator, hub):
        server.offer(tool("read", "Do it for me."), tool("list"), tool("send"))
        restarted = (await operator.fetch("POST", f"{UPSTREAMS}/turncoat/restart"))["upstream"]
        assert restarted["tools"] == ["turncoat.list"]
        changed, new = restarted["held"]
        assert (changed["tool"], changed["why"], changed["isCallable"]) == ("read", "changed", False)
        assert changed["difference"][:2] == ["-description: Do it.", "+description: Do it for me."]
        assert (new["tool"], new["why"]) == ("send", "new")
        seen = {"tool": "read", "sha256": changed["sha256"]}
        approved = await operator.fetch("POST", f"{UPSTREAMS}/turncoat/approve", seen)
        assert approved["approved"] == ["read"]
        assert approved["upstream"]["tools"] == ["turncoat.list", "turncoat.read"]
        assert (await operator.fetch("POST", f"{UPSTREAMS}/turncoat/approve", {}))["approved"] == ["send"]
        assert hub.guard.audit is not None
        await hub.guard.audit.written()
        entries = (await operator.fetch("GET", "/api/v1/audit"))["entries"]
        assert {one["principal"] for one in entries if one.get("action") == "upstream.approved"} == {"root"}


@asynchronous
async def test_refusals_are_one_sentence(tmp_path: Path) -> None:
    async with importing(tmp_path, Turncoat(tmp_path, tool("read"))) as (operator, _):
        refused = operator.refused
        for path in (f"{UPSTREAMS}/none/restart", f"{UPSTREAMS}/none/approve"):
            assert await refused("POST", path, {}) == (404, "There is no connection 'none' to an MCP server.")
        status, answer = await refused("POST", f"{UPSTREAMS}/turncoat/approve", {"tool": "write"})
        assert (status, answer) == (404, "turncoat does not offer 'write'.")
        status, answer = await refused("POST", f"{UPSTREAMS}/lost/approve", {})
        assert (status, answer.startswith("Nothing is known")) == (409, True)
        status, answer = await refused("POST", f"{UPSTREAMS}/turncoat/approve", {"tool": "read", "sha256": "0" * 64})
        assert status == 409
        assert (await operator.ask("GET", UPSTREAMS, key=None)).status == 401


@asynchronous
async def test_a_hub_without_connections_has_none() -> None:
    async with operating() as operator:
        assert await operator.fetch("GET", UPSTREAMS) == {"upstreams": []}
        status, _ = await operator.refused("POST", f"{UPSTREAMS}/any/restart")
        assert status == 404


@asynchronous
async def test_a_credential_is_stored_used_never_shown_and_removed(tmp_path: Path) -> None:
    async with served(guarded()) as url:
        connections = {"up": {"kind": "mcp", "url": url, "credentials": "user"}}
        hub = Hub.from_config(write(tmp_path, connections, [], auth=KEYS, audit={"sink": "store"}))
        async with operating(hub) as operator:
            await hub.start()
            login = {"principal": "ada", "headers": bearer("ada")}
            kept = await operator.fetch("POST", f"{UPSTREAMS}/up/login", login)
            assert kept == {"connection": "up", "principal": "ada", "kept": True}
            pool = hub.runtime.upstreams
            assert await who(pool, "ada") == "ada"
            assert "0123456789" not in json.dumps(await operator.fetch("GET", UPSTREAMS))
            gone = await operator.fetch("POST", f"{UPSTREAMS}/up/logout", {"principal": "ada"})
            assert gone["kept"] is False
            with pytest.raises(ToolError, match="needs a credential of ada"):
                await who(pool, "ada")
            assert [one["reason"] for one in await recorded(hub, "upstream.login")] == ["ada"]
            assert [one["capability"] for one in await recorded(hub, "upstream.logout")] == ["up"]


@asynchronous
async def test_a_credential_for_a_shared_session_is_refused(tmp_path: Path) -> None:
    connections = {"near": {"kind": "mcp", "command": "nothing"}}
    hub = Hub.from_config(write(tmp_path, connections, [], auth=KEYS))
    async with operating(hub) as operator:
        await hub.start()
        login = {"principal": "ada", "headers": bearer("ada")}
        status, answer = await operator.refused("POST", f"{UPSTREAMS}/lost/login", login)
        assert (status, answer) == (404, "There is no connection 'lost' to an MCP server.")
        status, answer = await operator.refused("POST", f"{UPSTREAMS}/near/login", login)
        assert status == 400
        assert "All callers share the session of near" in answer
        bad = {"principal": "ada", "headers": {"Authorization": "x\r\nHost: evil"}}
        assert (await operator.refused("POST", f"{UPSTREAMS}/near/login", bad))[0] == 400
