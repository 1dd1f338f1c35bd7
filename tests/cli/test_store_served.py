"""Stores while a hub runs, and stores on which it does not start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import serving, waypost
from tests.cli.stored import LOOKING, change
from tests.cli.stored import file as file
from tests.locks import hold_lock


def test_store_commands_work_while_the_hub_runs(project: Path) -> None:
    with serving("waypost.yaml", cwd=project) as hub:
        assert hub.url
        for arguments in LOOKING:
            done = waypost("store", *arguments, cwd=project)
            assert (done.returncode, done.stderr) == (0, ""), arguments


def refusal(project: Path, target: str = "waypost.yaml") -> str:
    """The error of a hub that does not start."""
    done = waypost("serve", target, "--port", "0", cwd=project)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("waypost: ")
    assert not (project / ".waypost" / "hub.json").exists()
    return line


@pytest.mark.parametrize("target", ["waypost.yaml", "server.py:hub"])
def test_a_hub_does_not_start_on_a_damaged_store(target: str, file: Path, project: Path) -> None:
    file.write_bytes(b"no database at all" * 100)

    assert "is not a SQLite database" in refusal(project, target)


def test_a_hub_does_not_start_on_a_newer_store(file: Path, project: Path) -> None:
    change(file, "INSERT INTO migrations VALUES (999, 'from tomorrow')")

    assert "written by a newer Waypost" in refusal(project)


def test_a_hub_does_not_start_on_a_store_that_cannot_be_opened(project: Path) -> None:
    (project / ".waypost" / "waypost.db").mkdir(parents=True)

    assert "cannot be opened" in refusal(project)


def test_a_hub_does_not_start_on_a_store_it_cannot_migrate(project: Path) -> None:
    empty = project / ".waypost" / "waypost.db"
    empty.parent.mkdir()
    change(empty, "PRAGMA journal_mode = WAL")

    with hold_lock(empty):
        assert "locked by another process" in refusal(project)


@pytest.mark.parametrize("target", ["waypost.yaml", "server.py:hub"])
def test_a_served_hub_keeps_its_store_in_the_data_directory(target: str, project: Path) -> None:
    with serving(target, "--port", "0", "--data", "chosen", cwd=project) as hub:
        assert hub.url
        assert (project / "chosen" / "waypost.db").exists()
    assert not (project / ".waypost").exists()


def test_a_served_hub_with_its_own_store_uses_it(project: Path) -> None:
    (project / "own.py").write_text(
        "from waypost import Hub\nhub = Hub('own', version='1', store='sqlite:///own.db')\n"
    )
    with serving("own.py:hub", "--port", "0", cwd=project) as hub:
        assert hub.url
        kept: list[Any] = sorted(path.name for path in (project / ".waypost").glob("*.db"))
        assert kept == ["own.db"]
