"""The kind `human`: waits until people approve or reject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from waypost.config.models import DAY_MS, Idempotent, Millis, Name
from waypost.errors import DefinitionError
from waypost.workflows.executors.kind import ApprovalPlan, Builder, Executor, ExecutorFields, ExecutorKind
from waypost.workflows.scope import GUARD_ROOTS, compile_template

if TYPE_CHECKING:
    from waypost.workflows.data_flow import Place, Report


class Human(ExecutorFields, frozen=True, kw_only=True, tag="human"):
    """Waits until people approve or reject."""

    role: Annotated[Name, Meta(description="The role they need.")] = "human"
    queue: Annotated[Name, Meta(description="Where the request is listed.")] = "default"
    prompt: Annotated[str | None, Meta(description="What they are asked; left out, the transition's title.")] = None
    presents: Annotated[
        Any, Meta(description="What they are shown and approve; left out, the arguments and the context.")
    ] = None
    approvals: Annotated[int, Meta(ge=1, le=100, description="How many different people have to approve.")] = 1
    expires_ms: Annotated[Millis, Meta(description="How long they may take.")] = 7 * DAY_MS
    idempotent: Idempotent = True


def _build(model: Human, builder: Builder) -> Executor:
    raise DefinitionError("an approval is only possible directly in a transition")


def _plan(model: Human) -> ApprovalPlan:
    presents = None if model.presents is None else compile_template(model.presents, GUARD_ROOTS)
    return ApprovalPlan(model, presents, "human_approval")


def _check_place(model: Human, place: Place, report: Report) -> None:
    if place.exposed:
        sentence = "an approval is only possible in a workflow; expose a workflow that asks for it instead"
        report.add(place.path, sentence, "WF061")
        return
    if place.within:
        inside = " or ".join(f"`{kind}`" for kind in sorted(set(place.within)))
        sentence = f"an approval is not possible inside of {inside}; use a separate transition"
        report.add(place.path, sentence, "WF023")
    elif place.reliability is not None:
        sentence = "an approval is neither retried nor replaced; remove it, and set the time limit with `expiresMs`"
        report.add((*place.path[:-1], "reliability"), sentence, "WF058")


HUMAN: Final = ExecutorKind(
    model=Human,
    build=_build,
    plan=_plan,
    check=None,
    check_place=_check_place,
    names={},
    templates=("presents",),
    asks_person=True,
    mark=" (approval)",
    stored=("prompt", "presents"),
)
