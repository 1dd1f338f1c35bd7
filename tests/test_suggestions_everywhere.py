"""Wherever a name is unknown, the nearest one that the caller may see is suggested, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import serving, waypost
from tests.protocol.conftest import asynchronous
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost import Hub
from waypost.config.models import Workflow
from waypost.errors import RemoteError
from waypost.kinds import convert
from waypost.policy.rules import Rule
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25, V2026_07_28

HIDES = Rule(name="h", type="allow_list", config={"allow": ["greet", "docs://readme", "add"]}, hide=True)
PROMPT = {"type": "ref/prompt", "name": "gret"}
ARGUMENT = {"name": "name", "value": "x"}
ASKED: list[tuple[str, dict[str, Any], str]] = [
    ("tools/call", {"name": "ad", "arguments": {}}, 'Unknown tool: ad; did you mean "add"?'),
    ("prompts/get", {"name": "gret"}, 'Unknown prompt: gret; did you mean "greet"?'),
    ("completion/complete", {"ref": PROMPT, "argument": ARGUMENT}, 'Unknown prompt: gret; did you mean "greet"?'),
    (
        "resources/read",
        {"uri": "docs://readm"},
        'Resource not found: docs://readm; did you mean "docs://readme"?',
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "docs://readm"}, "argument": ARGUMENT},
        'Resource not found: docs://readm; did you mean "docs://readme"?',
    ),
]


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_mcp_methods_suggest_only_names_that_the_caller_may_see(version: str) -> None:
    hub = Hub("h", version="1", policies=[HIDES])
    for name in ("add", "adds"):
        hub.tool(name=name)(lambda: "x")
    for name in ("greet", "grets"):
        hub.prompt(name=name)(lambda name="x": name)
    for uri in ("docs://readme", "docs://readmi"):
        hub.resource(uri, name=uri[-6:])(lambda: "x")
    async with connect(hub, version) as client:
        for method, params, sentence in ASKED:
            with pytest.raises(RemoteError) as caught:
                await client.request(method, params)
            assert caught.value.message == sentence


@asynchronous
async def test_workers_get_the_nearest_function_that_they_may_see() -> None:
    rule = Rule(name="h", type="allow_list", config={"allow": ["mail__send", "worker*"]}, hide=True)
    hub = hub_for_workers(policies=[rule])
    async with at_work(hub), wired(hub) as wire:
        await wire.offer("mail::send", "mail::sends")
        error = await wire.error("mail::sent", {})

    assert error["message"] == "Function mail::sent not found in namespace default; did you mean 'mail::send'?"


@asynchronous
async def test_a_tool_that_is_started_as_a_workflow_is_linked_without_a_gateway_too() -> None:
    hub = Hub("h", version="1", surface="full")
    hub.tool(name="time.now")(lambda: "now")
    hub.workflow("w", convert({"initialState": "a", "states": {"a": {"terminal": True}}}, Workflow))
    async with connect(hub) as client:
        answer = (await client.call_tool("workflow.start", {"definitionId": "time.now", "input": {}})).structured

    assert answer["error"]["message"] == "'time.now' is a tool, not a workflow; call it by its name."
    assert answer["links"][0] == {"rel": "call", "method": "time.now", "args": {}}


SHELL = [
    (["keys", "revoke", "deplo"], "There is no key for deplo that could be revoked; did you mean 'deploy'?"),
    (["skills", "load", "helo.py"], "There is no file helo.py in the skills directory; did you mean 'hello.py'?"),
    (["skills", "docs", "remove", "gide"], 'Skill not found: gide; did you mean "guide"?'),
    (["upstreams", "approve", "tme"], "There is no connection 'tme' to an MCP server; did you mean 'time'?"),
    (
        ["policy", "test", "--principal", "anonymous", "--capability", "skill:helo"],
        "Unknown skill: helo; did you mean 'skill:hello'?",
    ),
    (
        ["policy", "test", "--principal", "deplo", "--capability", "skill:hello"],
        "There is no principal deplo; did you mean 'deploy'?",
    ),
]


def test_commands_on_a_running_hub_suggest_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "hello.py").write_text("def run(args, ctx):\n    return {}\n")
    (tmp_path / "guide.md").write_text("# Guide\n\nHow to.\n")
    settings = {
        "skills": {"dynamic": "./skills", "core": []},
        "connections": {"time": {"kind": "mcp", "url": "http://127.0.0.1:9/mcp"}},
    }
    (tmp_path / "waypost.yaml").write_text(json.dumps(settings))
    with serving("waypost.yaml", cwd=tmp_path) as hub:
        assert hub.url
        for words in (["keys", "create", "--id", "deploy"], ["skills", "docs", "add", "guide", "guide.md"]):
            done = waypost(*words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        for words, sentence in SHELL:
            done = waypost(*words, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (1, f"waypost: {sentence}\n")
