"""How far a reader has to walk to follow an action; the bounds may only be lowered."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BOUNDS = {
    "tools/call": (45, 22),
    "workflow.submit": (70, 25),
    "start": (30, 15),
    "reload": (10, 5),
    "reload, one tool changed": (70, 18),
    "upstream call over stdio": (36, 14),
    "upstream call over http": (50, 15),  # six of them are the callbacks of the HTTP parser
}


@pytest.fixture(scope="module")
def walks() -> str:
    """All walks, in a process of their own: another test may have turned tracing on in this one."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "tests.walks"]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("name", BOUNDS)
def test_a_walk_stays_within_its_bounds(name: str, walks: str) -> None:
    found = re.search(rf"^{name}: (\d+) functions in (\d+) files$", walks, re.MULTILINE)
    assert found is not None
    functions, files = BOUNDS[name]
    assert int(found[1]) <= functions, walks
    assert int(found[2]) <= files, walks
