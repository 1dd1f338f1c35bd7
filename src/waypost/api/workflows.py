"""Workflow definitions, and the approvals that instances wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from waypost.api.routing import Listing, ManagedHub, Operator, may_act_as
from waypost.api.runs import RUN_ID, Text, run_detached
from waypost.config.models import Workflow
from waypost.errors import InvalidParams, WorkflowRefused
from waypost.kinds import convert
from waypost.workflows import graph, views
from waypost.workflows.approvals import instance_id_of
from waypost.workflows.definitions import Definition
from waypost.workflows.instance import Instance, may_decide
from waypost.workflows.runner import Outcome
from waypost.workflows.simulation import ISOLATED, Report, simulate
from waypost.workflows.views import format_time
from waypost.workflows.workflows import Created

Format = Literal["mermaid", "dot", "svg"]
DefinitionFields = Annotated[dict[str, Any], Meta(description="A workflow as the configuration file has it.")]

_Decide = Callable[..., Coroutine[Any, Any, Outcome]]


# Definitions


class WorkflowRow(msgspec.Struct, frozen=True):
    """A workflow that can be started, unless it is disabled."""

    id: str
    title: str
    version: str
    enabled: bool
    source: Literal["configured", "given", "created"] | None
    revision: int | None = None
    """How often a created workflow was written; a change may name the one it is based on."""


class WorkflowRows(Listing, frozen=True):
    """All workflows, by id."""

    workflows: list[WorkflowRow]


class GraphQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The language of a drawing, and the state to mark in it."""

    format: Format = "mermaid"
    state: str | None = None
    styled: bool = True
    """Whether SVG has a style sheet, background and title; a page that shows it has its own."""


class Drawing(msgspec.Struct, frozen=True):
    """A drawing as text."""

    format: Format
    text: str


class NewWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A workflow to create."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    workflow: DefinitionFields


class ChangedWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new definition of a workflow; with `revision`, it is refused if the workflow has changed since."""

    workflow: DefinitionFields
    revision: int | None = None


class WorkflowDocument(msgspec.Struct, frozen=True):
    """A workflow in the form that hubs export and import."""

    version: Any = None
    workflow: Any = None
    steps: Any = None


class WorkflowChange(msgspec.Struct, frozen=True):
    """A workflow after the request."""

    workflow: WorkflowRow


class Removed(msgspec.Struct, frozen=True):
    """A workflow that was removed; its running instances continue."""

    id: str
    status: Literal["removed"] = "removed"


async def list_workflows(hub: ManagedHub) -> WorkflowRows:
    """List all workflows."""
    found = [_row(hub, one) for one in hub.workflows.engine.library]
    return WorkflowRows(sorted(found, key=lambda row: row.id))


async def show_workflow(hub: ManagedHub, id: str) -> dict[str, Any]:
    """Show a workflow: its states, its transitions and its input."""
    found = _find_definition(hub, id)
    return {**msgspec.to_builtins(_row(hub, found)), **views.describe_definition(found)}


async def draw_workflow(hub: ManagedHub, id: str, query: GraphQuery) -> Drawing:
    """Draw a workflow."""
    found = _find_definition(hub, id)
    model = msgspec.structs.replace(found.model, title=found.title)
    if query.format == "svg":
        return Drawing("svg", graph.draw(graph.picture(model, query.state), is_styled=query.styled))
    draw = {"mermaid": graph.mermaid, "dot": graph.dot}[query.format]
    return Drawing(query.format, draw(model, query.state))


class StateCounts(msgspec.Struct, frozen=True):
    """How many instances of a workflow are in each of its states."""

    states: dict[str, int]


class Problem(msgspec.Struct, frozen=True):
    """A finding of `waypost check`."""

    key: str
    message: str
    code: str
    severity: Literal["error", "warning"]


class Problems(msgspec.Struct, frozen=True):
    """All findings about a workflow."""

    findings: list[Problem]


class SimulationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often to walk through a workflow, how far, and with which random numbers."""

    walks: Annotated[int, Meta(ge=1, le=500)] = 100
    steps: Annotated[int, Meta(ge=1, le=200)] = 50
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0


async def count_states(hub: ManagedHub, id: str) -> StateCounts:
    """Count the instances of a workflow in each of its states."""
    found = _find_definition(hub, id)
    counts = await hub.core.store.instances.count_by_state(found.id)
    # Instances may be in states that only an older definition had.
    return StateCounts({name: counts.get(name, 0) for name in found.names} | counts)


async def check_workflow(hub: ManagedHub, id: str) -> Problems:
    """Check a workflow as `waypost check` does."""
    found = hub.workflows.stored.find_problems(_find_definition(hub, id).id)
    return Problems([Problem(one.key, one.message, one.code, one.severity) for one in found])


