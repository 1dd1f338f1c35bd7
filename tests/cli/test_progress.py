"""Progress is drawn at a terminal while work goes on, and nowhere else."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import COMMAND, environment
from waypost.cli import command, main, store
from waypost.cli.command import Progress


class Terminal(io.StringIO):
    """A stream that is a terminal, with an event for the first drawing."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.drawn.set()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is drawn from the beginning."""
    monkeypatch.setattr(command, "DELAY_S", 0.0)
    monkeypatch.setattr(command, "_INTERVAL_S", 0.001)


@pytest.mark.usefixtures("at_once")
def test_a_bar_shows_the_completed_part_and_is_removed() -> None:
    terminal = Terminal()
    with Progress("copying", lambda: 0.5, terminal):
        assert terminal.drawn.wait(60)

    assert "copying [############............] 50%" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[2K")


@pytest.mark.usefixtures("at_once")
def test_without_a_measure_the_time_is_shown() -> None:
    terminal = Terminal()
    with Progress("waiting", stream=terminal):
        assert terminal.drawn.wait(60)

    assert "waiting | 0 s" in terminal.getvalue()


@pytest.mark.usefixtures("at_once")
def test_nothing_is_written_without_a_terminal() -> None:
    stream, before = io.StringIO(), threading.active_count()
    with Progress("copying", lambda: 0.5, stream):
        assert threading.active_count() == before

    assert stream.getvalue() == ""


def test_work_of_less_than_a_second_draws_nothing() -> None:
    terminal = Terminal()
    with Progress("copying", lambda: 0.5, terminal):
        pass

    assert terminal.getvalue() == ""


def test_the_progress_of_a_backup_is_the_size_of_the_copy(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measures: dict[str, Callable[[], float] | None] = {}

    def noted(label: str, measure: Callable[[], float] | None) -> Progress:
        measures[label.partition(" ")[0]] = measure
        return Progress(label, measure)

    monkeypatch.setattr(store, "Progress", noted)
    assert main(["store", "migrate", "waypost.yaml"]) == 0
    size = sum(file.stat().st_size for file in (project / ".waypost").glob("waypost.db*") if "shm" not in file.name)

    assert main(["store", "backup", "waypost.yaml", "--to", "copy.db"]) == 0

    measure = measures["backup"]
    assert measure is not None
    assert measure() == (project / "copy.db").stat().st_size / size
    assert measures["migrate"] is None


def test_json_is_indented_at_a_terminal_and_one_line_in_a_pipe(project: Path) -> None:
    ours, theirs = pty.openpty()
    command = [COMMAND, "doctor", "--json"]
    with subprocess.Popen(command, cwd=project, env=environment(), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # the end of a terminal on Linux
                break
            if not part:
                break
            shown += part
    os.close(ours)
    piped = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, timeout=60)

    assert process.returncode == piped.returncode == 0
    assert b'[\r\n  {\r\n    "check": "configuration"' in shown
    assert piped.stdout.startswith('[{"check": "configuration"')
    assert piped.stderr == ""
