"""Names that the configuration and workers both use belong to the configuration, at the start and after a reload."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.documents.folders.library import put
from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import failure, settled, working
from tests.workers.wire import at_work
from waypost import Hub
from waypost.capabilities.capability import disambiguate
from waypost.testing import TestClient
from waypost.worker import Worker
from waypost.workers.tools import find_function_tool

SERVER = """\
version: "1"
server: {name: desk, surface: full}
workers: {port: 0}
"""
MORE = """\
skills: {core: [system_info]}
prompts: {greet: {description: From the configuration., template: Hi}}
proxy:
  expose:
    - {name: hello.echo, title: Echo, description: Says it., inputSchema: {type: object}, executor: {kind: noop}}
workflows:
  tour: {title: Tour, initialState: a, states: {a: {transitions: {go: {target: b}}}, b: {terminal: true}}}
"""
IDS = ("workflow:tour", "hello.echo", "skill:system_info", "kit__tool")
MOVED = disambiguate("default/hello.echo", "hello.echo")


@asynccontextmanager
async def served(folder: Path, text: str) -> AsyncIterator[tuple[Hub, TestClient]]:
    """A hub of a configuration, and a client of it."""
    (folder / "waypost.yaml").write_text(text)
    hub = Hub.from_config(folder / "waypost.yaml")
    async with at_work(hub) as client:
        yield hub, client


async def offering(worker: Worker) -> None:
    """Register functions of a worker with names of the hub."""
    for one in IDS:
        worker.register_function(one, lambda: "the worker's")
    await settled(worker)


async def described(client: TestClient) -> dict[str, str]:
    """The prompts that clients list."""
    return {one["name"]: one["description"] for one in await client.list_prompts()}


async def names(client: TestClient) -> set[str]:
    """The tools of both sides that clients list."""
    return {one["name"] for one in await client.list_tools() if any(part in one["name"] for part in ("tour", "hello"))}


@asynchronous
async def test_a_reload_takes_the_names_of_a_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path, SERVER) as (hub, client), working(hub) as worker:
        await offering(worker)
        await worker.publish_prompt("greet", "From a worker.", function_id="kit__tool")
        assert (await client.call_tool("hello.echo")).text == "the worker's"

        (tmp_path / "waypost.yaml").write_text(SERVER + MORE)
        assert await hub.reload()
        assert await names(client) == {"workflow:tour", "workflow_tour", "hello.echo", MOVED}
        assert (await client.call_tool(MOVED)).text == "the worker's"
        assert (await client.call_tool("hello.echo")).text != "the worker's"
        assert await described(client) == {"greet": "From the configuration."}
        assert await worker.trigger("hello.echo") == "the worker's"
        tool = find_function_tool(hub.registry, "hello.echo")
        assert tool is not None
        assert tool.id == MOVED
        left_out = "is left out as long as its name is taken"
        assert caplog.text.count(left_out) == 1

        assert await hub.reload()
        assert caplog.text.count(left_out) == 1
        (tmp_path / "waypost.yaml").write_text(SERVER)
        assert await hub.reload()
        assert await described(client) == {"greet": "From a worker."}
        assert (await client.get_prompt("greet"))["messages"][0]["content"]["text"] == "the worker's"
        tool = find_function_tool(hub.registry, "hello.echo")
        assert tool is not None
        assert (await client.call_tool(tool.id)).text == "the worker's"
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@asynchronous
async def test_a_worker_that_connects_later_does_not_get_the_names(tmp_path: Path) -> None:
    async with served(tmp_path, SERVER + MORE) as (hub, client), working(hub) as worker:
        await offering(worker)
        assert await names(client) == {"workflow:tour", "workflow_tour", "hello.echo", MOVED}
        assert {"skill:system_info", "skill_system_info"} <= {one["name"] for one in await client.list_tools()}
        given = {"name": "greet", "description": "From a worker.", "function_id": "kit__tool"}
        refused = await failure(worker.trigger("prompts::register", given))
        assert 'There is a prompt "greet" already' in refused.message


@asynchronous
async def test_prompts_of_a_disconnected_worker_do_not_block_a_name(tmp_path: Path) -> None:
    async with served(tmp_path, SERVER) as (hub, client):
        async with working(hub) as worker:
            await worker.publish_prompt("greet", "From a worker.", function_id="kit__tool")
        await until(lambda: hub.workers.connected == [])
        (tmp_path / "waypost.yaml").write_text(SERVER + MORE)
        assert await hub.reload()
        assert await described(client) == {"greet": "From the configuration."}
    async with served(tmp_path, SERVER + MORE) as (hub, client):
        assert await described(client) == {"greet": "From the configuration."}
        (tmp_path / "waypost.yaml").write_text(SERVER)
        assert await hub.reload()
        assert await described(client) == {"greet": "From a worker."}


@asynchronous
async def test_functions_for_clients_leave_out_shadowed_prompts(tmp_path: Path) -> None:
    async with served(tmp_path, SERVER) as (hub, client), working(hub) as worker:
        await worker.publish_prompt("greet", "From a worker.", function_id="kit__tool")
        await worker.publish_prompt("other", "From a worker.", function_id="kit__tool")
        (tmp_path / "waypost.yaml").write_text(SERVER + MORE)
        assert await hub.reload()
        listed = (await worker.trigger("prompts::mcp-list"))["prompts"]
        assert [one["name"] for one in listed] == ["other"]
        refused = await failure(worker.trigger("prompts::mcp-get", {"name": "greet"}))
        assert refused.message == "Prompt not found: greet; the hub itself has another of this name"
        assert [one["name"] for one in (await worker.trigger("prompts::list"))["prompts"]] == ["greet", "other"]
        assert set(await described(client)) == {"greet", "other"}


@asynchronous
async def test_a_new_prompt_in_a_folder_takes_the_name_of_a_workers_prompt(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    text = SERVER + "skills: {core: [], prompts: [./prompts]}\n"
    async with served(tmp_path, text) as (hub, _), working(hub) as worker:
        await worker.publish_prompt("greet", "From a worker.", function_id="kit__tool")
        file = tmp_path / "prompts" / "greet.md"
        put(file, "---\nname: greet\ndescription: From a folder.\n---\nHi\n")
        await until(lambda: hub.registry.prompt("greet").definition.description == "From a folder.")
        assert hub.registry.prompt("greet").owner == f"folder:{tmp_path / 'prompts'}"
        assert hub.folders.problems == ()
        file.unlink()
        await until(lambda: hub.registry.prompt("greet").definition.description == "From a worker.")


@asynchronous
async def test_a_worker_does_not_get_the_portable_name_of_a_tool_of_the_hub(tmp_path: Path) -> None:
    async with served(tmp_path, SERVER + MORE) as (hub, client), working(hub) as worker:
        for one in ("hello_echo", "skill::system_info"):
            worker.register_function(one, lambda: "the worker's")
        await settled(worker)
        assert (await client.call_tool("hello_echo")).text != "the worker's"
        assert (await client.call_tool("skill__system_info")).text != "the worker's"
        for one in ("hello_echo", "skill::system_info"):
            tool = find_function_tool(hub.registry, one)
            assert tool is not None
            assert (await client.call_tool(tool.id)).text == "the worker's"


@asynchronous
async def test_a_reload_takes_the_portable_names_of_a_worker(tmp_path: Path) -> None:
    async with served(tmp_path, SERVER) as (hub, client), working(hub) as worker:
        for one in ("hello_echo", "workflow::tour"):
            worker.register_function(one, lambda: "the worker's")
        await settled(worker)
        assert (await client.call_tool("hello_echo")).text == "the worker's"
        (tmp_path / "waypost.yaml").write_text(SERVER + MORE)
        assert await hub.reload()
        assert (await client.call_tool("hello_echo")).text != "the worker's"
        assert hub.registry.portable_name(hub.registry.tool("workflow:tour")) == "workflow__tour"
        for one in ("hello_echo", "workflow::tour"):
            assert await worker.trigger(one) == "the worker's"
