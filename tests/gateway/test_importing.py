"""Imports of the tools of real servers: storing, refreshing, passing on and removing them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import Turncoat, imports_of, names, recorded, running, stdio, tool, write
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.pools import listening
from tests.upstreams.servers import official
from waypost import Hub
from waypost.testing import TestClient
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

AUDITED: dict[str, Any] = {"audit": {"sink": "store"}}
BLOCKS = [
    {"type": "text", "text": "plain"},
    {"type": "text", "text": "marked", "annotations": {"priority": 0.5}},
    {"type": "image", "data": "ZG90", "mimeType": "image/png"},
    {"type": "hologram", "of": "a thing nobody knows"},
]
ERAS = pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])


def official_hub() -> Any:
    """The server of the official SDK as an ASGI app."""
    return official.build().streamable_http_app()


@ERAS
def test_the_tools_of_an_official_and_a_fast_server_are_offered_under_their_prefixes(
    tmp_path: Path, version: str
) -> None:
    file = write(
        tmp_path,
        {"sdk": stdio("official"), "fast": stdio("fast")},
        [{"connection": "sdk", "exclude": ["pid"], "tags": ["sums"]}, {"connection": "fast", "prefix": "quick"}],
    )

    @asynchronous
    async def offered() -> None:
        async with running(file, version=version) as (hub, client):
            assert await names(client) == ["quick.add", "sdk.add"]
            row = hub.registry.tool("sdk.add")
            assert (row.owner, row.metadata.tags) == ("upstream:sdk", ("sums",))
            listed = {found["name"]: found for found in await client.list_tools()}
            assert listed["quick.add"]["inputSchema"]["required"] == ["a", "b"]
            assert listed["quick.add"]["outputSchema"]["properties"] == {"result": {"type": "integer"}}
            for name in ("quick.add", "sdk.add"):
                answer = await client.call_tool(name, {"a": 1, "b": 2})
                assert answer["structuredContent"] == {"result": 3}
                assert answer.text == "3"

    offered()


@asynchronous
async def test_a_server_over_http_is_imported(tmp_path: Path) -> None:
    async with listening(official_hub()) as url:
        file = write(tmp_path, {"far": {"kind": "mcp", "url": url}}, [{"connection": "far", "include": ["add"]}])
        async with running(file) as (_, client):
            assert await names(client) == ["far.add"]
            assert (await client.call_tool("far.add", {"a": 2, "b": 2}))["structuredContent"] == {"result": 4}


@asynchronous
async def test_the_answer_of_a_server_is_passed_on_unchanged(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("show", annotations={"readOnlyHint": True}, title="Show"))
    async with running(write(tmp_path, {"up": server.connection}, [{"connection": "up"}])) as (_, client):
        (listed,) = await client.list_tools()
        assert (listed["title"], listed["annotations"]) == ("Show", {"readOnlyHint": True})
        answer = await client.call_tool("up.show", {"any": ["thing"]})
        assert json.loads(json.dumps(answer["content"])) == BLOCKS
        assert answer["structuredContent"] == {"tool": "show"}
        assert answer["isError"] is True
        assert answer["_meta"]["its/own"] == 1


@asynchronous
async def test_an_error_of_a_server_is_passed_on_without_the_secrets_of_the_configuration(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("refuse"))
    secretive = {**server.connection, "env": {"SECRET": "correct-horse-battery"}}
    async with running(write(tmp_path, {"up": secretive}, [{"connection": "up"}])) as (_, client):
        answer = await client.call_tool("up.refuse")
        assert answer.is_error
        assert "Not with" in answer.text
        assert "horse" not in answer.text


@asynchronous
async def test_progress_is_passed_on_and_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("slow"))
    async with running(write(tmp_path, {"up": server.connection}, [{"connection": "up"}])) as (_, client):
        await client.call_tool("up.slow", {"ends": True}, meta={"progressToken": "p"})
        await client.assert_notification("progress", progress=1, total=2, message="step 1", progressToken="p")
        await client.assert_notification("progress", progress=2)
        call = asyncio.get_running_loop().create_task(client.call_tool("up.slow", meta={"progressToken": "q"}))
        await client.assert_notification("progress", progress=2, progressToken="q")
        call.cancel()
        await until(lambda: "cancelled" in server.notes)


@asynchronous
async def test_the_key_of_a_workflow_reaches_the_server(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("key"))
    file = write(tmp_path, {"up": server.connection}, [{"connection": "up"}])
    async with running(file) as (hub, client):
        hub.runtime.gateway.offer()
        given = {"capability": "up.key", "arguments": {}}
        answer = await client.call_tool("workflow.start", {"definitionId": "proxy_default", "input": given})
        kept = answer["structuredContent"]["context"]["lastResult"]
        assert kept["waypost/idempotencyKey"].startswith("wf_")
        assert "waypost/idempotencyKey" not in (await client.call_tool("up.key"))["structuredContent"]


@asynchronous
async def test_a_server_with_a_stored_list_is_not_started_until_it_is_used(tmp_path: Path) -> None:
    servers = [Turncoat(tmp_path, tool("show"), name=f"s{number}") for number in range(6)]
    connections = {server.folder.name: server.connection for server in servers}
    file = write(tmp_path, connections, [{"connection": name} for name in connections])
    async with running(file) as (_, client):
        assert len(await names(client)) == 6
    assert [server.starts for server in servers] == [1] * 6
    async with running(file, settled=False) as (hub, client):
        assert len(await names(client)) == 6
        assert {row.state for row in imports_of(hub).list_rows()} == {"not started"}
        await client.call_tool("s3.show")
        assert [server.starts for server in servers] == [1, 1, 1, 2, 1, 1]
        assert imports_of(hub).get_row("s3").state == "running"


@asynchronous
async def test_a_stored_list_of_another_server_is_not_used(tmp_path: Path) -> None:
    first, second = Turncoat(tmp_path, tool("one"), name="a"), Turncoat(tmp_path, tool("two"), name="b")
    settings: dict[str, Any] = {"imports": [{"connection": "up", "trust": "off"}]}
    async with running(write(tmp_path, {"up": first.connection}, **settings)) as (_, client):
        assert await names(client) == ["up.one"]
    async with running(write(tmp_path, {"up": second.connection}, **settings)) as (_, client):
        assert await names(client) == ["up.two"]


@asynchronous
async def test_a_failed_server_is_reported_and_the_others_are_imported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Turncoat(tmp_path, tool("show"))
    lost = {"kind": "mcp", "command": str(tmp_path / "nothing")}
    file = write(tmp_path, {"lost": lost, "up": server.connection}, [{"connection": "lost"}, {"connection": "up"}])
    file.write_text(json.dumps({**json.loads(file.read_text()), **AUDITED}))
    async with running(file) as (hub, client):
        assert await names(client) == ["up.show"]
        row = imports_of(hub).get_row("lost")
        assert (row.state, row.tools) == ("failed", [])
        assert "there is no such program" in row.reason
        assert len([record for record in caplog.records if "lost" in record.getMessage()]) == 1
        assert [one["capability"] for one in await recorded(hub, "capability.discovery_failed")] == ["lost"]
        assert [one["reason"] for one in await recorded(hub, "capability.discovered")] == ["1 tools"]
        # The hub starts the server as soon as its program exists.
        write_program(tmp_path / "nothing", server)
        await until(lambda: "lost.show" in hub.registry.tools)


def write_program(path: Path, server: Turncoat) -> None:
    """Make a program of a server."""
    command = " ".join([server.connection["command"], *server.connection["args"]])
    path.write_text(f"#!/bin/sh\nexec {command}\n")
    path.chmod(0o755)


@asynchronous
async def test_a_server_is_listed_again_after_a_tools_changed_notification(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("change"), tool("old"))
    file = write(tmp_path, {"up": server.connection}, [{"connection": "up", "trust": "off"}])
    async with running(file, version=LATEST_LEGACY) as (hub, client):
        assert await names(client) == ["up.change", "up.old"]
        client.notifications.clear()
        await client.call_tool("up.change", {"tools": [tool("change"), tool("new")]})
        await client.assert_notification("tools/list_changed", within=60)
        await client.refute_notification("tools/list_changed")
        assert await names(client) == ["up.change", "up.new"]
        assert hub.registry.find_tool("up.old") is None


@ERAS
def test_a_server_over_http_is_listed_again_after_a_change(tmp_path: Path, version: str) -> None:
    asynchronous(changing)(tmp_path, version)


async def changing(folder: Path, version: str) -> None:
    class Dated(Hub):
        """Knows one version."""

        def supported_protocol_versions(self) -> list[str]:
            return [version]

    far = Dated("far", version="1")

    @far.tool
    async def one() -> int:
        return 1

    async def two() -> int:
        return 2

    async with listening(far.asgi()) as url:
        file = write(folder, {"far": {"kind": "mcp", "url": url}}, [{"connection": "far", "trust": "off"}])
        async with running(file) as (hub, client):
            assert await names(client) == ["far.one"]
            assert imports_of(hub).get_row("far").protocol == version
            far.add(two)
            await until(lambda: "far.two" in hub.registry.tools)
    await far.stop()


@asynchronous
async def test_a_reload_adds_and_removes_rows_in_one_change_and_ends_sessions(tmp_path: Path) -> None:
    first, second = Turncoat(tmp_path, tool("one"), name="a"), Turncoat(tmp_path, tool("two"), name="b")
    both = {"a": first.connection, "b": second.connection}
    file = write(tmp_path, both, [{"connection": "a"}])
    async with running(file) as (hub, client):
        await client.call_tool("a.one")
        changes: list[Any] = []
        hub.registry.subscribe(changes.append)
        write(tmp_path, both, [{"connection": "a", "prefix": "x"}])
        assert await hub.reload()
        assert [row.id for row in hub.registry.tools] == ["x.one"]
        assert len(changes) == 1
        assert imports_of(hub).get_row("a").state == "running"
        write(tmp_path, both, [{"connection": "b"}])
        assert await hub.reload()
        await imports_of(hub).wait_until_listed()
        assert await names(client) == ["b.two"]
        assert imports_of(hub).get_row("a").state == "not started"
        write(tmp_path, {}, [])
        assert await hub.reload()
        assert await names(client) == []
        assert imports_of(hub).list_rows() == []


@asynchronous
async def test_a_reload_adds_the_first_connections_of_a_hub(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("show"))
    file = write(tmp_path, {}, [])
    async with running(file, settled=False) as (hub, client):
        assert hub.runtime.imports is None
        write(tmp_path, {"up": server.connection}, [{"connection": "up"}])
        assert await hub.reload()
        await imports_of(hub).wait_until_listed()
        assert await names(client) == ["up.show"]
        assert (await client.call_tool("up.show"))["structuredContent"] == {"tool": "show"}


@asynchronous
async def test_a_workflow_calls_an_imported_tool(tmp_path: Path) -> None:
    call = {"target": "done", "executor": {"kind": "capability", "capability": "fast.add"}}
    states = {"ready": {"transitions": {"go": {**call, "output": {"sum": "$.output"}}}}, "done": {"terminal": True}}
    file = write(
        tmp_path,
        {"fast": stdio("fast")},
        [{"connection": "fast"}],
        workflows={"total": {"initialState": "ready", "states": states}},
    )
    async with running(file) as (_, client):
        begun = await client.call_tool("workflow.start", {"definitionId": "total"})
        given = {"workflowId": begun["structuredContent"]["workflowId"], "expectedVersion": 1, "transition": "go"}
        done = await client.call_tool("workflow.submit", {**given, "arguments": {"a": 1, "b": 2}})
        assert done["structuredContent"]["context"] == {"sum": 3}


@asynchronous
async def test_endless_lists_and_invalid_definitions_are_reported(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("show"), {"description": "nameless"}, tool("show"), tool("big", "x" * 300_000))
    endless = Turncoat(tmp_path, tool("show"), name="endless")
    (endless.folder / "endless").touch()
    file = write(
        tmp_path,
        {"up": server.connection, "endless": endless.connection},
        [{"connection": "up"}, {"connection": "endless"}],
    )
    async with running(file) as (hub, client):
        assert await names(client) == ["up.show"]
        reason = imports_of(hub).get_row("up").reason
        assert "A tool without a name is left out." in reason
        assert "There are two tools 'show'" in reason
        assert "'big' is larger than" in reason
        assert "does not end" in imports_of(hub).get_row("endless").reason


@asynchronous
async def test_a_server_that_never_answers_does_not_delay_the_others(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("show"))
    silent = stdio("rough", str(tmp_path / "diary"), "silent")
    file = write(
        tmp_path, {"silent": silent, "up": server.connection}, [{"connection": "silent"}, {"connection": "up"}]
    )
    async with running(file, settled=False) as (hub, client):
        await until(lambda: "up.show" in hub.registry.tools, within=60)
        assert (await client.call_tool("up.show"))["structuredContent"] == {"tool": "show"}
        assert imports_of(hub).get_row("silent").state == "starting"


@asynchronous
async def test_a_burst_of_change_notifications_causes_one_listing(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("flood"), tool("show"))
    async with running(write(tmp_path, {"up": server.connection}, [{"connection": "up"}])) as (_, client):
        await client.call_tool("up.flood")
        await until(lambda: server.notes.count("listed") > 1)
        await client.call_tool("up.show")
        assert server.notes.count("listed") == 2


@asynchronous
async def test_a_killed_server_is_restarted_at_the_next_call(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("show"))
    async with running(write(tmp_path, {"up": server.connection}, [{"connection": "up"}])) as (hub, client):
        os.kill(int(server.notes[0].split()[1]), signal.SIGKILL)
        await until(lambda: imports_of(hub).get_row("up").state != "running")
        assert (await client.call_tool("up.show"))["structuredContent"] == {"tool": "show"}
        assert server.starts == 2


@asynchronous
async def test_a_server_can_be_restarted(tmp_path: Path) -> None:
    server = Turncoat(tmp_path, tool("show"))
    async with running(write(tmp_path, {"up": server.connection}, [{"connection": "up"}])) as (hub, _):
        assert (await imports_of(hub).restart("up")).state == "running"
        assert server.starts == 2


@asynchronous
async def test_two_hundred_calls_share_one_process_that_ends_with_the_hub(tmp_path: Path) -> None:
    file = write(tmp_path, {"sdk": stdio("official")}, [{"connection": "sdk"}])
    async with running(file) as (_, client):
        calls = [client.call_tool("sdk.add", {"a": number, "b": 1}) for number in range(200)]
        answers = await asyncio.gather(*calls)
        assert [answer["structuredContent"]["result"] for answer in answers] == list(range(1, 201))
        numbers = {await _process(client) for _ in range(3)}
        assert len(numbers) == 1


async def _process(client: TestClient) -> int:
    return int((await client.call_tool("sdk.pid")).text)