async def simulate_workflow(hub: ManagedHub, id: str, body: SimulationRequest) -> Report:
    """Walk through a workflow at random as `waypost simulate` does; nothing is called, and no instance is created."""
    found = _find_definition(hub, id)

    def walk() -> Report:
        definition = Definition(found.id, found.model, ISOLATED)
        definition.compile()
        return simulate(definition, walks=body.walks, steps=body.steps, seed=body.seed)

    return await asyncio.to_thread(walk)


async def create_workflow(hub: ManagedHub, body: NewWorkflow) -> WorkflowChange:
    """Create a workflow."""
    return _added(hub, await hub.workflows.stored.create(body.name, _parse_workflow(body.workflow)))


async def change_workflow(hub: ManagedHub, id: str, body: ChangedWorkflow) -> WorkflowChange:
    """Replace the definition of a workflow; running instances keep the old one."""
    return _changed(hub, await hub.workflows.stored.change(id, _parse_workflow(body.workflow), body.revision))


async def enable_workflow(hub: ManagedHub, id: str) -> WorkflowChange:
    """Enable a workflow."""
    return _changed(hub, await hub.workflows.stored.enable(id))


async def disable_workflow(hub: ManagedHub, id: str) -> WorkflowChange:
    """Disable a workflow: it cannot be started."""
    return _changed(hub, await hub.workflows.stored.disable(id))


async def duplicate_workflow(hub: ManagedHub, id: str) -> WorkflowChange:
    """Copy a workflow; the copy is disabled."""
    return _added(hub, await hub.workflows.stored.duplicate(id))


async def remove_workflow(hub: ManagedHub, id: str) -> Removed:
    """Remove a workflow; its running instances continue."""
    await hub.workflows.stored.remove(id)
    return Removed(id)


async def export_workflow(hub: ManagedHub, id: str) -> WorkflowDocument:
    """Export a workflow as a document."""
    return msgspec.convert(hub.workflows.stored.export(id), WorkflowDocument)


async def import_workflow(hub: ManagedHub, body: WorkflowDocument) -> WorkflowChange:
    """Create a workflow from a document, under a name that is free."""
    return _added(hub, await hub.workflows.stored.import_document(msgspec.to_builtins(body)))


def _added(hub: ManagedHub, one: Created) -> WorkflowChange:
    hub.workflows.watch.start()  # a hub that had no workflows does not watch timeouts yet
    return _changed(hub, one)


def _changed(hub: ManagedHub, one: Created) -> WorkflowChange:
    return WorkflowChange(_row(hub, _find_definition(hub, one.name)))


def _parse_workflow(written: dict[str, Any]) -> Workflow:
    try:
        model = convert(written, Workflow)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"Invalid workflow: {error}.") from None
    unknown = _find_unknown_key(written, msgspec.to_builtins(model), "")
    if unknown:
        raise InvalidParams(f"Invalid workflow: unknown key {unknown}.")
    return model


def _find_unknown_key(written: Any, parsed: Any, place: str) -> str:
    """The path of the first key that the model does not have."""
    if isinstance(written, dict) and isinstance(parsed, dict):
        for key, value in written.items():
            if key not in parsed:
                return f"{place}{key}"
            if found := _find_unknown_key(value, parsed[key], f"{place}{key}."):
                return found
    if isinstance(written, list) and isinstance(parsed, list):
        for number, (value, known) in enumerate(zip(written, parsed, strict=False)):
            if found := _find_unknown_key(value, known, f"{place}{number}."):
                return found
    return ""


def _row(hub: ManagedHub, one: Definition) -> WorkflowRow:
    source = hub.workflows.source(one.id)
    revision = hub.workflows.stored.get(one.id).version if source == "created" else None
    return WorkflowRow(one.id, one.title, one.model.version, one.model.enabled, source, revision)


def _find_definition(hub: ManagedHub, id: str) -> Definition:
    library = hub.workflows.engine.library
    found = library.get(id)
    if found is None:
        near = library.find_nearest(id)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise WorkflowRefused(f"There is no workflow {id}{hint}", "UNKNOWN_ID")
    return found


