"""The demo: every step of its tour holds, with a real server behind the hub."""

from __future__ import annotations

import subprocess
import sys

from tests.interop.processes import ROOT
from tests.upstreams.programs import nothing_left

WITHIN = 50.0


def test_every_step_of_the_tour_holds_and_nothing_is_left() -> None:
    with nothing_left():
        played = subprocess.run(
            [sys.executable, "-m", "examples.demo.tour", "--once"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=WITHIN,
        )
    assert played.stdout.endswith("Every step held.\n"), played.stdout + played.stderr
    assert "clock.convert_time says that noon in UTC is 21:00 in Tokyo" in played.stdout
