"""A newcomer pastes every command of the README and the Start pages, in order, in an empty directory."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.docs.test_commands import BIN, HOME, agrees
from tests.ports import free_port

REAL: Final = bool(os.environ.get("WAYPOST_NEWCOMER_INSTALLS"))
"""Whether the commands that install something really run, as `make newcomer` has it."""
INSTALLS: Final = ("python3 -m venv", ".venv/bin/pip install", "source ", "pip install")
ELSEWHERE: Final = {
    "make": "test_demo.py plays the demo, and this test is part of `make test`",
    "claude": "a client that is not installed here",
    "npx": "a client that is not installed here",
}
PIECE: Final = re.compile(
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$|(?:Save|Add) this (?:as|to) `(?P<file>[\w.]+)`",
    re.MULTILINE | re.DOTALL,
)
READY: Final = re.compile(r"ready at http://127\.0\.0\.1:\d+/mcp")


class Newcomer:
    """A person with two terminals: one serves a hub, the other runs everything else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self._known = {"127.0.0.1:8420": f"127.0.0.1:{self._port}"}
        self._hub: subprocess.Popen[bytes] | None = None
        self.ran: list[str] = []
        path = f"{folder / '.venv' / 'bin' if REAL else BIN}:/usr/bin:/bin"
        self._environment = {"PATH": path, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def follow(self, page: Path) -> None:
        """Save the files that a page shows, and run its commands."""
        name, is_new = "", True
        for found in PIECE.finditer(page.read_text()):
            if found["file"]:
                name, is_new = found["file"], found[0].startswith("Save")
            elif found["language"] in ("python", "yaml", "json") and name:
                with (self.folder / name).open("w" if is_new else "a") as file:
                    file.write(found["text"])
                name = ""
            elif found["language"] == "console":
                self._replay(found["text"])
            elif found["language"] == "sh":
                for line in found["text"].splitlines():
                    self._paste(line)

    def _replay(self, transcript: str) -> None:
        for part in re.split(r"^(?=\$ )", transcript, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            printed = self._run(command[2:])[1].replace(str(self.folder), HOME)
            assert agrees(shown, printed), (command, printed)

    def _paste(self, line: str) -> None:
        if line.startswith(tuple(ELSEWHERE)) or "/path/to" in line:
            return
        if line.startswith(INSTALLS):
            if REAL and not line.startswith("source "):
                self._install(line)
        elif line.startswith("waypost serve"):
            self._serve(line)
        else:
            status, printed = self._run(line)
            assert status == 0, (line, printed)
            self._known |= {f"{one[:2]}_...": one for one in re.findall(r"\b(?:wf|ap)_\w+", printed)}

    def _run(self, line: str) -> tuple[int, str]:
        for shown, real in self._known.items():
            line = line.replace(shown, real)
        self.ran.append(line)
        # A hub that has just reloaded its file may still be connecting to a server that the file names.
        for _ in range(100):
            run = subprocess.run(
                shlex.split(line),
                cwd=self.folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if "Unknown tool: time." not in run.stdout:
                break
            time.sleep(0.2)
        return run.returncode, run.stdout

    def _install(self, line: str) -> None:
        where = f"{shlex.quote(str(ROOT))}" if line.endswith("install .") else ""
        command = f"{line.removesuffix(' .')} {where}" if where else line
        constraint = ["--constraint", str(ROOT / "constraints.txt")] if "pip install" in line else []
        words = [sys.executable if word == "python3" else word for word in shlex.split(command)]
        subprocess.run([*words, *constraint], cwd=self.folder, env={**os.environ, **self._environment}, check=True)

    def _serve(self, line: str) -> None:
        self.leave()
        log = self.folder / "hub.log"
        with log.open("wb") as output:
            self._hub = subprocess.Popen(
                [*shlex.split(line), "--port", str(self._port)], cwd=self.folder, env=self._environment, stderr=output
            )
        while not READY.search(log.read_text()):
            assert self._hub.poll() is None, log.read_text()
            time.sleep(0.02)

    def leave(self) -> None:
        """Press Ctrl-C in the terminal of the hub."""
        if self._hub is not None:
            self._hub.send_signal(signal.SIGINT)
            assert self._hub.wait(90) == 0
            self._hub = None


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    """A newcomer in an empty directory."""
    person = Newcomer(tmp_path)
    try:
        yield person
    finally:
        if person._hub is not None:
            person._hub.kill()
            person._hub.wait()


@pytest.mark.timeout(600)
def test_the_readme_works_as_pasted(newcomer: Newcomer) -> None:
    newcomer.follow(ROOT / "README.md")
    assert len(newcomer.ran) >= 9
    assert any("time.convert_time" in line for line in newcomer.ran)
    newcomer.leave()


@pytest.mark.timeout(600)
def test_the_start_pages_work_as_pasted(newcomer: Newcomer) -> None:
    if REAL:
        newcomer._install("python3 -m venv .venv")
        newcomer._install(".venv/bin/pip install .")
        newcomer._install(".venv/bin/pip install pytest")
    newcomer.follow(DOCS / "quick-start.md")
    assert any("pytest" in line for line in newcomer.ran)
    newcomer.leave()
    shutil.copytree(newcomer.folder / "my-hub", newcomer.folder, dirs_exist_ok=True)
    newcomer.follow(DOCS / "connecting.md")
    assert sum("waypost install" in line for line in newcomer.ran) == 2
