"""The executor that runs others one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from waypost.config import executors as models
from waypost.errors import ExecutorFailed
from waypost.workflows.executors.executor import Executor, Run
from waypost.workflows.executors.reliability import sound


class Pipeline:
    """Steps, each of which may look at `$.steps[i].output` and `$.previous`."""

    kind: Final = "pipeline"
    evidence: Final = "pipeline_result"

    def __init__(self, model: models.Pipeline, steps: Sequence[Executor]) -> None:
        self._steps = steps
        self._bails = model.on_step_failure == "bail"
        self.limit = None if model.total_timeout_ms is None else model.total_timeout_ms / 1000

    async def run(self, run: Run) -> Any:
        """`{steps: [{status, output | error}], final_output, summary}`."""
        try:
            async with asyncio.timeout(self.limit):
                return await self._run(run)
        except TimeoutError:
            raise ExecutorFailed(f"The steps did not end within {self.limit:g} s.", "timeout") from None

    async def _run(self, run: Run) -> dict[str, Any]:
        done: list[dict[str, Any]] = []
        failures: list[ExecutorFailed] = []
        previous = run.scope.previous
        for index, step in enumerate(self._steps):
            scope = run.scope.within(steps=tuple(done), previous=previous)
            try:
                previous = await sound(step, Run(scope, f"{run.key}.{index}", run.caller))
                done.append({"status": "succeeded", "output": previous})
            except ExecutorFailed as error:
                if self._bails:
                    raise ExecutorFailed(f"Step {index + 1} failed: {error.message}", error.error_class) from None
                failures.append(error)
                previous = None
                done.append({"status": "failed", "error": told(error)})
        if len(failures) == len(done):
            raise ExecutorFailed(f"Every step failed; the first: {failures[0].message}", failures[0].error_class)
        summary = {"total": len(done), "succeeded": len(done) - len(failures), "failed": len(failures)}
        return {"steps": done, "final_output": previous, "summary": summary}


def told(error: ExecutorFailed) -> dict[str, str]:
    """A failure as data."""
    return {"message": error.message, "errorClass": error.error_class}
