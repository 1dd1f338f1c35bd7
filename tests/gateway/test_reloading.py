"""After a reload, clients get one notification for each list that changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateway.hubs import HEAD, using, write
from tests.gateway.importers import Turncoat, tool
from tests.protocol.conftest import asynchronous, until
from waypost.capabilities.capability import Kind
from waypost.capabilities.registry import Change
from waypost.wire.versions import LATEST_LEGACY

OFFERS = """\
proxy: {expose: [{name: mail.send}]}
prompts: {greet: {template: Hello}}
"""
HIDING = """\
policies:
  - {name: quiet, type: mcp_restriction, config: {tool_pattern: PATTERN}, hide: true}
"""


@pytest.mark.parametrize(
    ("surface", "pattern", "answer"),
    [
        ("gateway", "mail", []),
        ("gateway", "gateway", ["tools"]),
        ("gateway", "greet", ["prompts"]),
        ("both", "mail", ["tools"]),
        ("full", "mail", ["tools"]),
        ("full", "nothing", []),
    ],
)
@asynchronous
async def test_a_hiding_rule_notifies_clients_only_of_the_lists_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surface: str, pattern: str, answer: list[str]
) -> None:
    monkeypatch.setattr("tests.gateway.hubs.HEAD", HEAD.replace("surface: both", f"surface: {surface}"))
    async with using(tmp_path, OFFERS, LATEST_LEGACY) as (hub, client):
        write(tmp_path, OFFERS + HIDING.replace("PATTERN", pattern))
        assert await hub.reload()
        for kind in ("tools", "prompts", "resources"):
            if kind in answer:
                await client.assert_notification(f"{kind}/list_changed")
            await client.refute_notification(f"{kind}/list_changed")


def imported(server: Turncoat, prefix: str, exposed: str) -> str:
    proxy = {"import": [{"connection": "other", "prefix": prefix}], "expose": [{"name": exposed}]}
    flow = {exposed: {"initialState": "a", "states": {"a": {"terminal": True}}}}
    return json.dumps({"connections": {"other": server.connection}, "proxy": proxy, "workflows": flow})[1:-1]


@asynchronous
async def test_new_imports_tools_and_workflows_of_a_file_are_one_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = '"server": {"name": "demo", "surface": "full"}, "store": {"url": "sqlite://"}, "audit": {"sink": "none"}'
    monkeypatch.setattr("tests.gateway.hubs.HEAD", f"{{{settings}, ")
    server = Turncoat(tmp_path, tool("list"))
    async with using(tmp_path, imported(server, "one", "first") + "}") as (hub, _):
        await until(lambda: "one.list" in hub.registry[Kind.TOOL])
        changes: list[Change] = []
        hub.registry.subscribe(changes.append)
        write(tmp_path, imported(server, "two", "second") + "}")
        assert await hub.reload()
        assert {"two.list", "second", "workflow:second"} <= {row.id for row in hub.registry[Kind.TOOL]}
        assert "one.list" not in hub.registry[Kind.TOOL]
        assert [change.kinds for change in changes] == [{Kind.TOOL}]
