"""The official conformance suites against a hub, one test a scenario."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
import yaml

from tests.interop import npm
from tests.interop.processes import served

pytestmark = pytest.mark.timeout(300)

RUN = 90.0
UNSATISFIED = ("FAILURE", "WARNING")
RESULT = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")

Report: TypeAlias = dict[str, list[dict[str, Any]]]


class Suite(msgspec.Struct):
    """One way to run a suite, and what is known about each of its scenarios."""

    package: str
    arguments: list[str]
    scenarios: dict[str, list[str]]


SUITES = msgspec.convert(yaml.safe_load((npm.HERE / "conformance.yaml").read_text()), dict[str, Suite])
SCENARIOS = [(name, scenario) for name, suite in SUITES.items() for scenario in suite.scenarios]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], Report]:
    """The results of a suite by scenario; each suite runs once for all processes."""
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        shared = shared.parent

    def run_once(name: str) -> Report:
        folder = shared / f"conformance-{name}"
        lock = shared / f"conformance-{name}.lock"
        lock.touch()
        with npm.locked(lock):
            if not folder.exists():
                run(SUITES[name], folder)
        return read(folder)

    return run_once


def run(suite: Suite, folder: Path) -> None:
    npm.install()
    program = npm.MODULES / suite.package / "dist" / "index.js"
    with served("conformance_server") as url:
        command = [npm.node(), str(program), "server", "--url", url, "-o", str(folder), *suite.arguments]
        ended = subprocess.run(command, cwd=folder.parent, timeout=RUN, capture_output=True, text=True)
    assert folder.exists(), ended.stdout + ended.stderr


def read(folder: Path) -> Report:
    found = {}
    for path in folder.glob("*/checks.json"):
        name = RESULT.fullmatch(path.parent.name)
        assert name is not None, path
        found[name["scenario"]] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("suite", SUITES)
def test_every_scenario_of_a_suite_is_listed(suite: str, report: Callable[[str], Report]) -> None:
    assert set(report(suite)) == set(SUITES[suite].scenarios)


@pytest.mark.parametrize(("suite", "scenario"), SCENARIOS)
def test_a_scenario_fails_only_in_the_listed_checks(suite: str, scenario: str, report: Callable[[str], Report]) -> None:
    checks = report(suite)[scenario]
    unsatisfied = {check["id"]: check.get("errorMessage", "") for check in checks if check["status"] in UNSATISFIED}
    listed = set(SUITES[suite].scenarios[scenario])
    surprises = {check: why for check, why in unsatisfied.items() if check not in listed}
    assert not surprises
    assert not listed - set(unsatisfied), "pass now: take them off the list"