# Approvals


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of a decision, and the digest of what was seen; with another digest the decision is refused."""

    reason: Text = ""
    digest: Annotated[str, Meta(max_length=200)] | None = None


class Approvals(Listing, frozen=True):
    """What waits for approval, the oldest first."""

    approvals: list[dict[str, Any]]


class Decided(msgspec.Struct, frozen=True, rename="camel"):
    """A decision and the instance after it; `error` is what failed afterwards."""

    id: str
    decision: Literal["approved", "rejected"]
    workflow_id: str
    state: str
    version: int
    status: str
    error: dict[str, Any] | None = None
    missing: int = 0
    """How many more people have to approve."""


async def list_approvals(hub: ManagedHub, by: Operator) -> Approvals:
    """List what waits for approval: everything for viewers, else what a role of the principal may decide."""
    reads_all, found = may_act_as("viewer", by.principal), []
    for one in await hub.workflows.engine.approvals.waiting():
        can_decide = may_decide(one["role"], by.principal)
        if can_decide or reads_all:
            given = [{**vote, "at": format_time(vote["at"])} for vote in one["given"]]
            found.append({**one, "given": given, "canDecide": can_decide})
    return Approvals(found)


async def approve(hub: ManagedHub, id: str, body: Decision, by: Operator) -> Decided:
    """Approve a transition that waits for people."""
    return await _decide(hub, id, "approved", hub.workflows.engine.approvals.approve, body, by)


async def reject(hub: ManagedHub, id: str, body: Decision, by: Operator) -> Decided:
    """Reject a transition that waits for people."""
    return await _decide(hub, id, "rejected", hub.workflows.engine.approvals.reject, body, by)


async def _decide(
    hub: ManagedHub, id: str, word: Literal["approved", "rejected"], decide: _Decide, body: Decision, by: Operator
) -> Decided:
    engine = hub.workflows.engine
    outcome = await run_detached(engine, decide(id, by.principal, by.via, body.reason, body.digest))
    instance: Instance | None = outcome.instance if outcome is not None else await engine.cache.get(instance_id_of(id))
    assert instance is not None
    failure = None if outcome is None or word == "rejected" else outcome.error
    approval = None if instance.pending_move is None else instance.pending_move.approval
    missing = approval.needed - len(approval.given) if approval is not None and approval.id == id else 0
    return Decided(id, word, instance.id, instance.state.name, instance.version, instance.status, failure, missing)


# Examples for the OpenAPI document


_ROW: Final = WorkflowRow("release", "Release", "1.0.0", True, "created", 1)
_FIELDS: Final = {
    "title": "Release",
    "initialState": "draft",
    "states": {"draft": {"transitions": {"ship": {"target": "shipped"}}}, "shipped": {"terminal": True}},
}
LIST: Final = WorkflowRows([_ROW])
NEW: Final = NewWorkflow("release", _FIELDS)
CHANGED: Final = ChangedWorkflow(_FIELDS, 1)
CHANGE: Final = WorkflowChange(_ROW)
REMOVED: Final = Removed("release")
DOCUMENT: Final = WorkflowDocument(1, {"name": "release", **_FIELDS}, [])
DEFINITION: Final = {**msgspec.to_builtins(_ROW), "definitionId": "release", "initialState": "draft", "states": {}}
COUNTS: Final = StateCounts({"draft": 3, "shipped": 12})
PROBLEMS: Final = Problems([Problem("workflows.release.states.draft", "No way leads on.", "dead_end", "warning")])
SIMULATION: Final = SimulationRequest()
SIMULATED: Final = Report(
    workflow="release",
    walks=100,
    steps=50,
    seed=0,
    ok=True,
    states={"draft": 100},
    endings={"succeeded": 100},
    never_reached=[],
    unreachable=[],
    never_taken=[],
    dead_ends=[],
    chain_failures=[],
)
DRAWING: Final = Drawing("mermaid", "stateDiagram-v2\n")

_APPROVAL: Final = {
    "id": "ap_0199a1b2c3d4e5f60718293a_5f0c41aa7b21",
    "workflowId": RUN_ID,
    "definitionId": "release",
    "state": "review",
    "transition": "ship",
    "title": "Release",
    "targets": ["shipped"],
    "requestedBy": "ci",
    "requestedAt": "2029-01-01T00:00:00.000Z",
    "expiresAt": "2029-01-08T00:00:00.000Z",
    "role": "human",
    "queue": "default",
    "needed": 1,
    "given": [],
    "prompt": "Ship it?",
    "presents": {"service": "shop"},
    "digest": "sha256:41aa",
    "canDecide": True,
}
APPROVALS: Final = Approvals([_APPROVAL])
APPROVAL: Final = Decision("looks good", "sha256:41aa")
APPROVED: Final = Decided(str(_APPROVAL["id"]), "approved", RUN_ID, "shipped", 4, "succeeded")
REJECTION: Final = Decision("not on a Friday")
REJECTED: Final = Decided(str(_APPROVAL["id"]), "rejected", RUN_ID, "review", 4, "waiting_for_action")
