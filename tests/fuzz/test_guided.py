"""Coverage-guided fuzzing of each parser, for `WAYPOST_SOAK_SECONDS` seconds; part of `make soak` only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.fuzz.parsers import PARSERS

SECONDS: Final = int(os.environ.get("WAYPOST_SOAK_SECONDS", "0"))


@pytest.mark.skipif(not SECONDS, reason="coverage-guided fuzzing is part of `make soak`")
@pytest.mark.timeout(2 * SECONDS + 120)
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_holds_for_inputs_that_reach_new_branches(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", name, tmp_path, str(SECONDS)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    kept = {file.name: file.read_bytes()[:500] for file in (tmp_path / name).glob("failed-*")}
    assert done.returncode == 0, f"{kept}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
