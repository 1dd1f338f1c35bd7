"""Toolkits of a configuration file: configured, opened with the hub, and replaced by a reload."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous, until
from waypost import ConfigError, Hub
from waypost.testing import connect

KIT = """
from pathlib import Path
from waypost import Context, Toolkit, tool


class Db(Toolkit):
    def __init__(self, path: str = "", size: int = 1):
        self.path, self.size = path, size

    def note(self, event: str) -> None:
        with open(Path(__file__).parent / "events", "a") as file:
            file.write(event + "\\n")

    async def open(self) -> None:
        self.note(f"open {self.path} {self.size}")

    def close(self) -> None:
        self.note(f"close {self.path}")

    @tool
    def where(self) -> str:
        \"\"\"Say where the data is.\"\"\"
        return f"{self.path}:{self.size}"

    @tool
    async def work(self, ctx: Context) -> str:
        \"\"\"Work as long as another tool does.\"\"\"
        await ctx.invoke("hold")
        return self.path
"""


def write(folder: Path, config: str, server: str = "server: {surface: full}") -> Path:
    (folder / "db.py").write_text(KIT)
    file = folder / "waypost.yaml"
    file.write_text(f"{server}\ntoolkits: [{{use: ./db.py:Db, config: {config}}}]\n")
    return file


def events(folder: Path) -> list[str]:
    return (folder / "events").read_text().splitlines()


@asynchronous
async def test_a_toolkit_gets_its_config_and_is_opened_and_closed(tmp_path: Path) -> None:
    hub = Hub.from_config(write(tmp_path, "{path: here, size: 3}"))
    async with connect(hub) as client:
        assert (await client.call_tool("where")).text == "here:3"
    await hub.stop()

    assert events(tmp_path) == ["open here 3", "close here"]


@asynchronous
async def test_a_reload_opens_the_new_toolkit_before_it_closes_the_old_one(tmp_path: Path) -> None:
    file = write(tmp_path, "{path: old}")
    hub = Hub.from_config(file)
    async with connect(hub) as client:
        write(tmp_path, "{path: new}")
        assert await hub.reload()
        assert (await client.call_tool("where")).text == "new:1"
    await hub.stop()

    assert events(tmp_path) == ["open old 1", "open new 1", "close old", "close new"]


class Hold:
    """A tool that runs until the test ends it."""

    def __init__(self, hub: Hub, *, is_stubborn: bool = False) -> None:
        self.began, self.end = asyncio.Event(), asyncio.Event()
        self._is_stubborn = is_stubborn
        hub.tool(self.hold, name="hold")

    async def hold(self) -> str:
        self.began.set()
        while not self.end.is_set():
            try:
                await self.end.wait()
            except asyncio.CancelledError:
                if not self._is_stubborn:
                    raise
        return "held"


@asynchronous
async def test_a_replaced_toolkit_is_closed_when_the_calls_that_began_in_it_have_ended(tmp_path: Path) -> None:
    hub = Hub.from_config(write(tmp_path, "{path: old}"))
    hold = Hold(hub)
    async with connect(hub) as client:
        call = asyncio.create_task(client.call_tool("work"))
        await hold.began.wait()
        write(tmp_path, "{path: new}")
        assert await hub.reload()
        assert (await client.call_tool("where")).text == "new:1"
        assert events(tmp_path) == ["open old 1", "open new 1"]
        hold.end.set()
        assert (await call).text == "old"
        await until(lambda: events(tmp_path) == ["open old 1", "open new 1", "close old"])
    await hub.stop()


@asynchronous
async def test_a_replaced_toolkit_does_not_wait_for_calls_of_other_tools_of_the_file(tmp_path: Path) -> None:
    began, end = tmp_path / "began", tmp_path / "end"
    script = f"touch {began}; while [ ! -e {end} ]; do sleep 0.02; done"
    command = f'{{kind: cli, command: sh, args: ["-c", "{script}"]}}'
    server = f"server: {{surface: full}}\nproxy: {{expose: [{{name: held, executor: {command}}}]}}"
    hub = Hub.from_config(write(tmp_path, "{path: old}", server))
    async with connect(hub) as client:
        call = asyncio.create_task(client.call_tool("held"))
        await until(began.exists)
        write(tmp_path, "{path: new}", server)
        assert await hub.reload()
        assert events(tmp_path) == ["open old 1", "open new 1", "close old"]
        assert not call.done()
        end.touch()
        await call
    await hub.stop()


@asynchronous
async def test_a_hub_that_stops_closes_a_replaced_toolkit_at_once(tmp_path: Path) -> None:
    hub = Hub.from_config(write(tmp_path, "{path: old}"))
    hold = Hold(hub)
    async with connect(hub) as client:
        call = asyncio.create_task(client.call_tool("work"))
        await hold.began.wait()
        write(tmp_path, "{path: new}")
        assert await hub.reload()
        await hub.runtime.configuration.stop()  # type: ignore[union-attr]  # the part of a stop that is meant
        assert events(tmp_path) == ["open old 1", "open new 1", "close old", "close new"]
        hold.end.set()
        await call
    await hub.stop()


@asynchronous
async def test_a_replaced_toolkit_is_closed_after_the_tool_timeout_although_a_call_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = "server: {surface: full, toolTimeoutMs: 1000}"  # the call has to begin within it
    hub = Hub.from_config(write(tmp_path, "{path: old}", server))
    hold = Hold(hub, is_stubborn=True)
    async with connect(hub) as client:
        call = asyncio.create_task(client.call_tool("work"))
        await hold.began.wait()
        write(tmp_path, "{path: new}", server)
        assert await hub.reload()
        await until(lambda: "close old" in events(tmp_path))
        hold.end.set()
        assert (await call).is_error
    await hub.stop()
    assert "calls still run in toolkits that a reload replaced" in caplog.text


@asynchronous
async def test_a_reload_of_unchanged_files_leaves_the_toolkit_open(tmp_path: Path) -> None:
    hub = Hub.from_config(write(tmp_path, "{path: here}"))
    await hub.start()
    assert await hub.reload()
    await hub.stop()

    assert events(tmp_path) == ["open here 1", "close here"]


@asynchronous
async def test_a_reload_reads_unchanged_files_again_when_the_environment_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE_TO", "old")
    hub = Hub.from_config(write(tmp_path, "{path: '${WHERE_TO}'}"))
    async with connect(hub) as client:
        monkeypatch.setenv("WHERE_TO", "new")
        assert await hub.reload()
        assert (await client.call_tool("where")).text == "new:1"
    await hub.stop()


@pytest.mark.parametrize(
    ("config", "reason"),
    [("{paht: x}", "Db does not take this config: got an unexpected keyword argument 'paht'")],
)
def test_config_that_does_not_fit_is_a_finding(tmp_path: Path, config: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Hub.from_config(write(tmp_path, config))
