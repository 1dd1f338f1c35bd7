"""`check` compares tool names with the stored lists of upstreams, and workflows get the class of a tool's failure."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.gateway.hubs import call_structured, using, write
from tests.gateway.importers import Turncoat, tool
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.conftest import asynchronous, until
from waypost import Hub
from waypost.capabilities.capability import Kind
from waypost.config import Finding, load
from waypost.config.models import McpConnection
from waypost.imports.sources import Manifest, digest_connection
from waypost.runtime.assembly import check
from waypost.stores import urls
from waypost.stores.store import Store
from waypost.testing import connect


def configuration(server: Turncoat, called: str, **more: Any) -> dict[str, Any]:
    go = {"target": "b", "executor": {"kind": "capability", "capability": called}}
    return {
        "server": {"name": "demo", "surface": "full"},
        "audit": {"sink": "none"},
        "connections": {"other": server.connection},
        "proxy": {"import": [{"connection": "other", "prefix": "far"}]},
        "workflows": {
            "w": {
                "initialState": "a",
                "states": {"a": {"transitions": {"go": go}}, "b": {"terminal": True}},
            },
            "s": {"steps": [{"name": "one", "capability": called}]},
        },
        **more,
    }


def found(folder: Path, settings: dict[str, Any]) -> list[Finding]:
    file = folder / "waypost.yaml"
    file.write_text(json.dumps(settings))
    return [one for one in check(file) if one.code in ("CFG074", "WF012")]


@asynchronous
async def ask(file: Path) -> None:
    """Run a hub once, so that it stores the tools of its upstreams."""
    hub = Hub.from_config(file)
    try:
        async with connect(hub):
            await until(lambda: "far.list" in hub.registry[Kind.TOOL])
            await until(lambda: (file.parent / ".waypost" / "waypost.db").exists())
    finally:
        await hub.stop()


@pytest.fixture
def server(tmp_path: Path) -> Turncoat:
    return Turncoat(tmp_path, tool("list"), tool("add"))


def test_an_upstream_that_was_never_listed_gives_no_findings(tmp_path: Path, server: Turncoat) -> None:
    assert found(tmp_path, configuration(server, "far.lsit")) == []
    assert not (tmp_path / ".waypost").exists()


def test_a_tool_that_an_upstream_did_not_list_is_a_warning_with_a_suggestion(tmp_path: Path, server: Turncoat) -> None:
    assert found(tmp_path, configuration(server, "far.list")) == []
    ask(tmp_path / "waypost.yaml")
    assert found(tmp_path, configuration(server, "far.list")) == []
    transition, step = found(tmp_path, configuration(server, "far.lsit"))
    assert (transition.code, transition.severity) == ("CFG074", "warning")
    assert transition.key == "workflows.w.states.a.transitions.go.executor.capability"
    assert transition.message == "`other` had no such tool when it was last asked; did you mean `far.list`?"
    assert step.key == "workflows.s.steps[0].capability"
    elsewhere = configuration(server, "far.lsit", connections={"other": {**server.connection, "args": ["-x"]}})
    assert found(tmp_path, elsewhere) == []


@pytest.mark.parametrize(
    ("command", "error_class"), [("/no/such/program", "connection_error"), ("false", "permanent_error")]
)
@asynchronous
async def test_a_workflow_gets_the_error_class_of_a_failed_tool(tmp_path: Path, command: str, error_class: str) -> None:
    text = f"""\
        proxy: {{expose: [{{name: work, executor: {{kind: cli, command: "{command}"}}}}]}}
        workflows:
          w:
            initialState: a
            states:
              a: {{transitions: {{go: {{target: b, executor: {{kind: capability, capability: work}}}}}}}}
              b: {{terminal: true}}
    """
    write(tmp_path, text)
    async with using(tmp_path, text) as (_, client):
        here = await call_structured(client, "workflow.start", definitionId="w", input={})
        at = {"workflowId": here["workflowId"], "expectedVersion": here["version"]}
        answer = await call_structured(client, "workflow.submit", transition="go", arguments={}, **at)
        assert (answer["error"]["code"], answer["error"]["errorClass"]) == ("EXECUTOR_FAILED", error_class)


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_an_unreadable_store_gives_no_findings(tmp_path: Path, server: Turncoat, content: bytes) -> None:
    (tmp_path / ".waypost").mkdir()
    (tmp_path / ".waypost" / "waypost.db").write_bytes(content)
    assert found(tmp_path, configuration(server, "far.lsit")) == []


@pytest.mark.parametrize("url", ["sqlite://", "postgresql://nobody@127.0.0.1:9/none"])
def test_a_store_in_memory_or_out_of_reach_gives_no_findings(tmp_path: Path, server: Turncoat, url: str) -> None:
    assert found(tmp_path, configuration(server, "far.lsit", store={"url": url})) == []


def test_check_uses_the_lists_that_a_hub_stored_in_postgresql(
    tmp_path: Path, server: Turncoat, postgres_url: str
) -> None:
    settings = configuration(server, "far.lsit", store={"url": postgres_url})
    assert found(tmp_path, settings) == []
    connection = load(tmp_path / "waypost.yaml").config.connections["other"]
    assert isinstance(connection, McpConnection)
    asyncio.run(keep(postgres_url, Manifest(digest_connection(connection), [{"name": "list"}], 0.0)))

    assert [one.code for one in found(tmp_path, settings)] == ["CFG074", "CFG074"]


async def keep(url: str, manifest: Manifest) -> None:
    """Store the tools of the connection as a hub does."""
    store = Store(urls.create_database(url, Path()))
    await store.state.put("manifest", "other", msgspec.to_builtins(manifest))
    await store.close()


def test_a_misspelt_tool_of_an_executor_or_an_import_is_found(tmp_path: Path, server: Turncoat) -> None:
    settings = configuration(server, "far.list")
    (tmp_path / "waypost.yaml").write_text(json.dumps(settings))
    ask(tmp_path / "waypost.yaml")
    settings["capabilities"] = {"c": {"executor": {"kind": "mcp", "connection": "other", "tool": "lsit"}}}
    settings["proxy"]["import"][0]["exclude"] = ["ad"]
    assert [(one.key, one.message.partition("; ")[2]) for one in found(tmp_path, settings)] == [
        ("capabilities.c.executor.tool", "did you mean `list`?"),
        ("proxy.import[0].exclude[0]", "did you mean `add`?"),
    ]


def test_an_argument_that_is_in_no_schema_is_found(tmp_path: Path) -> None:
    executor = {"kind": "cli", "command": "df", "args": ["$.arguments.path"], "allowOptions": True}
    path = {"type": "object", "properties": {"pth": {"type": "string"}}, "additionalProperties": False}
    exposed = [{"name": "a", "executor": executor}, {"name": "b", "inputSchema": path, "executor": executor}]
    (tmp_path / "waypost.yaml").write_text(json.dumps({"proxy": {"expose": exposed}}))
    assert [(one.key, one.code, one.message) for one in check(tmp_path / "waypost.yaml")] == [
        (
            "proxy.expose[0].executor.args[0]",
            "WF063",
            "`$.arguments.path` does not exist: without `inputSchema` the tool has no arguments; add it",
        ),
        (
            "proxy.expose[1].executor.args[0]",
            "WF054",
            "`$.arguments.path` does not exist; did you mean `pth`?",
        ),
    ]
