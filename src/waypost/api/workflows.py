"""Workflow definitions, their instances, and the approvals that instances wait for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from waypost.api.routing import ManagedHub, Operator
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import Chain
from waypost.config.models import Workflow
from waypost.errors import InvalidParams, WorkflowRefused
from waypost.kinds import convert
from waypost.redaction import cleared, secrets_of
from waypost.workflows import graph, views
from waypost.workflows.approvals import instance_id_of
from waypost.workflows.definitions import Definition
from waypost.workflows.engine import Engine
from waypost.workflows.instance import ADMIN, Instance
from waypost.workflows.resources import MOST_HISTORY, Page, Runs, mask_answer
from waypost.workflows.runner import Outcome
from waypost.workflows.stored_definitions import Created
from waypost.workflows.views import Answer, format_time

Format = Literal["mermaid", "dot", "svg"]
Text = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
DefinitionFields = Annotated[dict[str, Any], Meta(description="A workflow as the configuration file has it.")]

Status = Literal[
    "waiting_for_action",
    "waiting_for_approval",
    "waiting_for_workflow",
    "executing",
    "going_on",
    "unknown_outcome",
    "chain_failed",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
]
"""What instances are doing or waiting for, or how they ended."""
Run = dict[str, Any]
"""An instance as `workflow.get` answers it, and more."""

ANSWER_TIMEOUT_S: Final = 20.0
"""How long an answer waits for the transition of an instance; the transition continues without it."""
_LATER_ERRORS: Final = frozenset({"EXECUTOR_FAILED", "CHAIN_FAILED", "CHAIN_DEPTH_EXCEEDED"})
"""Errors that came after what was requested was done."""
_DATA_KEYS: Final = frozenset({"context", "input", "arguments", "error", "lastError", "approval", "delta"})
"""Keys whose values come from programs, agents and people, and may hold secrets."""
_INSTANCE_ID: Final = re.compile("wf_[0-9a-f]{24}")
_Result = TypeVar("_Result")


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


class WorkflowRows(msgspec.Struct, frozen=True):
    """All workflows, by id."""

    workflows: list[WorkflowRow]


class GraphQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The language of a drawing, and the state to mark in it."""

    format: Format = "mermaid"
    state: str | None = None


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
    draw = {"mermaid": graph.mermaid, "dot": graph.dot, "svg": graph.svg}[query.format]
    return Drawing(query.format, draw(model, query.state))


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


# Instances


class RunQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which instances to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: str = ""
    principal: Name | None = None
    definition: Name | None = None
    status: Status | None = None


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a history to show."""

    limit: Annotated[int, Meta(ge=1, le=MOST_HISTORY)] = MOST_HISTORY
    after: Annotated[int, Meta(ge=0)] = 0


class Cancellation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an instance is cancelled."""

    reason: Text = ""


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"how": "as"}):
    """How to resolve a transition whose outcome is unknown."""

    how: Literal["retry", "succeeded", "failed"]
    output: Any = None


async def list_runs(hub: ManagedHub, query: RunQuery) -> Page:
    """List workflow instances, the newest first."""
    if query.before and not _INSTANCE_ID.fullmatch(query.before):
        raise InvalidParams("Invalid cursor in `before`.")
    return await _runs(hub).list(
        principal=query.principal,
        definition=query.definition,
        status=query.status,
        before=query.before,
        limit=query.limit,
    )


async def show_run(hub: ManagedHub, id: str, query: HistoryQuery, by: Operator) -> Run:
    """Show a workflow instance and its history."""
    answer = await _runs(hub).show(id, _to_caller(by, id), after=query.after, limit=query.limit)
    return _to_run(hub, answer)


async def cancel_run(hub: ManagedHub, id: str, body: Cancellation, by: Operator) -> Run:
    """Cancel a workflow instance."""
    return _to_run(hub, await hub.workflows.engine.cancel(id, _to_caller(by, id), body.reason))


async def resolve_run(hub: ManagedHub, id: str, body: Resolution, by: Operator) -> Run:
    """Resolve a transition whose outcome is unknown."""
    if body.output is not None and body.how != "succeeded":
        raise InvalidParams("`output` is only for `succeeded`.")
    engine, caller = hub.workflows.engine, _to_caller(by, id)
    _to_run(hub, await engine.get(id, caller))
    instance = await engine.get_visible(id, by.principal)
    move = "" if instance.pending_move is None else instance.pending_move.move
    answer = await _run_detached(
        engine, engine.submit(id, instance.version, move, {}, caller, resolve=body.how, output=body.output)
    )
    if answer is None:
        answer = await engine.get(id, caller)
    return _to_run(hub, answer)


def _to_caller(by: Operator, run: str) -> Caller:
    """An operator as the caller of a workflow."""
    return DetachedCaller(by.principal, Chain(by.via, "console", 0, run))


async def _run_detached(engine: Engine, work: Coroutine[Any, Any, _Result]) -> _Result | None:
    """The result of work that continues when its request is cancelled; None if it takes too long to wait for."""
    task = engine.runner.spawn(_catch_refusal(work))
    done, _ = await asyncio.wait({task}, timeout=ANSWER_TIMEOUT_S)
    if not done:
        return None
    result: _Result | WorkflowRefused = task.result()
    if isinstance(result, WorkflowRefused):
        raise result
    return result


