"""The entries for clients start a hub without the environment of a shell, and the clients in Python work."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from fastmcp import Client

from tests.docs.pages import DOCS, EXAMPLES, blocks
from tests.docs.test_commands import BIN, environment, served
from tests.docs.test_commands import folder as folder
from tests.docs.test_operating import KEY
from waypost.cli.main import build_parser

PAGE: Final = DOCS / "connecting.md"
READY: Final = r"ready at (http://127\.0\.0\.1:\d+)/mcp$"
COMMAND: Final = "/path/to/.venv/bin/waypost"
MESSAGES: Final = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "id": 2, "method": "ping"},
]


def entries() -> list[tuple[str, dict[str, Any]]]:
    """Every entry of a client on the pages that starts a hub, and its place."""
    configurations = [(block.place, json.loads(block.text)) for block in blocks("json")]
    return [
        (place, server)
        for place, found in configurations
        for server in {**found.get("mcpServers", {}), **found.get("servers", {})}.values()
        if "command" in server
    ]


@pytest.mark.parametrize(("place", "server"), entries(), ids=lambda value: value if isinstance(value, str) else "")
def test_an_entry_starts_the_hub_without_the_path_of_a_shell(place: str, server: dict[str, Any], folder: Path) -> None:
    assert server["command"] == COMMAND, place
    arguments = [argument.replace("/path/to", str(folder)) for argument in server["args"]]
    process = subprocess.Popen(
        [str(BIN / "waypost"), *arguments],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(json.dumps(message) + "\n" for message in MESSAGES))
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in MESSAGES]
    rest, noise = process.communicate(timeout=60)
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[0]["result"]["serverInfo"] == {"name": "arithmetic", "version": "1.0.0"}
    assert (rest, noise, process.returncode) == ("", "", 0)


def test_the_commands_that_add_a_hub_end_with_a_valid_command() -> None:
    lines = [line for block in blocks("sh") if block.page == PAGE for line in block.text.splitlines()]
    starting = [shlex.split(line.partition(f"-- {COMMAND} ")[2]) for line in lines if COMMAND in line]
    assert len(starting) == 2
    assert {build_parser(words[0]).parse_args(words).target for words in starting} == {"/path/to/server.py:hub"}


@pytest.mark.parametrize("file", ["official.py", "fast.py", "started.py"])
def test_a_client_in_python_uses_the_hub(file: str, folder: Path) -> None:
    with served("waypost", "serve", "server.py:hub", "--port", "0", folder=folder, ready=READY) as (_, address):
        text = (EXAMPLES / "clients" / file).read_text()
        text = text.replace("http://127.0.0.1:8420", address).replace(COMMAND, str(BIN / "waypost"))
        run = subprocess.run(
            [sys.executable, "-c", text.replace("/path/to", str(folder))],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert run.stdout.endswith("{'result': 3.0}\n"), run.stderr
    assert file == "started.py" or run.stdout.startswith("['add', 'divide']\n")


def test_the_client_of_fastmcp_sends_a_key(folder: Path) -> None:
    async def names(url: str) -> list[str]:
        async with Client(url, auth=KEY) as client:
            return [tool.name for tool in await client.list_tools()]

    with served("waypost", "serve", "authentication.py:hub", "--port", "0", folder=folder, ready=READY) as (_, address):
        assert asyncio.run(names(f"{address}/mcp")) == ["whoami", "write"]
