"""Tools of `proxy.expose`: arguments, guards, execution, search and reload."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.hubs import HEAD, call_structured, called, codes, findings, using, write
from tests.outbound.internet import site
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from waypost.capabilities.capability import Kind
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Change
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

LEAD = Principal("ann", ("lead",))

PUSH = """\
capabilities:
  git.push:
    title: Push
    description: Push a branch
    tags: [git]
    aliases: [upload]
    inputSchema:
      type: object
      properties: {branch: {type: string, default: main}}
      additionalProperties: false
    executor: {kind: cli, command: echo, args: [push, $.arguments.branch], allowOptions: true}
  git.push.prod: {wraps: git.push, tags: [prod], guards: [{kind: role, role: lead}]}
  odd name: {executor: {kind: noop}}
"""
EXPOSED = f"""\
{PUSH}
proxy:
  expose:
    - name: hello.echo
      title: Echo
      description: Say it again
      tags: [talk]
      aliases: [ping]
      category: Words
      examples: [say hello to somebody, {{word: hi}}]
      inputSchema: {{type: object, properties: {{word: {{type: string}}}}, required: [word]}}
      executor: {{kind: cli, command: echo, args: [$.arguments.word], allowOptions: true}}
    - {{capability: git.push}}
    - capability: git.push.prod
      as: push
      tags: [careful]
      guards: [{{kind: expr, expr: '$.arguments.branch == "main"'}}]
    - {{name: nothing}}
