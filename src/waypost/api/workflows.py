"""Workflow definitions, their instances, and the approvals that instances wait for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from waypost.api.routing import Operated, Operator, Route
from waypost.capabilities.context import Absent, Caller
from waypost.capabilities.principals import Chain
from waypost.config.workflows import Workflow
from waypost.errors import InvalidParams, WorkflowRefused
from waypost.kinds import convert
from waypost.redaction import cleared, secrets_of
from waypost.workflows import explanations, graph
from waypost.workflows.answers import Answer, moment
from waypost.workflows.approvals import workflow_of
from waypost.workflows.chaining import Outcome
from waypost.workflows.creating import Created
from waypost.workflows.definition import Definition
from waypost.workflows.engine import Engine
from waypost.workflows.live import ADMIN, Live
from waypost.workflows.runs import MOST_HISTORY, Page, Runs, shown

Format = Literal["mermaid", "dot", "svg"]
Written = Annotated[dict[str, Any], Meta(description="A workflow as the configuration file has it.")]


class WorkflowRow(msgspec.Struct, frozen=True):
    """A workflow that can be started, unless it is disabled."""

    id: str
    title: str
    version: str
    enabled: bool
    source: Literal["configured", "given", "created"] | None
    revision: int | None = None
    """How often one that was created was written; names it when it is changed."""


class WorkflowRows(msgspec.Struct, frozen=True):
    """All workflows, by id."""

    workflows: list[WorkflowRow]


class GraphQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a workflow is to be drawn, and with which state marked."""

    format: Format = "mermaid"
    state: str | None = None


class Drawing(msgspec.Struct, frozen=True):
    """A picture as text."""

    format: Format
    text: str


class NewWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A workflow to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    workflow: Written


class ChangedWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a workflow is to be from now on; with a revision, only if it still has that."""

    workflow: Written
    revision: int | None = None


class WorkflowDocument(msgspec.Struct, frozen=True):
    """A workflow to pass on to another hub."""

    version: Any = None
    workflow: Any = None
    steps: Any = None


class WorkflowChange(msgspec.Struct, frozen=True):
    """A workflow as it is now."""

    workflow: WorkflowRow


class Removed(msgspec.Struct, frozen=True):
    """The workflow that cannot be started any more; what runs goes on."""

    id: str
    status: Literal["removed"] = "removed"


async def list_workflows(hub: Operated) -> WorkflowRows:
    """All workflows."""
    found = [_row(hub, one) for one in hub.workflows.engine.library]
    return WorkflowRows(sorted(found, key=lambda row: row.id))


async def show_workflow(hub: Operated, id: str) -> dict[str, Any]:
    """A workflow: its states, its transitions and its input."""
    found = _known(hub, id)
    return {**msgspec.to_builtins(_row(hub, found)), **explanations.definition(found)}


async def draw_workflow(hub: Operated, id: str, query: GraphQuery) -> Drawing:
    """A picture of a workflow."""
    found = _known(hub, id)
    model = msgspec.structs.replace(found.model, title=found.title)
    draw = {"mermaid": graph.mermaid, "dot": graph.dot, "svg": graph.svg}[query.format]
    return Drawing(query.format, draw(model, query.state))


async def create_workflow(hub: Operated, body: NewWorkflow) -> WorkflowChange:
    """Have one workflow more."""
    return _made(hub, await hub.workflows.creating.create(body.name, _model(body.workflow)))


async def change_workflow(hub: Operated, id: str, body: ChangedWorkflow) -> WorkflowChange:
    """Exchange a workflow for another under its name; what runs goes on as it began."""
    return _changed(hub, await hub.workflows.creating.change(id, _model(body.workflow), body.revision))


async def enable_workflow(hub: Operated, id: str) -> WorkflowChange:
    """Let a workflow be started."""
    return _changed(hub, await hub.workflows.creating.enable(id))


async def disable_workflow(hub: Operated, id: str) -> WorkflowChange:
    """Let a workflow be started no more."""
    return _changed(hub, await hub.workflows.creating.disable(id))


async def duplicate_workflow(hub: Operated, id: str) -> WorkflowChange:
    """Make a copy, disabled."""
    return _made(hub, await hub.workflows.creating.duplicate(id))


async def remove_workflow(hub: Operated, id: str) -> Removed:
    """Have a workflow no more."""
    await hub.workflows.creating.remove(id)
    return Removed(id)


async def export_workflow(hub: Operated, id: str) -> WorkflowDocument:
    """A workflow as a document."""
    return msgspec.convert(hub.workflows.creating.export(id), WorkflowDocument)


async def import_workflow(hub: Operated, body: WorkflowDocument) -> WorkflowChange:
    """Make the workflow of a document, under a name that is free."""
    return _made(hub, await hub.workflows.creating.take_in(msgspec.to_builtins(body)))


def _made(hub: Operated, one: Created) -> WorkflowChange:
    """What was made; a hub that had no workflows yet looks after timeouts from now on."""
    hub.workflows.watch.start()
    return _changed(hub, one)


def _changed(hub: Operated, one: Created) -> WorkflowChange:
    return WorkflowChange(_row(hub, _known(hub, one.name)))


def _model(written: dict[str, Any]) -> Workflow:
    try:
        model = convert(written, Workflow)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"The workflow is not what is expected: {error}.") from None
    unknown = _unknown(written, msgspec.to_builtins(model), "")
    if unknown:
        raise InvalidParams(f"The workflow is not what is expected: there is no key {unknown}.")
    return model


def _unknown(written: Any, understood: Any, place: str) -> str:
    """The first key that was written and not understood; keys that were not understood are not in the model."""
    if isinstance(written, dict) and isinstance(understood, dict):
        for key, value in written.items():
            if key not in understood:
                return f"{place}{key}"
            if found := _unknown(value, understood[key], f"{place}{key}."):
                return found
    if isinstance(written, list) and isinstance(understood, list):
        for number, (value, known) in enumerate(zip(written, understood, strict=False)):
            if found := _unknown(value, known, f"{place}{number}."):
                return found
    return ""


def _row(hub: Operated, one: Definition) -> WorkflowRow:
    source = hub.workflows.source(one.id)
    revision = hub.workflows.creating.get(one.id).version if source == "created" else None
    return WorkflowRow(one.id, one.title, one.model.version, one.model.enabled, source, revision)


def _known(hub: Operated, id: str) -> Definition:
    library = hub.workflows.engine.library
    found = library.get(id)
    if found is None:
        near = library.find_nearest(id)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise WorkflowRefused(f"There is no workflow {id}{hint}", "UNKNOWN_ID")
    return found


_ROW: Final = WorkflowRow("release", "Release", "1.0.0", True, "created", 1)
_CHANGE: Final = WorkflowChange(_ROW)
_WRITTEN: Final = {
    "title": "Release",
    "initialState": "draft",
    "states": {"draft": {"transitions": {"ship": {"target": "shipped"}}}, "shipped": {"terminal": True}},
}
_DOCUMENT: Final = WorkflowDocument(1, {"name": "release", **_WRITTEN}, [])
_PLACE: Final = "/api/v1/workflows"

WORKFLOW_ROUTES: Final = (
    Route("GET", _PLACE, list_workflows, "All workflows", answer=WorkflowRows([_ROW])),
    Route("POST", _PLACE, create_workflow, "Make a workflow", 201, NewWorkflow("release", _WRITTEN), _CHANGE),
    Route("POST", f"{_PLACE}/import", import_workflow, "Make a workflow from a document", 201, _DOCUMENT, _CHANGE),
    Route(
        "GET",
        f"{_PLACE}/{{id}}",
        show_workflow,
        "A workflow",
        answer={**msgspec.to_builtins(_ROW), "definitionId": "release", "initialState": "draft", "states": {}},
    ),
    Route("DELETE", f"{_PLACE}/{{id}}", remove_workflow, "Remove a workflow", answer=Removed("release")),
    Route(
        "POST",
        f"{_PLACE}/{{id}}/change",
        change_workflow,
        "Exchange a workflow for another",
        example=ChangedWorkflow(_WRITTEN, 1),
        answer=_CHANGE,
    ),
    Route("POST", f"{_PLACE}/{{id}}/enable", enable_workflow, "Let a workflow be started", answer=_CHANGE),
    Route("POST", f"{_PLACE}/{{id}}/disable", disable_workflow, "Let a workflow be started no more", answer=_CHANGE),
    Route("POST", f"{_PLACE}/{{id}}/duplicate", duplicate_workflow, "Copy a workflow", 201, answer=_CHANGE),
    Route("GET", f"{_PLACE}/{{id}}/export", export_workflow, "A workflow as a document", answer=_DOCUMENT),
    Route(
        "GET",
        f"{_PLACE}/{{id}}/graph",
        draw_workflow,
        "A picture of a workflow",
        answer=Drawing("mermaid", "stateDiagram-v2\n"),
    ),
)


PATIENCE: Final = 20.0
"""Seconds for which an answer waits until an instance has gone on; it goes on all the same."""
_ON_THE_WAY: Final = frozenset({"EXECUTOR_FAILED", "CHAIN_FAILED", "CHAIN_DEPTH_EXCEEDED"})
"""Errors of what followed: what was asked for is done."""
_DATA: Final = frozenset({"context", "input", "arguments", "error", "lastError", "approval", "delta"})
"""What programs, agents and people gave."""
_ID: Final = re.compile("wf_[0-9a-f]{24}")

Text = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
_Result = TypeVar("_Result")


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
"""What runs are doing or waiting for, or how they ended."""


class RunQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs are wanted."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: str = ""
    principal: Name | None = None
    definition: Name | None = None
    status: Status | None = None


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a history is wanted."""

    limit: Annotated[int, Meta(ge=1, le=MOST_HISTORY)] = MOST_HISTORY
    after: Annotated[int, Meta(ge=0)] = 0


