"""The kind `worker`: calls a function of a remote worker through its capability."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from waypost.config.models import Name
from waypost.errors import ExecutorFailed, UnknownTool, WaypostError
from waypost.workers.functions import is_internal
from waypost.workflows.executors.capability import get_output, to_failure
from waypost.workflows.executors.kind import (
    IDEMPOTENCY_KEY,
    Builder,
    ExecutorFields,
    ExecutorKind,
    Paths,
    Run,
    fill_arguments,
)


class WorkerCall(ExecutorFields, frozen=True, kw_only=True, tag="worker"):
    """Calls a function of a remote worker."""

    function: Annotated[Name, Meta(description="The function, such as `mail::send`.")]
    arguments: Annotated[
        Paths | None, Meta(description="Its arguments; left out, those of the transition as they are.")
    ] = None


class WorkerExecutor:
    """A function by its id."""

    kind: Final = "worker"
    evidence: Final = "worker_result"
    limit: Final = None

    def __init__(self, model: WorkerCall, builder: Builder) -> None:
        self._function = model.function
        self._context = builder.context
        self._arguments = builder.template(model.arguments)

    async def run(self, run: Run) -> Any:
        """The result of the function."""
        arguments = fill_arguments(self._arguments, run.scope)
        tool = self._context.function(self._function) or self._function
        for name in dict.fromkeys((tool, self._function.replace("::", "__"))):
            try:
                result = await self._context.invoke(name, arguments, run.caller, {IDEMPOTENCY_KEY: run.key})
            except UnknownTool as error:
                # A function that ran may have called a tool that does not exist: that is a failure of the function.
                if error.name != name:
                    raise to_failure(error) from None
                continue
            except WaypostError as error:
                raise to_failure(error) from None
            return get_output(self._function, result)
        if is_internal(self._function):
            raise ExecutorFailed(f"{self._function} is internal to workers; a workflow cannot call it.")
        raise ExecutorFailed(f"No worker offers {self._function} at the moment.", "connection_error")


WORKER: Final = ExecutorKind(
    model=WorkerCall,
    build=WorkerExecutor,
    plan=None,
    check=None,
    check_place=None,
    names={"function": "function"},
    templates=("arguments",),
    asks_person=False,
    mark="",
)
