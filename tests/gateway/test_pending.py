"""The catalog and an unknown id say which upstream servers are connecting or down, to callers that may use them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.hubs import call_structured, using
from tests.gateway.importers import Turncoat, imports_of, running, tool, write
from tests.protocol.conftest import asynchronous

DOWN = {"kind": "mcp", "command": "/nowhere/secret-server", "env": {"TOKEN": "correct-horse-battery"}}
SILENT = {"kind": "mcp", "command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("gateway.describe", {"id": "github.push"}),
    ("workflow.start", {"definitionId": "github.push", "input": {}}),
    ("workflow.start", {"definitionId": "proxy_default", "input": {"capability": "github.push"}}),
    ("workflow.explain", {"definitionId": "github.push"}),
    ("workflow.explain", {"definitionId": "proxy_default", "transition": "github.push"}),
]


@asynchronous
async def test_servers_that_are_connecting_or_down_are_named(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"github": DOWN, "slow": SILENT},
        [{"connection": "github"}, {"connection": "slow"}],
        server={"name": "demo", "surface": "both"},
    )
    async with running(file, settled=False) as (hub, client):
        source = imports_of(hub)._sources["github"]
        await source.refresh.was_tried.wait()
        (down, slow) = (await call_structured(client, "gateway.home"))["pending"]
        assert (down["connection"], down["status"]) == ("github", "down")
        assert slow == {"connection": "slow", "status": "connecting"}
        for name, arguments in ASKED:
            error = (await call_structured(client, name, **arguments))["error"]
            assert error["code"] == "UNKNOWN_ID"
            assert [one["connection"] for one in error["pending"]] == ["github", "slow"]
            assert "/nowhere" not in str(error) and "horse" not in str(error)


@asynchronous
async def test_servers_that_answer_are_not_pending(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("show"))
    more = {"server": {"name": "demo", "surface": "both"}}
    async with running(write(tmp_path, {"up": server.connection}, [{"connection": "up"}], **more)) as (_, client):
        assert "pending" not in await call_structured(client, "gateway.home")
        assert "pending" not in (await call_structured(client, "gateway.describe", id="up.hide"))["error"]


@pytest.mark.parametrize("hide", [True, False])
@asynchronous
async def test_a_server_whose_tools_a_caller_may_not_use_is_not_named(tmp_path: Path, hide: bool) -> None:
    rule = {"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": "git."}, "hide": hide}
    more = {"server": {"name": "demo", "surface": "both"}, "policies": [rule]}
    file = write(tmp_path, {"github": DOWN}, [{"connection": "github", "prefix": "git"}], **more)
    async with running(file, settled=False) as (_, client):
        assert "pending" not in await call_structured(client, "gateway.home")
        assert "pending" not in (await call_structured(client, "gateway.describe", id="git.push"))["error"]


@asynchronous
async def test_a_capability_started_as_a_workflow_is_answered_with_the_right_start(tmp_path: Path) -> None:
    text = """
    proxy:
      expose:
        - name: time.now
          inputSchema: {type: object, properties: {zone: {type: string}}}
          executor: {kind: noop}
    """
    async with using(tmp_path, text) as (_, client):
        for given in ({}, {"zone": "Asia/Tokyo"}):
            refused = await call_structured(client, "workflow.start", definitionId="time.now", input=given)
            assert (refused["error"]["code"], refused["error"]["nearest"]) == ("UNKNOWN_ID", ["time.now"])
            link = refused["links"][0]
            wanted = {"capability": "time.now"} | ({"arguments": given} if given else {})
            assert link["args"] == {"definitionId": "proxy_default", "input": wanted}
            started = await call_structured(client, link["method"], **link["args"])
            assert started["state"] == "ready"


@asynchronous
async def test_arguments_that_an_upstream_would_refuse_leave_no_instance(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    server = Turncoat(tmp_path, {**tool("send"), "inputSchema": schema})
    more = {"server": {"name": "demo", "surface": "both"}}
    async with running(write(tmp_path, {"up": server.connection}, [{"connection": "up"}], **more)) as (hub, client):
        given = {"capability": "up.send", "arguments": {"to": 3}}
        refused = await call_structured(client, "workflow.start", definitionId="proxy_default", input=given)
        assert refused["error"]["code"] == "INPUT_SCHEMA_VIOLATION"
        assert "workflowId" not in refused
        assert (await hub.store.counts())["instances"] == 0