class Cancellation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run is to end."""

    reason: Text = ""


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"how": "as"}):
    """What became of a transition whose outcome nobody knows."""

    how: Literal["retry", "succeeded", "failed"]
    output: Any = None


Run = dict[str, Any]
"""How a run stands; the same as `workflow.get` tells, and more."""


async def list_runs(hub: Operated, query: RunQuery) -> Page:
    """The newest runs, or those before them."""
    if query.before and not _ID.fullmatch(query.before):
        raise InvalidParams("The cursor in `before` is none that was given out.")
    return await _runs(hub).list(
        principal=query.principal,
        definition=query.definition,
        status=query.status,
        before=query.before,
        limit=query.limit,
    )


async def show_run(hub: Operated, id: str, query: HistoryQuery, by: Operator) -> Run:
    """A run and its history."""
    answer = await _runs(hub).show(id, caller_of(by, id), after=query.after, limit=query.limit)
    return _done(hub, answer)


async def cancel_run(hub: Operated, id: str, body: Cancellation, by: Operator) -> Run:
    """End a run where it stands."""
    return _done(hub, await hub.workflows.engine.cancel(id, caller_of(by, id), body.reason))


async def resolve_run(hub: Operated, id: str, body: Resolution, by: Operator) -> Run:
    """Say what became of a transition whose outcome nobody knows."""
    if body.output is not None and body.how != "succeeded":
        raise InvalidParams("There is only an `output` where it has `succeeded`.")
    engine, caller = hub.workflows.engine, caller_of(by, id)
    _done(hub, await engine.get(id, caller))
    live = await engine.seen(id, by.principal)
    move = "" if live.held is None else live.held.move
    answer = await patiently(
        engine, engine.submit(id, live.version, move, {}, caller, resolve=body.how, output=body.output)
    )
    if answer is None:
        answer = await engine.get(id, caller)
    return _done(hub, answer)


def caller_of(by: Operator, run: str) -> Caller:
    """Whoever asks, as one who acts in a workflow."""
    return Absent(by.principal, Chain(by.via, "console", 0, run))


async def patiently(engine: Engine, work: Coroutine[Any, Any, _Result]) -> _Result | None:
    """What something comes to, or nothing when that takes long; it goes on when whoever asked leaves."""
    task = engine.spawn(_caught(work))
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    if not done:
        return None
    result: _Result | WorkflowRefused = task.result()
    if isinstance(result, WorkflowRefused):
        raise result
    return result


async def _caught(work: Coroutine[Any, Any, _Result]) -> _Result | WorkflowRefused:
    """A refusal is for whoever asked, not for the log."""
    try:
        return await work
    except WorkflowRefused as error:
        return error


def _runs(hub: Operated) -> Runs:
    return Runs(hub.workflows.engine, hub.core.store)


def _done(hub: Operated, answer: Answer) -> Run:
    """What was done, without secrets; a refusal is an error."""
    error: dict[str, Any] = answer.data.get("error") or {}
    if answer.refused and error["code"] not in _ON_THE_WAY:
        raise WorkflowRefused(error["message"], error["code"])
    connections = hub.upstreams.connections.values()
    given = [getattr(one, name, {}) for one in connections for name in ("env", "headers")]
    told: Run = _clear(shown(answer.data), (*hub.core.guard.secrets, *secrets_of(*given)))
    return told


def _clear(value: Any, secrets: tuple[str, ...]) -> Any:
    """An answer whose data holds no secrets; names stay what they are, even where a secret is such a word."""
    if isinstance(value, dict):
        return {name: (cleared if name in _DATA else _clear)(item, secrets) for name, item in value.items()}
    return [_clear(item, secrets) for item in value] if isinstance(value, list) else value


_RUN: Final = {
    "workflowId": "wf_0199a1b2c3d4e5f60718293a",
    "definitionId": "release",
    "state": "review",
    "version": 3,
    "status": "waiting_for_action",
    "principal": "ci",
    "startedAt": "2029-01-01T00:00:00.000Z",
}
_STANDING: Final = {**_RUN, "context": {"tests": True}, "links": []}
_ENTRY: Final = {
    "version": 1,
    "at": "2029-01-01T00:00:00.000Z",
    "transition": "$start",
    "from": None,
    "to": "draft",
    "by": "ci",
    "delta": {},
}

RUN_ROUTES: Final = (
    Route("GET", "/api/v1/runs", list_runs, "The newest runs", answer=Page([_RUN], "wf_0199a1b2c3d4e5f60718293a")),
    Route("GET", "/api/v1/runs/{id}", show_run, "A run and its history", answer={**_STANDING, "history": [_ENTRY]}),
    Route(
        "POST",
        "/api/v1/runs/{id}/cancel",
        cancel_run,
        "End a run where it stands",
        example=Cancellation("it is not needed any more"),
        answer={**_STANDING, "status": "cancelled"},
    ),
    Route(
        "POST",
        "/api/v1/runs/{id}/resolve",
        resolve_run,
        "Say what became of a transition whose outcome nobody knows",
        example=Resolution("succeeded", {"ok": True}),
        answer=_STANDING,
    ),
)


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and the digest of what was seen, if that is to be compared."""

    reason: Text = ""
    digest: Annotated[str, Meta(max_length=200)] | None = None


