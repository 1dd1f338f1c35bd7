"""Which benchmarks are run: by name, several with commas, from the command line and through make."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.__main__ import _parse, _settings

NAMES = ["http_calls", "search", "start"]
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ([], []),
        (["--only", "search"], ["search"]),
        (["--only", "search,start"], ["search", "start"]),
        (["--only", "search", "--only", "start,http_calls"], ["search", "start", "http_calls"]),
    ],
)
def test_several_names_are_given_with_commas_or_one_by_one(words: list[str], chosen: list[str]) -> None:
    assert _parse(words, NAMES).only == chosen


def test_rounds_may_be_more_and_longer_for_slow_contenders() -> None:
    given = _parse(["--rounds", "5", "--seconds", "10"], NAMES)
    settings = _settings(given.quick, given.rounds, given.seconds)
    assert (settings.rounds, settings.seconds) == (5, 10.0)
    assert _settings(False, None, None).seconds == 1.0


def test_an_unknown_name_is_refused_with_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(["--only", "search,strat"], NAMES)

    assert "there is no benchmark 'strat', did you mean 'start'? Use http_calls" in capsys.readouterr().err


def test_make_passes_on_the_arguments_after_its_goal() -> None:
    command = ["make", "--dry-run", "--no-print-directory", "bench", "--", "--quick", "--only", "search,start"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)

    assert "-m benchmarks --quick --only search,start" in done.stdout
