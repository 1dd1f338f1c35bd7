"""The section `server`: the server info for clients, and the limits."""

from __future__ import annotations

import asyncio

import pytest

from tests.configured.conftest import CONFIG, ERAS, Folder, gate, held_kit, names, using
from tests.upstreams.conftest import until
from waypost import RemoteError
from waypost.wire.versions import V2025_11_25


@pytest.mark.parametrize("version", ERAS)
def test_clients_get_the_server_info_and_instructions(folder: Folder, version: str) -> None:
    async def scenario() -> None:
        async with using(folder.hub(), version) as client:
            assert (client.server_info.name, client.server_info.version) == ("desk", "2.0.0")
            assert (await client.open()).instructions == "Ask nicely."

    asyncio.run(scenario())


def test_the_settings_of_the_server_take_effect(folder: Folder) -> None:
    folder.write(
        "waypost.yaml",
        """\
        server: {surface: full, names: portable, pageSize: 1, toolTimeoutMs: 50, maxBodyBytes: 2048}
        toolkits: [./tools.py]
        """,
    )
    folder.write(
        "tools.py",
        """\
        import asyncio
        from waypost import tool

        @tool(name="a.wait")
        async def wait() -> str:
            await asyncio.Event().wait()
            return "never"

        @tool(name="b.other")
        async def other() -> str:
            return "other"
        """,
    )
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            page = await client.request("tools/list")
            assert (names(page.tools), page.next_cursor is None) == (["a_wait"], False)
            assert (await client.call_tool("a_wait")).text == "Tool execution timed out"

    asyncio.run(scenario())
    assert hub.settings.server.max_body_bytes == 2048


def test_the_concurrent_calls_of_a_principal_are_limited(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG.replace("name: desk", "name: desk, maxRunning: 1"))
    folder.write("tools.py", held_kit("one"))

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            calls = [asyncio.create_task(client.call_tool("speak")) for _ in range(2)]
            await until(lambda: hub.core.pipeline.slots._waiting.total == 1)
            gate().set()
            assert [(await call).text for call in calls] == ["one", "one"]

    asyncio.run(scenario())


def test_the_number_of_concurrent_tasks_is_limited(folder: Folder) -> None:
    folder.write("waypost.yaml", "server: {surface: full, maxTasks: 1}\ntoolkits: [./tools.py]\n")
    folder.write(
        "tools.py",
        """\
        import asyncio
        from waypost import tool

        @tool(task="required")
        async def wait() -> str:
            await asyncio.Event().wait()
            return "never"
        """,
    )

    async def scenario() -> None:
        async with using(folder.hub(), V2025_11_25) as client:
            call = {"name": "wait", "arguments": {}, "task": {}}
            await client.request("tools/call", call)
            with pytest.raises(RemoteError, match=r"1 tasks are running already \(maxTasks\)"):
                await client.request("tools/call", call)

    asyncio.run(scenario())