class Waiting(msgspec.Struct, frozen=True):
    """What waits for somebody, the oldest first."""

    approvals: list[dict[str, Any]]


class Decided(msgspec.Struct, frozen=True, rename="camel"):
    """What was decided, and how the run stands; `error` is what went wrong behind it."""

    id: str
    decision: Literal["approved", "rejected"]
    workflow_id: str
    state: str
    version: int
    status: str
    error: dict[str, Any] | None = None


async def list_approvals(hub: Operated, by: Operator) -> Waiting:
    """What waits for whoever asks; an operator sees all of it."""
    found = await hub.workflows.engine.gates.waiting()
    roles = by.principal.roles
    return Waiting([_told(one) for one in found if one["role"] in roles or ADMIN in roles])


async def approve(hub: Operated, id: str, body: Decision, by: Operator) -> Decided:
    """Say yes."""
    gates = hub.workflows.engine.gates
    return await _decided(hub, id, "approved", gates.approve(id, by.principal, by.via, body.reason, body.digest))


async def reject(hub: Operated, id: str, body: Decision, by: Operator) -> Decided:
    """Say no."""
    gates = hub.workflows.engine.gates
    return await _decided(hub, id, "rejected", gates.reject(id, by.principal, by.via, body.reason, body.digest))


async def _decided(
    hub: Operated, id: str, word: Literal["approved", "rejected"], work: Coroutine[Any, Any, Outcome]
) -> Decided:
    engine = hub.workflows.engine
    outcome = await patiently(engine, work)
    live: Live | None = outcome.live if outcome is not None else await engine.shelf.get(workflow_of(id))
    assert live is not None
    failure = None if outcome is None or word == "rejected" else outcome.error
    return Decided(id, word, live.id, live.state.name, live.version, live.status, failure)


def _told(approval: dict[str, Any]) -> dict[str, Any]:
    given = [{**one, "at": moment(one["at"])} for one in approval["given"]]
    return {**approval, "given": given}


_APPROVAL_ID: Final = "ap_0199a1b2c3d4e5f60718293a_5f0c41aa7b21"
_WAITING: Final = {
    "id": _APPROVAL_ID,
    "workflowId": "wf_0199a1b2c3d4e5f60718293a",
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
_DONE: Final = Decided(_APPROVAL_ID, "approved", "wf_0199a1b2c3d4e5f60718293a", "shipped", 4, "succeeded")

APPROVAL_ROUTES: Final = (
    Route("GET", "/api/v1/approvals", list_approvals, "What waits for people", answer=Waiting([_WAITING]), open=True),
    Route(
        "POST",
        "/api/v1/approvals/{id}/approve",
        approve,
        "Approve",
        example=Decision("looks good", "sha256:41aa"),
        answer=_DONE,
        open=True,
    ),
    Route(
        "POST",
        "/api/v1/approvals/{id}/reject",
        reject,
        "Reject",
        example=Decision("not on a Friday"),
        answer=msgspec.structs.replace(_DONE, decision="rejected", state="review", status="waiting_for_action"),
        open=True,
    ),
)
