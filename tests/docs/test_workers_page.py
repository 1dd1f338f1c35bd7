"""The page about workers names everything that a worker can do, and its examples run beside a real hub."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, EXAMPLES, ROOT, WORKER_FILES
from tests.interop import npm
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, at_work, hub_for_workers
from waypost.documents.delegation import Settings, read_settings
from waypost.runtime.assembly import check
from waypost.worker import Handshake, Reconnecting, Worker, register_worker
from waypost.worker.connection import MAX_OFFLINE_CALLS

TEXT: Final = "".join((DOCS / page).read_text() for page in ("workers.md", "worker-reference.md"))
FOLDER: Final = ROOT / "examples" / "workers"
CELLS: Final = re.findall(r"^\| `(\w+)[(`]", TEXT, re.MULTILINE)


def test_the_page_names_every_option_and_method_of_a_worker() -> None:
    options = list(inspect.signature(register_worker).parameters)
    methods = [name for name in vars(Worker) if not name.startswith("_")]

    assert [name for name in (*options, *methods) if name not in CELLS] == []


def test_the_page_has_the_defaults() -> None:
    assert f"`{Reconnecting()!r}`" in TEXT
    assert f"`{Handshake()!r}`" in TEXT
    defaults = inspect.signature(register_worker).parameters
    for name in ("timeout_ms", "max_running"):
        assert f"| `{name}` | {defaults[name].default} |" in TEXT
    assert f"{MAX_OFFLINE_CALLS} calls wait" in TEXT


def test_every_example_is_linked_or_shown() -> None:
    shown = {"waypost.yaml", "config.yaml", "plain.py"}
    assert [path.name for path in WORKER_FILES if f"/{path.name})" not in TEXT and path.name not in shown] == []


def test_the_configurations_are_valid() -> None:
    assert check(FOLDER / "waypost.yaml") == []
    assert read_settings(FOLDER / "config.yaml") == Settings()


def test_the_examples_are_tested_with_the_sdk_that_they_name() -> None:
    versions = [
        json.loads((folder / "package.json").read_text())["dependencies"]["iii-sdk"] for folder in (FOLDER, npm.HERE)
    ]
    assert versions[0] == versions[1]


@asynccontextmanager
async def example(url: str, home: Path, *command: str | Path) -> AsyncIterator[Process]:
    """An example that runs until the block ends."""
    environment = {**os.environ, "III_URL": url, "HOME": str(home), "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(*map(str, command), env=environment, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: Process) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    printed = (await process.stdout.readline()).decode().rstrip("\n")
    if not printed and process.stderr is not None:
        raise AssertionError((await process.stderr.read()).decode())
    return printed


async def ends_at_ctrl_c(process: Process) -> None:
    """Ctrl-C ends it without a traceback."""
    process.send_signal(signal.SIGINT)
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert "Traceback" not in said.decode()


@pytest.mark.parametrize("file", ["demo.py", "demo_sdk.py", "demo.mjs"])
@asynchronous
async def test_a_demo_publishes_a_skill_and_a_slash_command(file: str, tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, FOLDER / file]
    if file.endswith(".mjs"):
        npm.install()
        shutil.copy(FOLDER / file, tmp_path)
        (tmp_path / "node_modules").symlink_to(npm.MODULES)
        command = [npm.node(), tmp_path / file]
    hub = hub_for_workers()
    async with at_work(hub) as client, example(address(hub), tmp_path, *command) as process:
        while await line(process) != "demo is ready":  # the SDK of npm reports on its telemetry first
            pass
        assert [one.name for one in hub.workers.connected] == ["demo"]

        skill = (await client.read_resource("iii://demo"))["contents"][0]["text"]
        (link,) = re.findall(r"\((iii://[^)]+)\)", skill)
        guide = (await client.read_resource(link))["contents"][0]
        assert guide["text"] == "# Demo guide\n\nThe long-form docs for the demo worker."
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        assert prompt["messages"][0]["content"]["text"] == "Greet Ada warmly."
        tool = await client.call_tool("demo__greet_prompt", {"name": "Ada"})
        assert tool["structuredContent"] == {"content": "Greet Ada warmly."}
        await ends_at_ctrl_c(process)


@asynchronous
async def test_the_orders_are_placed_and_confirmed(tmp_path: Path) -> None:
    hub = hub_for_workers()
    async with at_work(hub), example(address(hub), tmp_path, sys.executable, FOLDER / "orders.py") as process:
        printed = [await line(process) for _ in range(6)]
        assert {"{'status': 'placed'}", "receipt 36", "order_empty The order a4 is empty."} <= set(printed)
        assert {one for one in printed if one.startswith("confirmed")} == {f"confirmed a{n}" for n in (1, 2, 3)}
        await ends_at_ctrl_c(process)


@asynchronous
async def test_the_mailer_ends_at_ctrl_c(tmp_path: Path) -> None:
    hub = hub_for_workers()
    async with at_work(hub), example(address(hub), tmp_path, sys.executable, EXAMPLES / "mailer.py") as process:
        assert await line(process) == "mailer is ready"
        await ends_at_ctrl_c(process)


@pytest.mark.parametrize(
    ("file", "lines"),
    [
        ("plain.py", ["HELLO"]),
        ("channels.py", ["HELLO, WORLD", "12 bytes"]),
        ("watching.py", ["watcher charged 700 {'charged': True}"]),
        ("clock.py", ["second 3", "NEVER every has to be 1 or more"]),
    ],
)
@asynchronous
async def test_a_program_runs_to_its_end(file: str, lines: list[str], tmp_path: Path) -> None:
    hub = hub_for_workers()
    async with at_work(hub), example(address(hub), tmp_path, sys.executable, FOLDER / file) as process:
        assert [await line(process) for _ in lines] == lines
        assert await process.wait() == 0
        await until(lambda: hub.workers.connected == [])