"""


@pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])
@asynchronous
async def test_a_command_is_a_tool_that_runs(tmp_path: Path, version: str) -> None:
    async with using(tmp_path, EXPOSED, version) as (_, client):
        answer = await client.call_tool("hello.echo", {"word": "hi"})
        assert answer["structuredContent"]["stdout"] == "hi\n"
        assert json.loads(answer.text) == answer["structuredContent"]


@asynchronous
async def test_a_tool_has_the_metadata_of_its_entry(tmp_path: Path) -> None:
    async with using(tmp_path, EXPOSED) as (hub, client):
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        echo = tools["hello.echo"]
        assert (echo["title"], echo["description"]) == ("Echo", "Say it again\n\nFor example: say hello to somebody")
        assert echo["inputSchema"]["examples"] == [{"word": "hi"}]
        row = hub.registry.tool("push")
        assert (row.owner, row.metadata.tags, row.metadata.aliases) == ("exposed", ("git", "prod", "careful"), ())
        assert hub.registry.tool("git.push").metadata.aliases == ("upload",)
        assert hub.registry.tool("hello.echo").metadata.category == "Words"
        assert tools["nothing"]["inputSchema"] == {"type": "object", "properties": {}, "additionalProperties": False}


@asynchronous
async def test_arguments_are_checked_and_filled_with_their_defaults(tmp_path: Path) -> None:
    async with using(tmp_path, EXPOSED) as (hub, _):
        assert (await called(hub, "git.push")).structured["stdout"] == "push main\n"
        assert "branch: must be of type string" in (await called(hub, "git.push", branch=1)).text
        refused = await called(hub, "nothing", more=1)
        assert refused.is_error
        assert "more: is not allowed" in refused.text


@asynchronous
async def test_a_failed_guard_is_named_in_the_refusal(tmp_path: Path) -> None:
    async with using(tmp_path, EXPOSED) as (hub, _):
        assert (await called(hub, "push", LEAD)).structured["stdout"] == "push main\n"
        refused = await called(hub, "push", LEAD, branch="other")
        assert refused.is_error
        assert refused.text == 'push is not allowed now: It is not true that $.arguments.branch == "main".'
        stranger = await called(hub, "push")
        assert stranger.text == 'push is not allowed now: The caller lacks the role "lead".'
        assert stranger.structured["error"]["code"] == "GUARD_REJECTED"


@asynchronous
async def test_a_failure_has_its_error_class_and_says_whether_a_retry_may_help(tmp_path: Path) -> None:
    slow = f"{{kind: cli, command: {sys.executable}, args: [-c, 'import time; time.sleep(60)']}}"
    text = f"""\
        proxy:
          expose:
            - {{name: wrong, executor: {{kind: cli, command: "false"}}}}
            - {{name: slow, executor: {slow}, reliability: {{timeoutMs: 50}}}}
    """
    async with using(tmp_path, text) as (hub, _):
        wrong = await called(hub, "wrong")
        assert wrong.is_error
        assert wrong.text.endswith(" [permanent_error]")
        slow_one = await called(hub, "slow")
        assert slow_one.text == "It did not end within 0.05 s. [timeout] It may help to try again later."
        assert slow_one.structured["error"]["errorClass"] == "timeout"


@asynchronous
async def test_one_key_is_sent_with_every_attempt_of_a_call(tmp_path: Path) -> None:
    keys: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        keys.append(request.headers["Idempotency-Key"])
        return web.json_response({"ok": True}, status=503 if len(keys) < 3 else 200)

    async with site(answer) as port:
        text = f"""\
            connections:
              api: {{kind: rest, baseUrl: "http://127.0.0.1:{port}", allowPrivate: true}}
            proxy:
              expose:
                - name: ask
                  executor: {{kind: rest, connection: api, path: /x}}
                  reliability: {{retry: {{maxAttempts: 3}}}}
        """
        async with using(tmp_path, text) as (hub, client):
            assert (await called(hub, "ask")).structured == {"status": 200, "body": {"ok": True}}
            await called(hub, "ask")
            await call_structured(client, "workflow.start", input={"capability": "ask", "arguments": {}})
    assert len(set(keys[:3])) == 1
    assert len(set(keys)) == 3
    assert "wf_" in keys[-1]


@asynchronous
async def test_an_exposed_tool_that_calls_itself_fails(tmp_path: Path) -> None:
    text = """\
        proxy:
          expose:
            - {name: round, executor: {kind: capability, capability: round}}
    """
    async with using(tmp_path, text) as (hub, _):
        assert (await called(hub, "round")).is_error


@asynchronous
async def test_an_exposed_tool_runs_a_workflow_and_a_workflow_an_exposed_tool(tmp_path: Path) -> None:
    text = """\
        workflows:
          greet:
            initialState: a
            states:
              a:
                transitions:
                  go:
                    target: b
                    actor: deterministic
                    executor: {kind: capability, capability: say}
                    output: {said: $.output.stdout}
              b: {terminal: true}
        proxy:
          expose:
            - {name: say, executor: {kind: cli, command: echo, args: [hi]}}
            - {name: greeting, executor: {kind: workflow, definitionId: greet}}
    """
    async with using(tmp_path, text) as (hub, _):
        before = time.time()
        answer = await called(hub, "greeting")
        assert answer.structured["context"] == {"said": "hi\n"}
        # Instances are listed and selected by the time in their ids.
        assert before - 1 < int(answer.structured["workflowId"][3:15], 16) / 1000 < time.time() + 1


@asynchronous
async def test_an_agent_finds_an_exposed_tool_and_follows_its_links(tmp_path: Path) -> None:
    async with using(tmp_path, EXPOSED) as (_, client):
        home = await call_structured(client, "gateway.home")
        assert {"hello.echo", "git.push", "push", "nothing"} <= {item["id"] for item in home["items"]}
        found = await call_structured(client, "gateway.search", query="ping")
        assert found["results"][0]["item"]["id"] == "hello.echo"
        described = await call_structured(client, "gateway.describe", id="hello.echo")
        (link,) = described["links"]
        assert link["input_schema"]["required"] == ["word"]
        begun = await call_structured(client, link["method"], **link["args"])
        assert (begun["definitionId"], begun["state"]) == ("proxy_default", "ready")
        (submit,) = begun["links"]
        after = await call_structured(client, submit["method"], **{**submit["args"], "arguments": {"word": "hi"}})
        assert (after["state"], after["version"]) == ("ready", 2)
        assert after["context"]["lastResult"]["stdout"] == "hi\n"
        again = await call_structured(
            client, "workflow.submit", **{**after["links"][0]["args"], "arguments": {"word": "ho"}}
        )
        assert again["context"]["lastResult"]["stdout"] == "ho\n"


@asynchronous
async def test_the_proxy_checks_the_schema_and_the_guards_before_a_call(tmp_path: Path) -> None:
    async with using(tmp_path, EXPOSED) as (_, client):
        begun = await call_structured(client, "workflow.start", input={"capability": "push"})
        (link,) = begun["links"]
        refused = await call_structured(client, "workflow.submit", **link["args"])
        assert refused["error"]["code"] == "GUARD_REJECTED"
        assert refused["version"] == 1
        wrong = await call_structured(client, "workflow.submit", **{**link["args"], "arguments": {"branch": 3}})
        assert wrong["error"]["code"] == "INPUT_SCHEMA_VIOLATION"


@asynchronous
async def test_a_reload_replaces_changed_tools_in_one_change(tmp_path: Path) -> None:
    async with using(tmp_path, EXPOSED) as (hub, client):
        changes: list[Change] = []
        kept = hub.registry.tool("hello.echo")
        hub.registry.subscribe(changes.append)
        write(tmp_path, EXPOSED.replace("{name: nothing}", "{name: something}"))
        assert await hub.reload()
        assert [change.kinds for change in changes] == [frozenset({Kind.TOOL})]
        names = {tool["name"] for tool in await client.list_tools()}
        assert "something" in names
        assert "nothing" not in names
        assert hub.registry.tool("hello.echo") is kept
        write(tmp_path, EXPOSED.replace("command: echo, args: [$.", "command: printf, args: [$."))
        assert await hub.reload()
        assert (await called(hub, "hello.echo", word="hi")).structured["stdout"] == "hi"
        write(tmp_path, EXPOSED.replace("kind: cli", "kind: clj"))
        assert not await hub.reload()
        assert (await called(hub, "hello.echo", word="hi")).structured["stdout"] == "hi"
        write(tmp_path, "")
        assert await hub.reload()
        assert "hello.echo" not in {tool["name"] for tool in await client.list_tools()}


@asynchronous
async def test_a_reload_adds_the_first_exposed_tools(tmp_path: Path) -> None:
    async with using(tmp_path, "") as (hub, _):
        write(tmp_path, EXPOSED)
        assert await hub.reload()
        assert (await called(hub, "git.push")).structured["stdout"] == "push main\n"


@asynchronous
async def test_a_command_ends_when_its_call_is_cancelled(tmp_path: Path) -> None:
    mark = tmp_path / "began"
    program = f"open({str(mark)!r}, 'w').close(); import time; time.sleep(60)"
    text = f"""\
        proxy:
          expose:
            - {{name: slow, executor: {{kind: cli, command: {sys.executable}, args: [-c, {json.dumps(program)}]}}}}
    """
    async with using(tmp_path, text) as (hub, _):
        task = asyncio.create_task(called(hub, "slow"))
        await until(mark.exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


SERVER = """\
from waypost import Hub
from waypost.capabilities.results import Result
from waypost.wire.content import EmbeddedResource, Image, Text

