"""The kind `pipeline`: runs executors one after another."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from msgspec.structs import replace

from waypost.config.models import Millis
from waypost.errors import ExecutorFailed
from waypost.kinds import ExecutorModel
from waypost.workflows.executors.kind import Builder, Executor, ExecutorFields, ExecutorKind, Run
from waypost.workflows.executors.reliability import failure_data, run_safely


class Pipeline(ExecutorFields, frozen=True, kw_only=True, tag="pipeline"):
    """Runs several executors one after another; each may use what those before it gave."""

    steps: Annotated[list[ExecutorModel], Meta(min_length=1, description="The executors.")]
    on_step_failure: Annotated[
        Literal["bail", "continue"], Meta(description="Whether the rest is left out when one fails.")
    ] = "bail"
    total_timeout_ms: Annotated[Millis | None, Meta(description="How long all of it may take.")] = None


def _build(model: Pipeline, builder: Builder) -> Executor:
    steps = [builder.inside("pipeline").build(step) for step in model.steps]
    limit = None if model.total_timeout_ms is None else model.total_timeout_ms / 1000

    async def run(run: Run) -> Any:
        try:
            async with asyncio.timeout(limit):
                return await _run(steps, run, bails=model.on_step_failure == "bail")
        except TimeoutError:
            raise ExecutorFailed(f"The steps did not end within {limit:g} s.", "timeout") from None

    return Executor("pipeline", run, "pipeline_result", limit)


async def _run(steps: list[Executor], run: Run, *, bails: bool) -> dict[str, Any]:
    """`{steps: [{status, output | error}], final_output, summary}`.

    Each step may look at `$.steps[i].output` and `$.previous`. Its idempotency key is that of the move and its place,
    so that it is the same when the move is run again.
    """
    done: list[dict[str, Any]] = []
    failures: list[ExecutorFailed] = []
    previous = run.scope.previous
    for index, step in enumerate(steps):
        scope = replace(run.scope, steps=tuple(done), previous=previous)
        try:
            previous = await run_safely(step, Run(scope, f"{run.key}.{index}", run.caller))
            done.append({"status": "succeeded", "output": previous})
        except ExecutorFailed as error:
            if bails:
                raise ExecutorFailed(f"Step {index + 1} failed: {error.message}", error.error_class) from None
            failures.append(error)
            previous = None
            done.append({"status": "failed", "error": failure_data(error)})
    if len(failures) == len(done):
        raise ExecutorFailed(f"Every step failed; the first: {failures[0].message}", failures[0].error_class)
    summary = {"total": len(done), "succeeded": len(done) - len(failures), "failed": len(failures)}
    return {"steps": done, "final_output": previous, "summary": summary}


PIPELINE: Final = ExecutorKind(
    model=Pipeline,
    build=_build,
    plan=None,
    check=None,
    check_place=None,
    names={},
    templates=(),
    asks_person=False,
    mark="",
)
