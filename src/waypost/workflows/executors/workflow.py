"""The kind `workflow`: runs another workflow and waits for its end."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from waypost.config.models import Idempotent, Millis, Name
from waypost.errors import ExecutorFailed, WaypostError
from waypost.redaction import redacted
from waypost.workflows.executors.kind import (
    Builder,
    ChildPlan,
    ExecutorFields,
    ExecutorKind,
    Paths,
    Run,
    fill_arguments,
)
from waypost.workflows.scope import GUARD_ROOTS, compile_template

EVIDENCE: Final = "workflow_result"


class Child(ExecutorFields, frozen=True, kw_only=True, tag="workflow"):
    """Runs another workflow and waits for its end."""

    definition_id: Annotated[Name, Meta(description="The workflow.")]
    input: Annotated[Paths | None, Meta(description="Its input; left out, the arguments of the transition.")] = None
    timeout_ms: Annotated[Millis | None, Meta(description="How long it may take.")] = None
    idempotent: Idempotent = True


class ChildExecutor:
    """A workflow inside of a parallel, a pipeline or a fallback; elsewhere the engine waits for it."""

    kind: Final = "workflow"
    evidence: Final = EVIDENCE

    def __init__(self, model: Child, builder: Builder) -> None:
        self._definition = model.definition_id
        self._context = builder.context
        self._input = builder.template(model.input)
        self.limit = _seconds(model)

    async def run(self, run: Run) -> Any:
        """`{workflowId, state, outcome, context}`."""
        given = fill_arguments(self._input, run.scope)
        try:
            return await self._context.run_child(self._definition, given, run.key, run.caller, self.limit)
        except ExecutorFailed:
            raise
        except TimeoutError:
            raise ExecutorFailed(f"The workflow {self._definition} did not end in time.", "timeout") from None
        except WaypostError as error:
            raise ExecutorFailed(redacted(error.message)) from None


def _seconds(model: Child) -> float | None:
    return None if model.timeout_ms is None else model.timeout_ms / 1000


def _plan(model: Child) -> ChildPlan:
    given = None if model.input is None else compile_template(model.input, GUARD_ROOTS)
    return ChildPlan(model.definition_id, given, _seconds(model), EVIDENCE)


WORKFLOW: Final = ExecutorKind(
    model=Child,
    build=ChildExecutor,
    plan=_plan,
    check=None,
    check_place=None,
    names={"definition_id": "workflow"},
    templates=("input",),
    asks_person=False,
    mark="",
)
