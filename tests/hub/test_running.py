"""A hub that runs: its time limit, its health, and servers that it runs under."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.hub.samples import DEADLINE, ERAS, Arithmetic, Shout, empty
from tests.upstreams.conftest import served
from waypost import DefinitionError, WaypostError
from waypost.testing import TestClient, connect
from waypost.upstreams.client import Client
from waypost.upstreams.http import HttpTransport


@pytest.mark.parametrize("version", ERAS)
def test_a_tool_that_takes_longer_than_the_hub_allows_is_stopped(version: str) -> None:
    hub = empty(tool_timeout=0.05)
    stopped: list[bool] = []

    @hub.tool
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return "never"

    async def scenario() -> None:
        async with connect(hub, version) as client:
            result = await client.call_tool("wait")
            assert (result.is_error, result.text) == (True, "Tool execution timed out")

    asyncio.run(scenario())
    assert stopped == [True]


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no transport 'carrier-pigeon'"):
        empty().run("carrier-pigeon")  # type: ignore[arg-type]


def test_a_program_whose_port_is_in_use_exits_with_one_sentence_and_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = f"from waypost import Hub; Hub('desk', version='1').run('http', port={port})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr == (
        f"desk: Cannot listen on 127.0.0.1:{port}: Address already in use; "
        "stop what listens there, or choose another port.\n"
    )


def test_a_program_on_a_public_address_without_keys_exits_with_one_sentence() -> None:
    with pytest.raises(SystemExit) as ended:
        empty().run("http", host="0.0.0.0")

    assert "callers need no key" in str(ended.value)


def test_serve_raises_the_error_instead_of_exiting() -> None:
    with pytest.raises(WaypostError, match="callers need no key"):
        empty().serve("http", host="0.0.0.0")


def test_the_health_of_a_hub_names_its_version() -> None:
    assert asyncio.run(empty().health())["status"] == "ok"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("lifespan", ["off", "on"])
def test_the_asgi_app_runs_under_a_server_of_its_own(lifespan: Literal["on", "off"], version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), served(hub, lifespan=lifespan) as url:
            client = Client(HttpTransport(url), version=version)
            await client.open()
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}
            assert len(await client.list_tools()) == 4
            await client.close()

    asyncio.run(scenario())


def test_a_server_without_lifespan_still_notifies_changes() -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), served(hub, lifespan="off") as url:
            client = TestClient(HttpTransport(url))
            await client.open()
            async with client.listen(toolsListChanged=True):
                hub.add(Shout)
                await client.assert_notification("tools/list_changed")
            await client.close()

    asyncio.run(scenario())
