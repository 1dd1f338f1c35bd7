"""Workflow instances: which there are, what happened to them, and what operators do about them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from waypost.api.routing import Listing, ManagedHub, Operator
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import Chain
from waypost.errors import InvalidParams, WorkflowRefused
from waypost.redaction import cleared, secrets_of
from waypost.workflows import graph
from waypost.workflows.definitions import RESUME
from waypost.workflows.engine import Engine
from waypost.workflows.instance import ADMIN
from waypost.workflows.resources import MOST_HISTORY, Page, RunFilter, Runs, mask_answer
from waypost.workflows.views import Answer

Text = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Time = Annotated[datetime, Meta(tz=True)]
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
MAX_BATCH: Final = 500
"""The largest number of instances that one request changes."""
MAX_SHOWN: Final = 20
MAX_LATEST: Final = 200
"""The largest number of history entries per page, the newest first."""
_GRAPH_HISTORY: Final = 1_000
_Result = TypeVar("_Result")


class RunSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which instances; every condition that is given has to hold."""

    principal: Name | None = None
    definition: Name | None = None
    state: Name | None = None
    """Needs a definition, which is what states belong to."""
    status: Status | None = None
    since: Time | None = None
    until: Time | None = None
    """When they were started."""
    text: Annotated[str, Meta(max_length=200)] = ""
    """A part of the id, the input or the context; secrets are not found."""
    all: bool = False
    """Whether to list single calls through the gateway that wait for nothing, too."""

    def to_filter(self, **changes: Any) -> RunFilter:
        """The filter of the engine; raises `InvalidParams`."""
        if self.state is not None and self.definition is None:
            raise InvalidParams("`state` needs a `definition`: states belong to one.")
        given = {name: getattr(self, name) for name in RunSelection.__struct_fields__ if name != "all"}
        return RunFilter(**{**given, "everything": self.all, **changes})


class RunQuery(RunSelection, frozen=True, forbid_unknown_fields=True):
    """Which instances to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before: str = ""


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a history to show."""

    limit: Annotated[int, Meta(ge=1, le=MOST_HISTORY)] = MOST_HISTORY
    after: Annotated[int, Meta(ge=0)] = 0
    before: Annotated[int, Meta(ge=0)] = 0
    """Only with the order `desc`, which takes no `after`; 0 for the newest."""
    order: Literal["asc", "desc"] = "asc"


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A transition to take, at the version that was seen; `$resume` continues a chain that failed."""

    transition: Name
    version: int
    arguments: dict[str, Any] = {}


BatchAction = Literal["cancel", "retry", "succeeded", "failed"]


class BatchRequest(RunSelection, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What to do with all instances of a selection that it can be done with.

    `retry` runs unknown outcomes again and continues failed chains; `succeeded` and `failed` resolve unknown outcomes.
    """

    action: BatchAction
    dry_run: bool = True
    newest: str = ""
    """The newest instance that the dry run showed; later ones are left alone."""
    reason: Text = ""


class BatchFailure(msgspec.Struct, frozen=True, rename="camel"):
    """An instance that could not be changed."""

    workflow_id: str
    error: str


class Batch(msgspec.Struct, frozen=True, rename="camel"):
    """The instances that would be changed, or were."""

    action: BatchAction
    dry_run: bool
    total: int
    """How many there are, or were changed; at most 500 in one request."""
    more: bool
    """Whether there are more than one request changes."""
    newest: str
    runs: list[Run]
    """The first of them."""
    failures: list[BatchFailure]


class RunRows(Listing, frozen=True):
    """Instances, the newest first."""

    runs: list[Run]


class GraphOfRun(msgspec.Struct, frozen=True):
    """A drawing of the definition, with the way that the instance took and the state it is in."""

    text: str


