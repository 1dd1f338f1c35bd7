"""The executor that calls a function of a remote worker, by the capability that stands for it."""

from __future__ import annotations

from typing import Any, Final

from waypost.config import executors as models
from waypost.errors import ExecutorFailed, UnknownTool, WaypostError
from waypost.workers.functions import is_internal
from waypost.workflows.executors import arguments_of
from waypost.workflows.executors.capability import failed_call, output_of
from waypost.workflows.executors.executor import Run, Surroundings
from waypost.workflows.executors.mcp import KEY
from waypost.workflows.scope import compile_template


class Worker:
    """A function by its id."""

    kind: Final = "worker"
    evidence: Final = "worker_result"
    limit: Final = None

    def __init__(self, model: models.WorkerCall, surroundings: Surroundings, roots: frozenset[str]) -> None:
        self._function = model.function
        self._surroundings = surroundings
        self._arguments = None if model.arguments is None else compile_template(model.arguments, roots)

    async def run(self, run: Run) -> Any:
        """What the function answers."""
        arguments = arguments_of(self._arguments, run.scope)
        tool = self._surroundings.function(self._function) or self._function
        for name in dict.fromkeys((tool, self._function.replace("::", "__"))):
            try:
                result = await self._surroundings.invoke(name, arguments, run.caller, {KEY: run.key})
            except WaypostError as error:
                # A function that ran may not have found another tool; that is its failure.
                if isinstance(error, UnknownTool) and error.name == name:
                    continue
                raise failed_call(error) from None
            return output_of(self._function, result)
        if is_internal(self._function):
            raise ExecutorFailed(f"{self._function} is for workers only; a workflow cannot call it.")
        raise ExecutorFailed(f"Nobody offers {self._function} right now.", "connection_error")
