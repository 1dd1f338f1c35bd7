"""A reader that goes away, as in `waypost list | head -1`, is no failure of any command that prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_a_command_whose_reader_is_gone_ends_without_a_traceback(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text(f"workflows: {{w: {STATES}}}\n")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "waypost", *words]
        done = subprocess.run(command, cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")
