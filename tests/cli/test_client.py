"""Finding a running hub by URL and key, or by the `hub.json` in its data directory."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.operated import AGENT, Captured, complaint, note_of, operated
from tests.cli.shell import waypost
from waypost.cli import main
from waypost.cli.client import (
    HubClient,
    RunningHub,
    find_other_hub,
    read_hub_file,
    remove_hub_file,
    write_hub_file,
)
from waypost.errors import WaypostError

LIST = ["keys", "list"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder without a hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WAYPOST_DATA", raising=False)


def test_a_hub_writes_a_hub_file_with_a_key_and_removes_it_when_it_stops(tmp_path: Path) -> None:
    note = tmp_path / ".waypost" / "hub.json"
    with operated(tmp_path) as hub:
        left = note_of(tmp_path)
        assert left.keys() == {"url", "key", "pid", "workers"}
        assert (left["url"], left["pid"]) == (hub.url.removesuffix("/mcp"), hub.process.pid)
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        assert [file.name for file in note.parent.iterdir() if "hub.json" in file.name] == ["hub.json"]
        assert waypost(*LIST, cwd=tmp_path).returncode == 0
    assert not note.exists()


def test_a_second_hub_on_a_directory_keeps_the_hub_file_of_the_first_and_logs_it(tmp_path: Path) -> None:
    with operated(tmp_path) as first:
        left = note_of(tmp_path)
        with operated(tmp_path) as second:
            assert note_of(tmp_path) == left
        assert f"belongs to the hub at {left['url']} (process {first.process.pid})" in "".join(second.lines)
        assert note_of(tmp_path) == left
        assert waypost(*LIST, cwd=tmp_path).returncode == 0


def test_a_hub_file_of_a_process_that_is_not_a_hub_is_ignored(tmp_path: Path) -> None:
    for pid in (os.getpid(), os.getppid()):
        write_hub_file(tmp_path / "hub.json", RunningHub("http://127.0.0.1:1", "wp_x", pid))
        assert find_other_hub(tmp_path / "hub.json") is None


def test_every_start_creates_a_new_key(tmp_path: Path) -> None:
    keys = set()
    for _ in range(2):
        with operated(tmp_path):
            keys.add(note_of(tmp_path)["key"])
    assert len(keys) == 2


def test_a_hub_is_found_by_its_directory_the_environment_or_its_address(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    with operated(tmp_path, "--data", "kept") as hub:
        key = json.loads((tmp_path / "kept" / "hub.json").read_text())["key"]
        assert waypost(*LIST, "--data", tmp_path / "kept", cwd=away).returncode == 0
        assert waypost(*LIST, cwd=away, WAYPOST_DATA=str(tmp_path / "kept")).returncode == 0
        for url in (hub.url, hub.url.removesuffix("/mcp"), f"{hub.url}/"):
            assert waypost(*LIST, "--url", url, "--key", key, cwd=away).returncode == 0


def test_a_missing_invalid_or_insufficient_key_is_a_one_line_error(tmp_path: Path, capsys: Captured) -> None:
    with operated(tmp_path) as hub:
        for more, answer in (
            ([], "Missing Authorization header"),
            (["--key", "wp_nobody"], "Invalid API key"),
            (["--key", AGENT], "agent does not have the role viewer; pass another key"),
        ):
            assert main([*LIST, "--url", hub.url, *more]) == 1
            assert answer in complaint(capsys)
        assert main([*LIST, "--key", "wp_\nX: y"]) == 1
        assert complaint(capsys) == "waypost: The key cannot be sent: it has characters that no key has."


def test_the_key_in_the_data_directory_is_not_sent_to_another_address(tmp_path: Path, capsys: Captured) -> None:
    with operated(tmp_path) as hub:
        other = hub.url.replace("127.0.0.1", "localhost")
        assert main([*LIST, "--url", other]) == 1
        assert "Missing Authorization header" in complaint(capsys)


def test_a_directory_without_a_hub_is_a_one_line_error(capsys: Captured) -> None:
    assert main(LIST) == 1
    line = complaint(capsys)
    assert line.startswith("waypost: No hub is running here: there is no .waypost/hub.json")
    assert "--url" in line


def test_a_hub_that_has_ended_is_a_one_line_error(tmp_path: Path, capsys: Captured) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    write_hub_file(tmp_path / "hub.json", RunningHub("http://127.0.0.1:1", "wp_x", process.pid))
    assert main([*LIST, "--data", str(tmp_path)]) == 1
    assert f"has ended (process {process.pid})" in complaint(capsys)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}', '{"url": "http://127.0.0.1:1", "pid": 1}'])
def test_an_invalid_hub_file_is_a_one_line_error(text: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "hub.json").write_text(text)
    assert main([*LIST, "--data", str(tmp_path)]) == 1
    assert "hub.json cannot be read: " in complaint(capsys)


@pytest.mark.parametrize("pid", [0, -1, 2**70])
def test_a_hub_file_with_an_impossible_process_id_is_an_error(pid: int, tmp_path: Path) -> None:
    (tmp_path / "hub.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "key": "wp_x", "pid": pid}))
    with pytest.raises(WaypostError):
        read_hub_file(tmp_path / "hub.json")


def test_an_address_without_a_server_is_a_one_line_error(capsys: Captured) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert main([*LIST, "--url", url]) == 1
    assert complaint(capsys) == f"waypost: No hub answers at {url}: Connection refused."


@pytest.mark.parametrize("url", ["127.0.0.1:8420", "ftp://127.0.0.1", "http://", "http://127.0.0.1:many", "http://[::"])
def test_an_invalid_address_is_a_one_line_error(url: str, capsys: Captured) -> None:
    assert main([*LIST, "--url", url]) == 2
    assert "is not the address of a hub" in complaint(capsys)


class ForeignHandler(BaseHTTPRequestHandler):
    """A server that is not a hub."""

    def do_GET(self) -> None:
        self.server.__dict__["asked"] = self.path
        self.send_response(302 if "moved" in self.path else 200)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def foreign_server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), ForeignHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("path", "status"), [("", 200), ("/moved", 302)])
def test_a_server_that_is_not_a_hub_is_a_one_line_error(path: str, status: int, capsys: Captured) -> None:
    with foreign_server() as server:
        url = f"http://127.0.0.1:{server.server_port}{path}"
        assert main([*LIST, "--url", f"{url}/mcp", "--key", "wp_x"]) == 1
        assert complaint(capsys) == f"waypost: {url} answered {status} without JSON; is it a Waypost hub?"
        assert server.__dict__["asked"] == f"{path}/api/v1/keys"


def test_a_hub_on_all_interfaces_is_reached_on_loopback() -> None:
    assert HubClient("http://0.0.0.0:8420", None)._host == "127.0.0.1"
    assert HubClient("http://[::]:8420", None)._host == "::1"


def test_the_hub_file_of_another_hub_is_not_removed(tmp_path: Path) -> None:
    file = tmp_path / "hub.json"
    mine, other = (RunningHub("http://127.0.0.1:1", key, os.getpid()) for key in ("wp_mine", "wp_other"))
    write_hub_file(file, mine)
    write_hub_file(file, other)
    remove_hub_file(file, mine)
    assert read_hub_file(file) == other
    remove_hub_file(file, other)
    assert not file.exists()
    remove_hub_file(file, other)
