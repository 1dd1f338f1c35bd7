"""The demo: every step of its tour succeeds, it waits for a person at a terminal, and leaves no process."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.interop.processes import ROOT
from tests.upstreams.programs import nothing_left

WITHIN = 200.0
pytestmark = pytest.mark.timeout(240)  # it starts many processes on a busy machine
COMMAND = [sys.executable, "-m", "examples.demo.tour"]


def test_every_step_of_the_tour_succeeds_and_no_process_is_left() -> None:
    with nothing_left():
        played = subprocess.run([*COMMAND, "--once"], cwd=ROOT, capture_output=True, text=True, timeout=WITHIN)
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.endswith("Every step held.\n")
    assert re.search(r"datetime.*T21:00:00\+09:00", played.stdout)
    assert "\x1b" not in played.stdout


def test_a_failed_step_shows_the_log_of_the_hub(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    ideas = tmp_path / "examples" / "demo" / "ideas.py"
    ideas.write_text(ideas.read_text().replace('"checks": "three"', '"checks": 3, "release": "2.2"'))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}"}
    played = subprocess.run(
        [*COMMAND, "--once"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WITHIN
    )
    assert played.returncode == 1
    assert "A step did not hold: " in played.stderr
    assert "is ready at" in played.stderr.partition("The last lines of the hub's log:")[2]


class Person:
    """A person at a pseudo terminal, who reads what the tour prints and types."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.seen = ""

    def read_until(self, text: str) -> str:
        """Read the output up to an expected text."""
        while text not in self.seen:
            self.seen += os.read(self._terminal, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._terminal, f"{text}\n".encode())

    def leave(self) -> None:
        """Close the terminal."""
        os.close(self._terminal)


@contextmanager
def tour(folder: Path) -> Iterator[tuple[Person, psutil.Process]]:
    """The tour at its own terminal; all of its processes must have ended afterwards."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        COMMAND,
        cwd=ROOT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TMPDIR": str(folder), "DEMO_PORT": "0", "DEMO_WORKER_PORT": "0"},
        start_new_session=True,
    )
    os.close(slave)
    started = psutil.Process(process.pid)
    try:
        yield Person(master), started
    finally:
        with suppress(psutil.NoSuchProcess):
            started.kill()
        process.wait(WITHIN)
        with suppress(OSError):
            os.close(master)


def test_a_person_rejects_then_approves_and_pastes_the_suggested_command(tmp_path: Path) -> None:
    with tour(tmp_path) as (person, process):
        for _ in range(7):
            person.read_until("Enter to go on")
            person.type("")
        person.read_until("You decide [y/n]:")
        person.type("")  # an empty line is not a decision
        assert "reject" not in person.read_until("You decide [y/n]:")
        person.type("n")
        person.read_until("You decide [y/n]:")
        person.type("y")
        assert "shipped" in person.read_until("Enter to go on")
        person.type("")
        person.read_until("Enter to go on")
        person.type("")
        person.read_until("Paste into another terminal")
        offered = re.sub(r"\x1b\[[0-9;]*m", "", person.read_until("MCP Inspector"))
        commands = [line.strip() for line in offered.splitlines() if " " in line.strip()]
        assert len(commands) == 5
        printed = [
            subprocess.run(shlex.split(line), cwd="/", capture_output=True, text=True, check=True).stdout
            for line in commands
        ]
        assert "release.status" in printed[0] and "testing" in printed[1] and "clock." in printed[2]
        assert "shipped" in printed[3] and "workflow" in printed[4]
        data = Path(commands[3].split()[-1])
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN) == 0
        assert not data.exists()


def test_a_decision_in_another_terminal_continues_the_tour(tmp_path: Path) -> None:
    with tour(tmp_path) as (person, process):
        for _ in range(7):
            person.read_until("Enter to go on")
            person.type("")
        shown = re.sub(r"\x1b\[[0-9;]*m", "", person.read_until("You decide [y/n]:"))
        (command,) = re.findall(r"\S+ approvals approve .*", shown)
        subprocess.run(shlex.split(command), cwd="/", capture_output=True, check=True)
        assert "Decided elsewhere." in person.read_until("Enter to go on")
        person.type("")
        person.read_until("runs show")
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN) == 0


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "the terminal is gone"])
def test_any_end_of_the_tour_leaves_no_process(end: str, tmp_path: Path) -> None:
    with tour(tmp_path) as (person, process):
        person.read_until("Enter to go on")
        everything = [process, *process.children(recursive=True)]
        assert len(everything) >= 3
        if end.startswith("SIG"):
            process.send_signal(getattr(signal, end))
        else:
            person.leave()
        _, alive = psutil.wait_procs(everything, WITHIN)
        assert alive == []
