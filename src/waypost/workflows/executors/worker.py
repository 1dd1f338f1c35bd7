"""The kind `worker`: calls a function of a remote worker through its capability."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from waypost.config.models import Name
from waypost.errors import ExecutorFailed, UnknownTool, WaypostError
from waypost.workers.functions import is_internal
from waypost.workflows.executors.capability import get_output, to_failure
from waypost.workflows.executors.kind import Builder, Executor, ExecutorFields, ExecutorKind, Paths, Run


class WorkerCall(ExecutorFields, frozen=True, kw_only=True, tag="worker"):
    """Calls a function of a remote worker."""

    function: Annotated[Name, Meta(description="The function, such as `mail::send`.")]
    arguments: Annotated[
        Paths | None, Meta(description="Its arguments; left out, those of the transition as they are.")
    ] = None


def _build(model: WorkerCall, builder: Builder) -> Executor:
    function, arguments, context = model.function, builder.arguments(model.arguments), builder.context

    async def run(run: Run) -> Any:
        """The result of the function."""
        given = arguments(run.scope)
        # The tool of the function, else one that has the function's id or its portable form as its name.
        for name in dict.fromkeys((context.function(function) or function, function.replace("::", "__"))):
            try:
                result = await context.invoke(name, given, run.caller, run.meta)
            except UnknownTool as error:
                # A function that ran may have called a tool that does not exist: that is a failure of the function.
                if error.name != name:
                    raise to_failure(error) from None
                continue
            except WaypostError as error:
                raise to_failure(error) from None
            return get_output(function, result)
        if is_internal(function):
            raise ExecutorFailed(f"{function} is internal to workers; a workflow cannot call it.")
        raise ExecutorFailed(f"No worker offers {function} at the moment.", "connection_error")

    return Executor("worker", run, "worker_result")


WORKER: Final = ExecutorKind(
    model=WorkerCall,
    build=_build,
    plan=None,
    check=None,
    check_place=None,
    names={"function": "function"},
    templates=("arguments",),
    asks_person=False,
    mark="",
)
