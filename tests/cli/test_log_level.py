"""`waypost serve --log-level`: how much is logged."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from waypost.cli.logs import LEVELS, log_to_stderr


@pytest.mark.parametrize("level", LEVELS)
def test_records_below_the_level_are_not_written(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)

    log_to_stderr(level)

    assert [root.isEnabledFor(getattr(logging, one.upper())) for one in LEVELS] == [
        LEVELS.index(one) >= LEVELS.index(level) for one in LEVELS
    ]


def test_another_level_is_wrong_usage_that_names_the_levels(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "waypost", "serve", "--log-level", "loud"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert all(level in done.stderr for level in LEVELS)
