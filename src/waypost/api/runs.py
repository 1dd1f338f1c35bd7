"""Runs: workflow instances, what happened to them, and what operators can do about them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from waypost.api.operated import Operated, Operator
from waypost.api.routing import Route
from waypost.capabilities.absent import Absent
from waypost.capabilities.chain import Chain
from waypost.capabilities.context import Caller
from waypost.errors import InvalidParams, WorkflowRefused
from waypost.redaction import cleared, secrets_of
from waypost.workflows.answers import Answer
from waypost.workflows.engine import Engine
from waypost.workflows.runs import MOST_HISTORY, Page, Runs, shown

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
    return Runs(hub.workflows.engine, lambda: hub.store)


def _done(hub: Operated, answer: Answer) -> Run:
    """What was done, without secrets; a refusal is an error."""
    error: dict[str, Any] = answer.data.get("error") or {}
    if answer.refused and error["code"] not in _ON_THE_WAY:
        raise WorkflowRefused(error["message"], error["code"])
    connections = hub.workflows.connections.values()
    given = [getattr(one, name, {}) for one in connections for name in ("env", "headers")]
    told: Run = _clear(shown(answer.data), (*hub.guard.secrets, *secrets_of(*given)))
    return told


def _clear(value: Any, secrets: tuple[str, ...]) -> Any:
    """An answer whose data holds no secrets; names stay what they are, even where a secret is such a word."""
    if isinstance(value, dict):
        return {name: (cleared if name in _DATA else _clear)(item, secrets) for name, item in value.items()}
    return [_clear(item, secrets) for item in value] if isinstance(value, list) else value


_ROW: Final = {
    "workflowId": "wf_0199a1b2c3d4e5f60718293a",
    "definitionId": "release",
    "state": "review",
    "version": 3,
    "status": "waiting_for_action",
    "principal": "ci",
    "startedAt": "2029-01-01T00:00:00.000Z",
}
_STANDING: Final = {**_ROW, "context": {"tests": True}, "links": []}
_ENTRY: Final = {
    "version": 1,
    "at": "2029-01-01T00:00:00.000Z",
    "transition": "$start",
    "from": None,
    "to": "draft",
    "by": "ci",
    "delta": {},
}

ROUTES: Final = (
    Route("GET", "/api/v1/runs", list_runs, "The newest runs", answer=Page([_ROW], "wf_0199a1b2c3d4e5f60718293a")),
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