hub = Hub("other", "1")


@hub.tool
async def picture(args, ctx):
    return Result([Text("look"), Image(b"x", "image/png"), EmbeddedResource("a://b", "c")])


@hub.tool
async def numbers(args, ctx):
    return {"n": 1}


hub.run()
"""


@asynchronous
async def test_the_content_of_an_upstream_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(SERVER)
    text = f"""\
        connections:
          other: {{kind: mcp, command: {sys.executable}, args: ["{tmp_path}/other.py"]}}
        proxy:
          expose:
            - {{name: picture, executor: {{kind: mcp, connection: other, tool: picture}}}}
            - {{name: numbers, executor: {{kind: mcp, connection: other, tool: numbers}}}}
    """
    async with using(tmp_path, text) as (_, client):
        answer = await client.call_tool("picture", {})
        assert [block["type"] for block in answer["content"]] == ["text", "image", "resource"]
        assert answer.get("structuredContent") is None
        assert (await client.call_tool("numbers", {}))["structuredContent"] == {"n": 1}


def expose(entry: str) -> str:
    return f"{PUSH}proxy: {{expose: [{entry}]}}\n"


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("{title: x}", "WF060"),
        ("{name: x, capability: git.push}", "WF060"),
        ("{name: x, as: y}", "WF060"),
        ("{capability: git.push, executor: {kind: human}}", "WF061"),
        ("{capability: git.pull}", "WF012"),
        ("{capability: odd name}", "WF060"),
        (f"{{name: {'x' * 129}}}", "CFG013"),
        ("{name: x, inputSchema: {type: object, properties: {a: {type: array, x-mcp-header: A}}}}", "WF031"),
        ("{name: x, executor: {kind: capability, capability: nowhere}}", "WF012"),
        ("{name: x, executor: {kind: rest, connection: api}}", "WF010"),
        ("{name: x, executor: {kind: cli}}", "WF020"),
        ("{name: x, executor: {kind: human}}", "WF061"),
        ("{name: x, executor: {kind: pipeline, steps: [{kind: noop}, {kind: human}]}}", "WF061"),
        ("{name: x, reliability: {fallback: {executors: [{kind: human}]}}}", "WF061"),
        ("{name: x, guards: [{kind: evidence, requires: [tests]}]}", "WF061"),
        ("{name: x, guards: [{kind: expr, expr: '$.arguments.a =='}]}", "WF030"),
        ("{name: x, guards: [{kind: expr, expr: '$.context.a == 1'}]}", "WF062"),
        ("{name: x, executor: {kind: cli, command: echo, args: [$.input.a]}}", "WF062"),
        ("{name: x, executor: {kind: cli, command: echo, args: [$.wat.a]}}", "WF030"),
        ("{name: x, inputSchema: {type: wat}}", "WF031"),
        ("{name: x, inputSchema: {type: array}}", "WF031"),
        ("{name: workflow.start}", "CFG043"),
        ("{name: x}, {name: x}", "CFG043"),
        ("{name: 1x}", "CFG013"),
    ],
)
def test_an_invalid_entry_is_a_finding(tmp_path: Path, entry: str, code: str) -> None:
    assert set(codes(tmp_path, expose(entry))) == {code}


def test_an_action_that_needs_a_workflow_is_a_finding_where_it_is_exposed(tmp_path: Path) -> None:
    text = """\
        capabilities:
          ask: {executor: {kind: human}}
          seen: {executor: {kind: cli, command: echo, args: [$.context.a]}}
        proxy:
          expose:
            - {capability: ask}
            - {capability: seen}
            - {name: both, executor: {kind: capability, capability: ask}}
    """
    found = [(one.code, one.key, one.line - HEAD.count("\n")) for one in findings(tmp_path, text)]
    assert found == [
        ("WF061", "proxy.expose[0].capability", 6),
        ("WF062", "proxy.expose[1].capability", 7),
        ("WF061", "proxy.expose[2].executor", 8),
    ]


def test_a_tool_of_a_toolkit_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "kit.py").write_text("from waypost import tool\n\n\n@tool\nasync def hello(args): ...\n")
    text = "toolkits: [./kit.py]\nproxy:\n  expose:\n    - {name: hello}\n"
    (found,) = findings(tmp_path, text)
    assert (found.code, found.line - HEAD.count("\n")) == ("CFG043", 4)
    assert "two capabilities are called `hello`" in found.message


def test_a_workflow_may_call_an_exposed_tool(tmp_path: Path) -> None:
    text = """\
        workflows:
          w:
            initialState: a
            states:
              a: {transitions: {go: {target: b, executor: {kind: capability, capability: say}}}}
              b: {terminal: true}
        proxy: {expose: [{name: say}]}
    """
    assert codes(tmp_path, text) == []
    assert codes(tmp_path, text.replace("capability: say", "capability: other")) == ["WF012"]


def test_a_complete_example_has_no_findings(tmp_path: Path) -> None:
    found: list[Any] = findings(tmp_path, EXPOSED)
    assert found == []