class Cancellation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an instance is cancelled."""

    reason: Text = ""


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"how": "as"}):
    """How to resolve a transition whose outcome is unknown."""

    how: Literal["retry", "succeeded", "failed"]
    output: Any = None


async def list_runs(hub: ManagedHub, query: RunQuery) -> Page:
    """List workflow instances, the newest first."""
    return await _runs(hub).list(query.to_filter(), before=_check_cursor(query.before), limit=query.limit)


async def show_run(hub: ManagedHub, id: str, query: HistoryQuery, by: Operator) -> Run:
    """Show a workflow instance and its history."""
    caller, runs = _to_caller(by, id), _runs(hub)
    if query.order == "desc":
        limit = min(query.limit, MAX_LATEST)
        return _to_run(hub, await runs.show_latest(id, caller, before=query.before, limit=limit))
    if query.before:
        raise InvalidParams("`before` needs `order=desc`.")
    return _to_run(hub, await runs.show(id, caller, after=query.after, limit=query.limit))


async def list_children(hub: ManagedHub, id: str, by: Operator) -> RunRows:
    """List the instances that an instance started."""
    await hub.workflows.engine.get_visible(id, _to_caller(by, id).principal)
    return RunRows(list(await _runs(hub).list_children(id)))


async def draw_run(hub: ManagedHub, id: str, by: Operator) -> GraphOfRun:
    """Draw an instance: its definition as SVG without a style sheet, its way and its state."""
    instance = await hub.workflows.engine.get_visible(id, _to_caller(by, id).principal)
    history = await hub.core.store.instances.latest_history(id, instance.version + 1, _GRAPH_HISTORY)
    taken = {(entry.value.get("from"), entry.value.get("transition"), entry.value.get("to")) for entry in history}
    model = msgspec.structs.replace(instance.definition.model, title=instance.definition.title)
    return GraphOfRun(graph.draw(graph.picture(model, instance.state.name, taken), is_styled=False))


async def submit_run(hub: ManagedHub, id: str, body: Submission, by: Operator) -> Run:
    """Take a transition of a workflow instance, as the principal of the request."""
    engine = hub.workflows.engine
    instance = await engine.get_visible(id, _to_caller(by, id).principal)
    # Without the rights of an operator: guards and actors are decided as for every other caller.
    if not instance.is_open_to(by.principal):
        message = f"{id} belongs to {instance.body.owner.id}; to submit for others, the role admin is needed."
        raise WorkflowRefused(message, "POLICY_DENIED")
    caller = DetachedCaller(by.principal, Chain(by.via, "console", 0, id))
    return await _submit(hub, caller, id, body.version, body.transition, body.arguments)


_APPLICABLE: Final[dict[BatchAction, tuple[Status, ...]]] = {
    "cancel": (
        "waiting_for_action",
        "waiting_for_approval",
        "waiting_for_workflow",
        "executing",
        "going_on",
        "unknown_outcome",
        "chain_failed",
    ),
    "retry": ("unknown_outcome", "chain_failed"),
    "succeeded": ("unknown_outcome",),
    "failed": ("unknown_outcome",),
}
"""The statuses in which each action is possible."""


async def change_runs(hub: ManagedHub, body: BatchRequest, by: Operator) -> Batch:
    """Cancel, retry or resolve all workflow instances of a selection, or show which these are."""
    # `g` sorts after every hex digit, so that the newest one itself is included.
    before = f"{_check_cursor(body.newest)}g" if body.newest else ""
    found, more = await _find_batch(hub, body, before)
    newest = body.newest or max((run["workflowId"] for run in found), default="")
    if body.dry_run:
        return Batch(body.action, True, len(found), more, newest, found[:MAX_SHOWN], [])
    failures = []
    for run in found:
        try:
            await _change_run(hub, run["workflowId"], body, by)
        except WorkflowRefused as error:
            failures.append(BatchFailure(run["workflowId"], error.message))
    failed = {one.workflow_id for one in failures}
    done = [run for run in found if run["workflowId"] not in failed]
    return Batch(body.action, False, len(done), more, newest, done[:MAX_SHOWN], failures[:MAX_SHOWN])


async def _find_batch(hub: ManagedHub, body: BatchRequest, before: str) -> tuple[list[Run], bool]:
    statuses = [one for one in _APPLICABLE[body.action] if body.status in (None, one)]
    if not statuses:
        possible = ", ".join(_APPLICABLE[body.action])
        raise InvalidParams(f"`{body.action}` is not possible with the status {body.status}; it is with {possible}.")
    found: list[Run] = []
    is_more = False
    for status in statuses:
        cursor: str | None = before
        while cursor is not None and len(found) < MAX_BATCH:
            page = await _runs(hub).list(body.to_filter(status=status), before=cursor, limit=MAX_BATCH - len(found))
            found += page.runs
            cursor = page.next
        is_more = is_more or cursor is not None
    return found, is_more


async def _change_run(hub: ManagedHub, id: str, body: BatchRequest, by: Operator) -> None:
    if body.action == "cancel":
        await cancel_run(hub, id, Cancellation(body.reason), by)
    else:
        await resolve_run(hub, id, Resolution(body.action), by)


def _runs(hub: ManagedHub) -> Runs:
    return Runs(hub.workflows.engine, hub.core.store, _secrets(hub))


def _check_cursor(cursor: str) -> str:
    if cursor and not _INSTANCE_ID.fullmatch(cursor):
        raise InvalidParams("Invalid cursor in `before`: give `next` of the page before, the id of an instance.")
    return cursor


async def cancel_run(hub: ManagedHub, id: str, body: Cancellation, by: Operator) -> Run:
    """Cancel a workflow instance."""
    return _to_run(hub, await hub.workflows.engine.cancel(id, _to_caller(by, id), body.reason))


async def resolve_run(hub: ManagedHub, id: str, body: Resolution, by: Operator) -> Run:
    """Resolve a transition whose outcome is unknown, or retry a chain that failed."""
    if body.output is not None and body.how != "succeeded":
        raise InvalidParams("`output` is only for `succeeded`.")
    engine, caller = hub.workflows.engine, _to_caller(by, id)
    # Only to raise its refusal.
    _to_run(hub, await engine.get(id, caller))
    instance = await engine.get_visible(id, caller.principal)
    if instance.body.halted is not None and body.how == "retry":
        return await _submit(hub, caller, id, instance.version, RESUME, {})
    move = "" if instance.pending_move is None else instance.pending_move.move
    return await _submit(hub, caller, id, instance.version, move, {}, resolve=body.how, output=body.output)


async def _submit(
    hub: ManagedHub, caller: Caller, id: str, version: int, transition: str, arguments: dict[str, Any], **more: Any
) -> Run:
    """The instance after a submit, or as it stands while that still runs."""
    engine = hub.workflows.engine
    answer = await run_detached(engine, engine.submit(id, version, transition, arguments, caller, **more))
    return _to_run(hub, await engine.get(id, caller) if answer is None else answer)


def _to_caller(by: Operator, run: str) -> Caller:
    """An operator as the caller of a workflow; the route has decided, so that instances of others are open to it."""
    principal = msgspec.structs.replace(by.principal, roles=(*by.principal.roles, ADMIN))
    return DetachedCaller(principal, Chain(by.via, "console", 0, run))


async def run_detached(engine: Engine, work: Coroutine[Any, Any, _Result]) -> _Result | None:
    """The result of work that continues when its request is cancelled; None if it takes too long to wait for."""
    task = engine.runner.spawn(_catch_refusal(work))
    # Unlike `wait_for`, this does not cancel the work when time is up.
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


def _to_run(hub: ManagedHub, answer: Answer) -> Run:
    """The instance in an answer, with secrets redacted; raises a refusal."""
    error: dict[str, Any] = answer.data.get("error") or {}
    if answer.refused and error["code"] not in _LATER_ERRORS:
        raise WorkflowRefused(error["message"], error["code"])
    run: Run = _redact(mask_answer(answer.data), _secrets(hub))
    return run


def _secrets(hub: ManagedHub) -> tuple[str, ...]:
    connections = hub.upstreams.connections.values()
    secrets = secrets_of(*(getattr(one, name, {}) for one in connections for name in ("env", "headers")))
    return (*hub.core.guard.secrets, *secrets)


def _redact(value: Any, secrets: tuple[str, ...]) -> Any:
    """Redact secrets in the data of an answer; states and names stay, even where a secret is the same word."""
    if isinstance(value, dict):
        return {name: (cleared if name in _DATA_KEYS else _redact)(item, secrets) for name, item in value.items()}
    return [_redact(item, secrets) for item in value] if isinstance(value, list) else value


# Examples for the OpenAPI document


RUN_ID: Final = "wf_0199a1b2c3d4e5f60718293a"
_RUN_ROW: Final = {
    "workflowId": RUN_ID,
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
RUNS: Final = Page([_RUN_ROW], RUN_ID)
RUN: Final = {**_RUN_ROW, "context": {"tests": True}, "links": []}
RUN_WITH_HISTORY: Final = {**RUN, "history": [_COMMIT]}
CANCELLATION: Final = Cancellation("it is not needed any more")
CANCELLED: Final = {**RUN, "status": "cancelled"}
RESOLUTION: Final = Resolution("succeeded", {"ok": True})

SUBMISSION: Final = Submission("build", 3, {"tests": True})
CHILDREN: Final = RunRows([_RUN_ROW])
DRAWN: Final = GraphOfRun("<svg></svg>")
BATCH: Final = BatchRequest(definition="release", action="cancel")
BATCHED: Final = Batch("cancel", True, 1, False, RUN_ID, [_RUN_ROW], [])
