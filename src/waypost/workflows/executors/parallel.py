"""The executor that runs others side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import Any, Final

from waypost.config import executors as models
from waypost.errors import DefinitionError, ExecutorFailed
from waypost.workflows.executors import given
from waypost.workflows.executors.executor import Executor, Run
from waypost.workflows.executors.pipeline import told
from waypost.workflows.executors.reliability import sound
from waypost.workflows.scope import Scope, compile_template

MOST_BRANCHES: Final = 10_000

Task = asyncio.Task[Any]


class Parallel:
    """Branches, or one executor for each item of a list; each may look at `$.branch.value` and `$.branch.index`."""

    kind: Final = "parallel"
    evidence: Final = "parallel_result"

    def __init__(
        self, model: models.Parallel, branches: Sequence[Executor], do: Executor | None, roots: frozenset[str]
    ) -> None:
        if bool(branches) == (model.for_each is not None) or (do is None) != (model.for_each is None):
            raise DefinitionError("a parallel executor has branches, or forEach and do")
        self._model = model
        self._branches = branches
        self._do = do
        self._items = None if model.for_each is None else compile_template(model.for_each, roots)
        self.limit = None if model.total_timeout_ms is None else model.total_timeout_ms / 1000
        if branches and needed(model.join, len(branches)) > len(branches):
            raise DefinitionError("a parallel executor needs more branches to succeed than it has")

    async def run(self, run: Run) -> Any:
        """`{branches: [{status, output | error}], summary}`."""
        planned = self._planned(run.scope)
        flight = _Flight(run, planned, needed(self._model.join, len(planned)), self._model)
        try:
            async with asyncio.timeout(self.limit):
                return await flight.run()
        except TimeoutError:
            raise ExecutorFailed(f"The branches did not end within {self.limit:g} s.", "timeout") from None

    def _planned(self, scope: Scope) -> list[tuple[Executor, Any]]:
        """What runs, and the value it looks at."""
        if self._items is None or self._do is None:
            return [(branch, None) for branch in self._branches]
        items = given(self._items, self._model.for_each, scope)
        if not isinstance(items, list):
            raise ExecutorFailed("What forEach stands for is not a list.")
        if len(items) > MOST_BRANCHES:
            raise ExecutorFailed(f"forEach takes at most {MOST_BRANCHES} items, and there are {len(items)}.")
        return [(self._do, item) for item in items]


def needed(join: str | models.JoinSome, total: int) -> int:
    """How many of so many branches have to succeed."""
    if isinstance(join, models.JoinSome):
        if join.at_least is None and join.percent is None:
            raise DefinitionError("a join says atLeast or percent")
        # Floats make 7.000000000000001 of 70 percent of ten.
        share = ceil(round(total * (join.percent or 0) / 100, 6))
        return max(join.at_least or 0, share)
    return total if join == "all" else 1


class _Flight:
    """One run of a parallel executor."""

    def __init__(self, run: Run, planned: list[tuple[Executor, Any]], need: int, model: models.Parallel) -> None:
        self._run = run
        self._planned = planned
        self._need = need
        self._most = model.max_concurrency
        self._bails = model.on_branch_failure == "bail"
        self._running: dict[Task, int] = {}
        self._outcomes: list[dict[str, Any]] = [{"status": "cancelled"} for _ in planned]
        self._failures: list[tuple[int, ExecutorFailed]] = []
        self._succeeded = 0

    async def run(self) -> dict[str, Any]:
        """Let branches run until the outcome is known; none is left running."""
        waiting = list(enumerate(self._planned))[::-1]
        try:
            while (waiting or self._running) and not self._is_decided:
                while waiting and len(self._running) < self._most:
                    index, (executor, value) = waiting.pop()
                    self._running[self._started(index, executor, value)] = index
                done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                self._settle(done)
        finally:
            stopped = await self._stop()
        self._settle(stopped)
        if self._succeeded < self._need:
            raise self._failure()
        return {"branches": self._outcomes, "summary": self._summary()}

    @property
    def _is_decided(self) -> bool:
        if self._need > len(self._planned):
            return True
        possible = len(self._planned) - len(self._failures)
        return self._succeeded >= self._need or (self._bails and possible < self._need)

    def _started(self, index: int, executor: Executor, value: Any) -> Task:
        scope = self._run.scope.within(branch={"value": value, "index": index})
        run = Run(scope, f"{self._run.key}.{index}", self._run.caller)
        return asyncio.get_running_loop().create_task(sound(executor, run))

    def _settle(self, tasks: set[Task]) -> None:
        for task in sorted(tasks, key=self._running.__getitem__):
            index = self._running.pop(task)
            if task.cancelled():
                continue
            try:
                self._outcomes[index] = {"status": "succeeded", "output": task.result()}
                self._succeeded += 1
            except ExecutorFailed as error:
                self._outcomes[index] = {"status": "failed", "error": told(error)}
                self._failures.append((index, error))

    async def _stop(self) -> set[Task]:
        """Cancel what still runs and wait for it; some may have ended all the same."""
        tasks = set(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return tasks

    def _failure(self) -> ExecutorFailed:
        total = len(self._planned)
        said = f"{self._succeeded} of {total} branches succeeded, and {self._need} had to"
        if not self._failures:
            return ExecutorFailed(f"{said}.")
        index, first = self._failures[0]
        return ExecutorFailed(f"{said}; branch {index} failed first: {first.message}", first.error_class)

    def _summary(self) -> dict[str, int]:
        total, failed = len(self._planned), len(self._failures)
        cancelled = total - self._succeeded - failed
        return {"total": total, "succeeded": self._succeeded, "failed": failed, "cancelled": cancelled}