async def _catch_refusal(work: Coroutine[Any, Any, _Result]) -> _Result | WorkflowRefused:
    # The engine logs what its tasks raise, and a refusal is for the operator only.
    try:
        return await work
    except WorkflowRefused as error:
        return error


def _runs(hub: ManagedHub) -> Runs:
    return Runs(hub.workflows.engine, hub.core.store)


def _to_run(hub: ManagedHub, answer: Answer) -> Run:
    """The instance in an answer, with secrets redacted; raises a refusal."""
    error: dict[str, Any] = answer.data.get("error") or {}
    if answer.refused and error["code"] not in _LATER_ERRORS:
        raise WorkflowRefused(error["message"], error["code"])
    connections = hub.upstreams.connections.values()
    secrets = secrets_of(*(getattr(one, name, {}) for one in connections for name in ("env", "headers")))
    run: Run = _redact(mask_answer(answer.data), (*hub.core.guard.secrets, *secrets))
    return run


def _redact(value: Any, secrets: tuple[str, ...]) -> Any:
    """Redact secrets in the data of an answer; states and names stay, even where a secret is the same word."""
    if isinstance(value, dict):
        return {name: (cleared if name in _DATA_KEYS else _redact)(item, secrets) for name, item in value.items()}
    return [_redact(item, secrets) for item in value] if isinstance(value, list) else value


# Approvals


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of a decision, and the digest of what was seen; with another digest the decision is refused."""

    reason: Text = ""
    digest: Annotated[str, Meta(max_length=200)] | None = None


class Approvals(msgspec.Struct, frozen=True):
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


async def list_approvals(hub: ManagedHub, by: Operator) -> Approvals:
    """List what waits for approval by a role of the operator; the role admin sees all."""
    roles = by.principal.roles
    waiting = await hub.workflows.engine.approvals.waiting()
    rows = [one for one in waiting if one["role"] in roles or ADMIN in roles]
    return Approvals(
        [{**one, "given": [{**vote, "at": format_time(vote["at"])} for vote in one["given"]]} for one in rows]
    )


async def approve(hub: ManagedHub, id: str, body: Decision, by: Operator) -> Decided:
    """Approve a transition that waits for people."""
    approvals = hub.workflows.engine.approvals
    return await _decide(hub, id, "approved", approvals.approve(id, by.principal, by.via, body.reason, body.digest))


async def reject(hub: ManagedHub, id: str, body: Decision, by: Operator) -> Decided:
    """Reject a transition that waits for people."""
    approvals = hub.workflows.engine.approvals
    return await _decide(hub, id, "rejected", approvals.reject(id, by.principal, by.via, body.reason, body.digest))


async def _decide(
    hub: ManagedHub, id: str, word: Literal["approved", "rejected"], work: Coroutine[Any, Any, Outcome]
) -> Decided:
    engine = hub.workflows.engine
    outcome = await _run_detached(engine, work)
    instance: Instance | None = outcome.instance if outcome is not None else await engine.cache.get(instance_id_of(id))
    assert instance is not None
    failure = None if outcome is None or word == "rejected" else outcome.error
    return Decided(id, word, instance.id, instance.state.name, instance.version, instance.status, failure)


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
DRAWING: Final = Drawing("mermaid", "stateDiagram-v2\n")

_RUN_ID: Final = "wf_0199a1b2c3d4e5f60718293a"
_RUN_ROW: Final = {
    "workflowId": _RUN_ID,
    "definitionId": "release",
    "state": "review",
    "version": 3,
    "status": "waiting_for_action",
    "principal": "ci",
    "startedAt": "2029-01-01T00:00:00.000Z",
}
_COMMIT: Final = {
    "version": 1,
    "at": "2029-01-01T00:00:00.000Z",
    "transition": "$start",
    "from": None,
    "to": "draft",
    "by": "ci",
    "delta": {},
}
RUNS: Final = Page([_RUN_ROW], _RUN_ID)
RUN: Final = {**_RUN_ROW, "context": {"tests": True}, "links": []}
RUN_WITH_HISTORY: Final = {**RUN, "history": [_COMMIT]}
CANCELLATION: Final = Cancellation("it is not needed any more")
CANCELLED: Final = {**RUN, "status": "cancelled"}
RESOLUTION: Final = Resolution("succeeded", {"ok": True})

_APPROVAL: Final = {
    "id": "ap_0199a1b2c3d4e5f60718293a_5f0c41aa7b21",
    "workflowId": _RUN_ID,
    "definitionId": "release",
    "state": "review",
    "transition": "ship",
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
}
APPROVALS: Final = Approvals([_APPROVAL])
APPROVAL: Final = Decision("looks good", "sha256:41aa")
APPROVED: Final = Decided(str(_APPROVAL["id"]), "approved", _RUN_ID, "shipped", 4, "succeeded")
REJECTION: Final = Decision("not on a Friday")
REJECTED: Final = Decided(str(_APPROVAL["id"]), "rejected", _RUN_ID, "review", 4, "waiting_for_action")
