"""The kind `workflow`: runs another workflow and waits for its end."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from waypost.config.models import Idempotent, Millis, Name
from waypost.errors import ExecutorFailed, WaypostError
from waypost.redaction import redacted
from waypost.workflows.executors.kind import Builder, ChildPlan, Executor, ExecutorFields, ExecutorKind, Paths, Run
from waypost.workflows.scope import GUARD_ROOTS, compile_template

EVIDENCE: Final = "workflow_result"


class Child(ExecutorFields, frozen=True, kw_only=True, tag="workflow"):
    """Runs another workflow and waits for its end."""

    definition_id: Annotated[Name, Meta(description="The workflow.")]
    input: Annotated[Paths | None, Meta(description="Its input; left out, the arguments of the transition.")] = None
    timeout_ms: Annotated[Millis | None, Meta(description="How long it may take.")] = None
    idempotent: Idempotent = True


def _build(model: Child, builder: Builder) -> Executor:
    """A workflow inside of a parallel, a pipeline or a fallback; elsewhere the engine waits for it."""
    definition, arguments, limit = model.definition_id, builder.arguments(model.input), _seconds(model)

    async def run(run: Run) -> Any:
        """`{workflowId, state, outcome, context}`."""
        try:
            return await builder.context.run_child(definition, arguments(run.scope), run.key, run.caller, limit)
        except ExecutorFailed:
            raise
        except TimeoutError:
            raise ExecutorFailed(f"The workflow {definition} did not end in time.", "timeout") from None
        except WaypostError as error:
            raise ExecutorFailed(redacted(error.message)) from None

    return Executor("workflow", run, EVIDENCE, limit)


def _seconds(model: Child) -> float | None:
    return None if model.timeout_ms is None else model.timeout_ms / 1000


def _plan(model: Child) -> ChildPlan:
    given = None if model.input is None else compile_template(model.input, GUARD_ROOTS)
    return ChildPlan(model.definition_id, given, _seconds(model), EVIDENCE)


WORKFLOW: Final = ExecutorKind(
    model=Child,
    build=_build,
    plan=_plan,
    check=None,
    check_place=None,
    names={"definition_id": "workflow"},
    templates=("input",),
    asks_person=False,
    mark="",
    stored=("input",),
)
