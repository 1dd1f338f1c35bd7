"""The executor that runs another workflow inside a parallel or a pipeline."""

from __future__ import annotations

from typing import Any, Final

from waypost.config import executors as models
from waypost.errors import ExecutorFailed, WaypostError
from waypost.redaction import redacted
from waypost.workflows.executors import arguments_of
from waypost.workflows.executors.executor import Run, Surroundings
from waypost.workflows.scope import compile_template


class Child:
    """A workflow by its id."""

    kind: Final = "workflow"
    evidence: Final = "workflow_result"

    def __init__(self, model: models.Child, surroundings: Surroundings, roots: frozenset[str]) -> None:
        self._definition = model.definition_id
        self._surroundings = surroundings
        self._input = None if model.input is None else compile_template(model.input, roots)
        self.limit = None if model.timeout_ms is None else model.timeout_ms / 1000

    async def run(self, run: Run) -> Any:
        """`{workflowId, state, outcome, context}`."""
        given = arguments_of(self._input, run.scope)
        try:
            return await self._surroundings.run_child(self._definition, given, run.key, run.caller, self.limit)
        except ExecutorFailed:
            raise
        except TimeoutError:
            raise ExecutorFailed(f"The workflow {self._definition} did not end in time.", "timeout") from None
        except WaypostError as error:
            raise ExecutorFailed(redacted(error.message)) from None
