"""The executor that calls a function of a remote worker, by the capability that stands for it."""

from __future__ import annotations

from typing import Any, Final

from waypost.capabilities.results import Result
from waypost.config import executors as models
from waypost.errors import WaypostError
from waypost.workflows.executors import arguments_of
from waypost.workflows.executors.capability import failed_call, output_of
from waypost.workflows.executors.executor import Run, Surroundings
from waypost.workflows.executors.mcp import KEY
from waypost.workflows.mapping import compile_template


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
        try:
            result = await self._called(arguments, run)
        except WaypostError as error:
            raise failed_call(error) from None
        return output_of(self._function, result)

    async def _called(self, arguments: dict[str, Any], run: Run) -> Result:
        meta = {KEY: run.key}
        try:
            tool = self._surroundings.function(self._function) or self._function
            return await self._surroundings.invoke(tool, arguments, run.caller, meta)
        except WaypostError as error:
            named = self._function.replace("::", "__")
            # What a function that ran did not find is another matter than the function itself.
            if named == self._function or error.message != f"Unknown tool: {self._function}":
                raise
            return await self._surroundings.invoke(named, arguments, run.caller, meta)
