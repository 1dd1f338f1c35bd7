"""A closed pipe, as in `waypost list | head -1`, is not an error of any command that prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from waypost.cli import main

STATES = "{initialState: a, states: {a: {terminal: true}}}"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["schema"],
        ["check", "waypost.yaml"],
        ["list", "waypost.yaml"],
        ["list", "waypost.yaml", "--json"],
        ["graph", "waypost.yaml", "w"],
        ["search", "waypost.yaml", "workflow"],
    ],
    ids=" ".join,
)
def test_a_command_with_a_closed_stdout_ends_without_a_traceback(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text(f"workflows: {{w: {STATES}}}\n")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "waypost", *words]
        done = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [["list", "waypost.yaml"], ["schema"]], ids=" ".join)
def test_a_full_disk_is_one_sentence(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text(f"workflows: {{w: {STATES}}}\n")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "waypost", *words]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"waypost: The output cannot be written: No space left on device.\n")


def test_an_error_of_the_system_within_a_command_is_not_taken_for_one_of_its_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(words: list[str]) -> None:
        raise FileNotFoundError("no such file")

    monkeypatch.setattr(sys.modules[main.__module__], "_run", fail)
    with pytest.raises(FileNotFoundError):
        main(["list"])
