"""Failed tests that run again, alone, in a directory of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.second_run import MAX_TESTS, TIMES

ROOT: Final = Path(__file__).parents[1]
FAILS_FIRST: Final = """
from pathlib import Path

def test_it():
    mark = Path("seen")
    mark.write_text(mark.read_text() + "x" if mark.exists() else "x")
    assert len(mark.read_text()) > {failures}
"""


def run(folder: Path, tests: str) -> tuple[int, str]:
    """The exit status and output of a first run, followed by the second one if it failed."""
    (folder / "test_some.py").write_text(tests)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    first = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=folder, env=environment, capture_output=True)
    second = subprocess.run(
        [sys.executable, "-m", "tests.second_run", str(first.returncode)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return second.returncode, second.stdout


def test_a_test_that_passes_alone_is_named_and_fails_nothing(tmp_path: Path) -> None:
    status, output = run(tmp_path, FAILS_FIRST.format(failures=1))
    assert status == 0
    assert output.splitlines()[-1].startswith("FLAKY test_some.py::test_it: ")
    assert len((tmp_path / "seen").read_text()) == 1 + TIMES


def test_a_test_that_fails_alone_at_any_time_fails_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, FAILS_FIRST.format(failures=2))[0] == 1
    assert run(tmp_path, "def test_it():\n    assert False\n")[0] == 1


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    tests = "".join(f"def test_{number}():\n    assert False\n" for number in range(MAX_TESTS + 1))
    assert run(tmp_path, tests) == (1, "")


@pytest.mark.parametrize(("tests", "status"), [("def broken(", 2), ("", 5), ("def test_it(): pass\n", 0)])
def test_a_run_that_ended_in_another_way_keeps_its_status(tests: str, status: int, tmp_path: Path) -> None:
    assert run(tmp_path, tests) == (status, "")
