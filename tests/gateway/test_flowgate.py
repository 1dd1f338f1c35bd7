"""Configuration files of mcp-flowgate load unchanged, keep their meaning, and run."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.gateway.hubs import call_structured, called
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.capabilities.principals import Principal
from waypost.config import load
from waypost.runtime.assembly import check
from waypost.testing import TestClient, connect

FILES = Path(__file__).parent / "flowgate"
ANN = Principal("ann", ("human", "reader"), ("south.read",))
NO_EFFECT = {
    "proxy.yaml": [],
    "imports.yaml": ["audit.sink", "discovery"],
    "tenants.yaml": [],
    "publish.yaml": ["workflows.publish.blackboard"],
    "files.yaml": ["audit.path", "audit.rotation", "store.kind", "workflows.change.states.planning.delegate"],
}


@asynccontextmanager
async def serving(name: str, folder: Path) -> AsyncIterator[tuple[Hub, TestClient]]:
    """A hub from one of the unchanged files, and a client of it."""
    hub = Hub.from_config(Path(shutil.copy(FILES / name, folder)))
    try:
        async with connect(hub) as client:
            yield hub, client
    finally:
        await hub.stop()


def test_every_file_is_tested() -> None:
    assert {file.name for file in FILES.iterdir()} == set(NO_EFFECT)


@pytest.mark.parametrize("name", NO_EFFECT)
def test_a_file_loads_unchanged_and_settings_without_effect_are_warnings(name: str) -> None:
    found = check(FILES / name)
    assert [str(one) for one in found if one.severity == "error"] == []
    assert sorted(one.key for one in found if one.code == "CFG064") == NO_EFFECT[name]


@pytest.mark.parametrize(
    ("name", "sink", "url"),
    [
        ("proxy.yaml", "stderr", "sqlite:///waypost.db"),
        ("imports.yaml", "none", "sqlite:///waypost.db"),
        ("publish.yaml", "stderr", "sqlite://"),
        ("files.yaml", "file", "sqlite:///waypost.db"),
    ],
)
def test_the_sink_and_the_store_of_a_file_are_translated(name: str, sink: str, url: str) -> None:
    config = load(FILES / name).config
    assert (config.version, config.audit.sink, config.store.url) == ("1", sink, url)


@asynchronous
async def test_a_command_of_a_connection_runs_behind_the_gateway(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("one two three\n")
    async with serving("proxy.yaml", tmp_path) as (_, client):
        found = await call_structured(client, "gateway.search", query="count words")
        link = found["results"][0]["item"]["links"][0]
        given = {**link["args"]["input"], "arguments": {"file": str(words)}}
        answer = await call_structured(client, "workflow.start", **{**link["args"], "input": given})
        assert answer["context"]["lastResult"]["stdout"].split()[0] == "3"


@asynchronous
async def test_each_tenant_uses_its_own_connection(tmp_path: Path) -> None:
    async with serving("tenants.yaml", tmp_path) as (hub, _):
        for place in ("north", "south"):
            answer = await called(hub, f"{place}.read", ANN, query="q")
            assert answer.structured["stdout"] == f"--host {place}.internal -c q\n"
        assert (await called(hub, "south.read", Principal("bob", ("reader",)), query="q")).is_error
        assert (await called(hub, "south.read", Principal("eve", (), ("south.read",)), query="q")).is_error


@asynchronous
async def test_a_governed_workflow_continues_after_an_approval(tmp_path: Path) -> None:
    async with serving("publish.yaml", tmp_path) as (hub, client):
        here = await call_structured(client, "workflow.start", definitionId="publish", input={"topic": "tea"})
        (write,) = [link for link in here["links"] if link["args"].get("transition") == "write"]
        assert write["args"]["arguments"] == {"text": "tea"}
        here = await call_structured(client, write["method"], **write["args"])
        assert (here["state"], here["context"]["text"], here["context"]["rounds"]) == ("written", "tea", 1)
        at = {"workflowId": here["workflowId"], "expectedVersion": here["version"]}
        here = await call_structured(client, "workflow.submit", transition="ask", arguments={}, **at)
        assert here["status"] == "waiting_for_approval"
        await hub.workflows.engine.approvals.approve(here["approval"]["id"], ANN, "cli", "fine")
        here = await call_structured(client, "workflow.get", workflowId=here["workflowId"])
        at = {"workflowId": here["workflowId"], "expectedVersion": here["version"]}
        refused = await call_structured(client, "workflow.submit", transition="post", arguments={}, **at)
        assert refused["error"]["code"] == "GUARD_REJECTED"
        here = await call_structured(client, "workflow.submit", transition="go_live", arguments={}, **at)
        assert (here["state"], here["status"]) == ("live", "succeeded")
