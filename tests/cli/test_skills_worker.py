"""`waypost skills-worker`: the registry as a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cli.shell import COMMAND, environment, waypost
from tests.protocol.conftest import asynchronous
from tests.worker.engine import working
from tests.workers.wire import address, at_work, hub_for_workers

READY = "skills-worker is ready"


async def read_until(process: Process, says: str, lines: list[str]) -> None:
    """Read the stderr of the command until a line contains a text."""
    assert process.stderr is not None
    while says not in "".join(lines[-1:]):
        line = (await process.stderr.readline()).decode()
        assert line, lines
        lines.append(line)


@asynccontextmanager
async def skills_worker(url: str, folder: Path, says: str = READY) -> AsyncIterator[tuple[Process, list[str]]]:
    """The command, once a line contains a text, and the lines up to it."""
    command = (COMMAND, "skills-worker", "--url", url)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment(), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    lines: list[str] = []
    try:
        await read_until(process, says, lines)
        yield process, lines
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def test_the_manifest_is_printed_and_nothing_is_connected(tmp_path: Path) -> None:
    done = waypost("skills-worker", "--manifest", "--url", "ws://127.0.0.1:1", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["name"] == "skills"


def test_the_help_names_the_defaults(tmp_path: Path) -> None:
    done = waypost("skills-worker", "-h", cwd=tmp_path)

    assert done.returncode == 0
    assert "./config.yaml" in done.stdout
    assert "ws://127.0.0.1:49134" in done.stdout


def test_an_invalid_address_is_refused(tmp_path: Path) -> None:
    done = waypost("skills-worker", "--url", "nowhere", cwd=tmp_path)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "nowhere is not a URL that begins with ws:// or wss://" in done.stderr


@asynchronous
async def test_it_keeps_skills_for_an_engine_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("scopes: {skills: texts}\n")
    hub = hub_for_workers(workers={"port": 0, "registry": False})
    async with (
        at_work(hub) as client,
        working(hub) as worker,
        skills_worker(address(hub), tmp_path) as (process, lines),
    ):
        assert len(lines) == 1
        assert await worker.publish_skill("demo", "# demo\n\nA demo worker.\n")
        tool = await client.call_tool("skill__fetch", {"uri": "iii://demo"})
        assert "A demo worker." in tool["content"][0]["text"]
        assert len(await worker.trigger("state::list", {"scope": "texts"})) == 1
        assert [one.name for one in hub.workers.connected] == ["one", "skills"]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@asynchronous
async def test_a_second_worker_stands_by_and_takes_over_when_the_first_ends(tmp_path: Path) -> None:
    hub = hub_for_workers(workers={"port": 0, "registry": False})
    async with at_work(hub), working(hub) as worker:
        heard: asyncio.Queue[Any] = asyncio.Queue()
        worker.register_function("a::changed", heard.put_nowait)
        worker.register_trigger("skills::on-change", "a::changed")
        async with (
            skills_worker(address(hub), tmp_path) as (first, _),
            skills_worker(address(hub), tmp_path, "stands by") as (second, lines),
        ):
            assert not any(READY in line for line in lines)
            assert await worker.publish_skill("demo", "# demo\n")
            assert (await heard.get())["id"] == "demo"
            first.kill()
            await read_until(second, READY, lines)
            await worker.trigger("skills::register", {"id": "other", "skill": "# other\n"})
            assert (await heard.get())["id"] == "other"
            second.send_signal(signal.SIGTERM)
            assert await second.wait() == 0


@asynchronous
async def test_a_standby_worker_can_be_stopped(tmp_path: Path) -> None:
    hub = hub_for_workers(workers={"port": 0})
    async with at_work(hub), skills_worker(address(hub), tmp_path, "stands by") as (process, lines):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert process.stderr is not None
        assert READY not in "".join(lines) + (await process.stderr.read()).decode()


@asynchronous
async def test_an_unreadable_configuration_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("scopes: [\n")
    hub = hub_for_workers(workers={"port": 0, "registry": False})
    async with at_work(hub), skills_worker(address(hub), tmp_path) as (process, lines):
        (warning,) = [json.loads(line) for line in lines[:-1]]
        assert warning["level"] == "warning"
        assert "config.yaml cannot be read, so the defaults hold" in warning["message"]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
