"""Measures branch coverage: `pytest -p tests.branches` collects it, `python -m tests.branches` holds it to its floors.

slipcover removes its probes from lines and branches that have run, so the tests take hardly longer; coverage.py traces
every line on Python 3.11 and takes half as long again. Code that runs in child processes of tests does not count.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import slipcover

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "waypost"
RESULTS: Final = ROOT / ".coverage"
EXCLUDED: Final = ["if TYPE_CHECKING:", "@overload", r": \.\.\.$"]

MIN_PERCENT: Final = 90.0
MIN_CORE_PERCENT: Final = 95.0
CORE: Final = ("capabilities", "execution", "protocol", "runtime", "stores", "wire")
"""The packages that every hub runs, held to the higher floor with the modules beside them."""


class Collector:
    """Counts the lines and branches of the package that run in this process."""

    def __init__(self, worker: str) -> None:
        self._file = RESULTS / f"{worker}.json"
        matcher = slipcover.FileMatcher(sources=[str(SOURCE)])
        self._coverage = slipcover.Slipcover(branch=True, source=[str(SOURCE)], exclude_lines=EXCLUDED)
        self._imports = slipcover.ImportManager(self._coverage, matcher)
        self._imports.__enter__()

    def pytest_sessionfinish(self) -> None:
        self._imports.__exit__(None, None, None)
        self._file.write_text(json.dumps(self._coverage.get_coverage()))


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        shutil.rmtree(RESULTS, ignore_errors=True)
        RESULTS.mkdir()
    if worker is not None or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Collector(worker or "main"), "branches")


def percent(files: dict[str, Any]) -> float:
    """The share of lines and branches that ran."""
    counts = [file["summary"] for file in files.values()]
    ran: int = sum(one["covered_lines"] + one["covered_branches"] for one in counts)
    missing: int = sum(one["missing_lines"] + one["missing_branches"] for one in counts)
    return 100 * ran / (ran + missing)


def is_core(file: str) -> bool:
    first, *rest = Path(file).resolve().relative_to(SOURCE).parts
    return first in CORE or not rest


def main() -> None:
    merged: dict[str, Any] = {}
    for path in RESULTS.glob("*.json"):
        found = json.loads(path.read_text())
        merged = slipcover.merge_coverage(merged, found) if merged else found
    if not merged:
        sys.exit("No coverage was measured: run pytest with `-p tests.branches` first.")
    os.chdir(ROOT)
    files = merged["files"]
    for name, file in sorted(files.items(), key=lambda item: float(item[1]["summary"]["percent_covered"]))[:15]:
        sys.stdout.write(f"{file['summary']['percent_covered']:6.1f} %  {name}\n")
    overall, core = percent(files), percent({name: file for name, file in files.items() if is_core(name)})
    floors = f"at least {MIN_PERCENT:g} % and {MIN_CORE_PERCENT:g} %"
    sys.stdout.write(f"Branch coverage: {overall:.1f} %, {core:.1f} % of the core ({floors})\n")
    if overall < MIN_PERCENT or core < MIN_CORE_PERCENT:
        sys.exit("The coverage is below its floor.")


if __name__ == "__main__":
    main()
