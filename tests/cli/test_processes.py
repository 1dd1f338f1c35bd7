"""`waypost serve --processes N`: several processes on one port, one that dies is replaced, and none is left behind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.cli.shell import PATIENCE, Serving, serving, waypost
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from waypost.cli import main
from waypost.cli.client import HubClient, RunningHub, read_hub_file
from waypost.errors import WaypostError

SERVER = """\
import os

from waypost import Hub

hub = Hub("desk", version="1", store=os.environ["DESK_STORE"], workers={"port": 0})


@hub.tool
async def process() -> int:
    \"\"\"The process that answers.\"\"\"
    return os.getpid()
"""


CONFIG = """\
version: "1"
server: {name: desk, version: "1", port: 0}
store: {url: "${DESK_STORE}"}
toolkits: ["./kit.py:Kit"]
"""
KIT = """\
import os
import time
from pathlib import Path

from waypost import Toolkit, tool

with Path("imported").open("a") as file:
    file.write("x")
while Path("imported").read_text() == "x" * int(os.environ["DESK_HOLD"]) and not Path("go").exists():
    time.sleep(0.01)


class Kit(Toolkit):
    @tool(description="Say hello.")
    def hello(self): return "hello"
"""


@contextmanager
def desk(folder: Path, store: str, *options: str) -> Iterator[tuple[Serving, list[psutil.Process]]]:
    """A hub in two processes, and the processes; none of them is left afterwards."""
    (folder / "server.py").write_text(SERVER)
    with serving("server.py:hub", "--port", "0", "--processes", "2", *options, cwd=folder, DESK_STORE=store) as hub:
        hub.wait_for(" is ready at ")
        processes = psutil.Process(hub.process.pid).children()
        try:
            yield hub, processes
        finally:
            everything = [*processes, *psutil.Process(hub.process.pid).children()] if hub.process.poll() is None else []
    _, left = psutil.wait_procs([*processes, *everything], PATIENCE)
    assert not left


def hub_file(folder: Path) -> RunningHub:
    """The `hub.json` of the hub."""
    return read_hub_file(folder / ".waypost" / "hub.json")


def call(hub: RunningHub) -> int:
    """Call over a new connection and return the process that answered."""
    return int(HubClient(hub.url, hub.key).post("tools/process/call", {"arguments": {}})["content"][0]["text"])


def until_answered_by(hub: RunningHub, expected: set[int]) -> None:
    """Call until each of these processes has answered, and no other."""
    seen: set[int] = set()
    deadline = time.monotonic() + PATIENCE
    while seen != expected:
        assert time.monotonic() < deadline, f"{expected} have to answer, and {seen} did"
        seen = (seen | {call(hub)}) & expected


def test_a_killed_process_is_replaced_while_calls_continue(tmp_path: Path, postgres_url: str) -> None:
    with desk(tmp_path, postgres_url) as (serving, [first, second]):
        hub = hub_file(tmp_path)
        assert hub.pid == serving.process.pid
        until_answered_by(hub, {first.pid, second.pid})
        assert waypost("replicas", cwd=tmp_path).stdout.count(" ready") == 2
        outcomes: list[bool] = []
        is_over = threading.Event()

        def keep_calling() -> None:
            while not is_over.is_set():
                try:
                    outcomes.append(call(hub) > 0)
                except WaypostError:  # from the killed process
                    outcomes.append(False)

        caller = threading.Thread(target=keep_calling)
        caller.start()
        try:
            second.kill()
            serving.wait_for(f"process {second.pid} of the hub ended (signal 9); it is started again in 0.2 s")
            deadline = time.monotonic() + PATIENCE
            while len(children := psutil.Process(serving.process.pid).children()) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            [third] = [one.pid for one in children if one.pid != first.pid]
            until_answered_by(hub, {first.pid, third})
        finally:
            is_over.set()
            caller.join(PATIENCE)
        assert outcomes.count(False) <= 2  # one call that ran, and one that waited to be accepted
        assert [line for line in serving.lines if " is ready at " in line or "sign in to" in line] == [
            f"desk is ready at {hub.url}/mcp, for workers at {hub.workers}",
            serving.wait_for("sign in to the console"),
        ]
    assert not (tmp_path / ".waypost" / "hub.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_processes(tmp_path: Path, postgres_url: str, number: signal.Signals) -> None:
    with desk(tmp_path, postgres_url) as (serving, processes):
        serving.signal(number)
        assert serving.wait() == 0
        assert not any(one.is_running() for one in processes)


def test_a_hangup_drains_processes_that_have_no_file_to_reload(tmp_path: Path, postgres_url: str) -> None:
    with desk(tmp_path, postgres_url) as (serving, _):
        serving.signal(signal.SIGHUP)
        assert serving.wait() == 0
        assert not any("of the hub ended" in line for line in serving.lines)


@pytest.mark.parametrize(("processes", "hold"), [("1", "1"), ("2", "1"), ("2", "2")])
def test_a_hangup_during_the_start_ends_nothing(tmp_path: Path, postgres_url: str, processes: str, hold: str) -> None:
    (tmp_path / "waypost.yaml").write_text(CONFIG)
    (tmp_path / "kit.py").write_text(KIT)
    imported = tmp_path / "imported"
    env = {"DESK_STORE": postgres_url, "DESK_HOLD": hold}
    with serving("waypost.yaml", "--processes", processes, cwd=tmp_path, **env) as hub:
        deadline = time.monotonic() + PATIENCE
        while not imported.exists() or imported.stat().st_size < int(hold):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        hub.signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        assert hub.find_url()


def test_the_processes_end_with_their_supervisor(tmp_path: Path, postgres_url: str) -> None:
    with desk(tmp_path, postgres_url) as (serving, processes):
        serving.signal(signal.SIGKILL)
        _, left = psutil.wait_procs(processes, PATIENCE)
        assert not left


def test_a_port_shared_by_the_processes_of_another_hub_is_in_use(tmp_path: Path, postgres_url: str) -> None:
    with desk(tmp_path, postgres_url):
        url = hub_file(tmp_path).url
        again = waypost(
            *("serve", "server.py:hub", "--processes", "2", "--port", url.rpartition(":")[2]),
            cwd=tmp_path,
            DESK_STORE=postgres_url,
        )
        assert again.returncode == 1
        assert "ddress already in use; stop what listens there, or choose another port." in again.stderr


def test_the_setting_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waypost.yaml"
    config.write_text('version: "1"\nserver: {name: desk, version: "1", processes: 3}\n')
    assert main(["serve", str(config)]) == 1
    assert capsys.readouterr().err == (
        "waypost: 3 processes need a database that they share: set store.url to a PostgreSQL URL, or serve one.\n"
    )


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["--processes", "2"], 1, "2 processes need a database that they share"),
        (["--processes", "2", "--reload"], 2, "--reload serves one process; leave --processes out."),
        (["--processes", "2", "--stdio"], 2, "--processes is for HTTP"),
    ],
)
def test_a_hub_that_cannot_be_served_in_processes_is_an_error(
    words: list[str], status: int, sentence: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "server.py:hub", *words]) == status
    assert sentence in capsys.readouterr().err


def test_a_process_that_cannot_start_ends_all_with_one_error(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    store = postgres_url.replace("/postgres?", "/nothing?")
    words = ("serve", "server.py:hub", "--port", "0", "--processes", "2")
    ended = waypost(*words, cwd=tmp_path, DESK_STORE=store)
    assert ended.returncode == 1
    assert ended.stderr.count("refused the connection") == 1
