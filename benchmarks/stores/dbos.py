"""DBOS beside Waypost, in every round of a scenario."""

from __future__ import annotations

from typing import Final

from benchmarks.harness import StartFailed
from benchmarks.report import Report
from benchmarks.stores.child import Child
from benchmarks.stores.closed_loop import UNIT

DBOS: Final = "dbos"
MODULE: Final = "benchmarks.contenders.dbos_workflows"
FEWEST: Final = 16
"""One DBOS workflow at a time tells nothing that 16 do not, and takes long."""
WORKFLOWS, FEWER_WORKFLOWS = 300, 80


class Dbos:
    """DBOS in a process of its own, so that its threads and logging disturb nobody's loop."""

    def __init__(self, report: Report, *, quick: bool) -> None:
        self._report = report
        self._workflows = FEWER_WORKFLOWS if quick else WORKFLOWS
        self._child: Child | None = None

    def start(self, url: str) -> None:
        """Launch it on a database of its own; a failure is noted in the report."""
        try:
            self._child = Child(MODULE, url)
            self._child.ask({"count": FEWEST, "in_flight": FEWEST})
        except StartFailed as error:
            self._fail(error)

    def measure(self, count: int, case: str) -> None:
        """A bounded number of workflows, as a fixed time would be over before 64 of them are."""
        if self._child is None or count < FEWEST:
            return
        try:
            seen = self._child.ask({"count": self._workflows, "in_flight": count})
        except StartFailed as error:
            self._fail(error)
            return
        rate = seen.pop("rate")
        self._report.row(DBOS, case, UNIT).add(rate, **seen)

    def stop(self) -> None:
        """End it."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _fail(self, error: StartFailed) -> None:
        self._report.fail(DBOS, str(error))
        self.stop()
