"""Runs tests that failed beside others again, alone: `python -m tests.second_run STATUS` after a run with that status.

The machine's load can fail a test that waits for real processes. Such a test is a bug, and is named at the end of the
run; but one of nineteen thousand does not tell whether a change is good. More than a few failures, one that fails alone
as well, and a run that ended in any other way are failures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

MAX_TESTS: Final = 2
TIMES: Final = 3
"""How often each has to pass in a row."""
_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")


def run_alone(test: str) -> bool:
    """Whether a test passes every time, with no other one beside it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    return all(subprocess.run(command).returncode == pytest.ExitCode.OK for _ in range(TIMES))


def judge(status: int) -> int:
    """The exit status of a run, with the outcome of its failed tests when they run alone."""
    if status != pytest.ExitCode.TESTS_FAILED:
        return status
    failed = list(json.loads(_FAILED.read_text()))
    if not 0 < len(failed) <= MAX_TESTS or not all(map(run_alone, failed)):
        return status
    for test in failed:
        print(f"FLAKY {test}: failed beside others, passed {TIMES} times alone; find out why")  # noqa: T201
    return pytest.ExitCode.OK


if __name__ == "__main__":
    sys.exit(judge(int(sys.argv[1])))
