"""`waypost init`: the files that it writes work unchanged."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import PATIENCE, serving, waypost
from waypost.cli import main

FILES = {"waypost.yaml", "tools.py", "mcp.json"}

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def written(tmp_path: Path, capsys: Captured) -> Path:
    """A folder that `init` filled."""
    folder = tmp_path / "my-hub"
    assert main(["init", str(folder)]) == 0
    capsys.readouterr()
    return folder


def test_three_files_are_written(tmp_path: Path, capsys: Captured) -> None:
    assert main(["init", str(tmp_path / "deep" / "hub")]) == 0

    assert {file.name for file in (tmp_path / "deep" / "hub").iterdir()} == FILES
    said = capsys.readouterr()
    assert said.err == ""
    assert all(name in said.out for name in FILES)


def test_the_current_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["init"]) == 0
    assert {file.name for file in tmp_path.iterdir()} == FILES


def test_the_written_configuration_has_no_findings(written: Path, capsys: Captured) -> None:
    assert main(["check", str(written / "waypost.yaml")]) == 0
    assert capsys.readouterr().out.endswith("nothing wrong\n")


def test_the_written_tools_can_be_listed_and_called(written: Path, capsys: Captured) -> None:
    config = str(written / "waypost.yaml")

    assert main(["list", config, "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["add", "server_time"]
    assert main(["call", config, "add", '{"a": 1, "b": 2}']) == 0
    assert capsys.readouterr().out == "3.0\n"


def test_the_suggested_command_works(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "two words"
    assert main(["init", str(folder)]) == 0
    (suggested,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Try it:")]
    command = shlex.split(suggested.removeprefix("Try it:"))

    assert command[0] == "waypost"
    assert main(command[1:]) == 0
    assert capsys.readouterr().out == "3.0\n"


def test_the_written_configuration_can_be_served(written: Path, capsys: Captured) -> None:
    with serving(written / "waypost.yaml", "--port", "0", cwd=written.parent) as hub:
        assert main(["call", hub.url, "add", '{"a": 1, "b": 2}']) == 0
        assert capsys.readouterr().out == "3.0\n"


def test_the_client_entry_starts_the_hub_from_anywhere(written: Path) -> None:
    entry = json.loads((written / "mcp.json").read_text())["mcpServers"]["my-hub"]

    assert entry["args"] == ["serve", str(written / "waypost.yaml"), "--stdio"]
    # With an empty stdin it starts, finds that the client has disconnected, and ends.
    done = started(entry)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_client_entry_uses_the_interpreter_if_there_is_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert main(["init", str(tmp_path / "my-hub")]) == 0
    entry = json.loads((tmp_path / "my-hub" / "mcp.json").read_text())["mcpServers"]["my-hub"]

    assert (entry["command"], entry["args"][:2]) == (sys.executable, ["-m", "waypost"])


def started(entry: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the command of a client entry in an empty environment."""
    return subprocess.run(
        [entry["command"], *entry["args"]],
        cwd="/",
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_is_overwritten(name: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / name).write_text("mine")

    assert main(["init", str(tmp_path)]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert f"already has {name}; choose" in said.err
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {name: "mine"}


def test_a_second_init_in_the_same_folder_is_refused(written: Path) -> None:
    done = waypost("init", written, cwd=written)

    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("place", ["taken", "taken/hub"])
def test_a_path_that_is_not_a_folder_is_a_one_line_error(place: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "taken").write_text("a file")

    assert main(["init", str(tmp_path / place)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "taken" in line


@pytest.mark.parametrize("name", ["Two Words", 'quo"te', "colon: x", "ünï", "{brace}"])
def test_a_folder_of_any_name_gives_a_hub_that_works(name: str, tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / name

    assert main(["init", str(folder)]) == 0
    assert main(["check", str(folder / "waypost.yaml")]) == 0
    json.loads((folder / "mcp.json").read_text())
