"""What the store keeps of an instance: its body, and the pending move as the value of its reservation.

A pending move (`PendingMove`) is executing, waits for approval, waits for a child workflow, or has an unknown outcome.
Ending it requires the reservation's token, so it ends only once.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import msgspec

from waypost.capabilities.principals import Principal
from waypost.stores.instances import InstanceRecord
from waypost.workflows.scope import Proof

ENTER: Final = "$enter"
RESUME: Final = "$resume"
TIMEOUT: Final = "$timeout"
CANCEL: Final = "$cancel"
START: Final = "$start"
PROXY: Final = "proxy_default"
"""The workflow that a single capability is used through."""

WAITING: Final = "waiting_for_action"
FOREVER: Final = 4_102_444_800.0
"""A reservation that nobody takes over."""

Pending = Literal["", "enter", "chain"]

canonical: Final = msgspec.json.Encoder(order="deterministic").encode


class Parent(msgspec.Struct, frozen=True):
    """The instance that waits for this one."""

    id: str


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An instance beside its state and version."""

    digest: str
    """The definition it is pinned to."""
    owner: Principal
    input: dict[str, Any] = {}
    context: dict[str, Any] = {}
    evidence: list[Proof] = []
    deadline: float = 0.0
    """When its time is over, 0 if never."""
    pending: Pending = ""
    """What goes on by itself: running what belongs to entering the state, or the chain."""
    halted: dict[str, Any] | None = None
    """Why what goes on by itself does not: the error of the chain."""
    failure: dict[str, Any] | None = None
    """How the last move that was waited for ended, when it failed."""
    parent: Parent | None = None
    depth: int = 0
    """How many instances wait above it."""
    outcome: str = ""
    ended_at: float = 0.0
    started_at: float = 0.0


class Approval(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What people are asked to approve."""

    id: str
    role: str
    queue: str
    needed: int
    prompt: str
    presents: Any
    digest: str
    requested_at: float
    expires_at: float
    given: list[dict[str, Any]] = []
    """Who approved so far: `{by, at, reason, via}`."""


class PendingMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A move on its way."""

    kind: Literal["executing", "approval", "child", "unknown"]
    move: str
    """The transition's name, or `$enter`."""
    by: Principal
    key: str
    """The idempotency key, the same however often it is run."""
    arguments: dict[str, Any] = {}
    chained: bool = False
    holder: str = ""
    """The process that runs it."""
    request: str = ""
    """The request id of the submit, if it had one."""
    request_digest: str = ""
    approval: Approval | None = None
    child: str = ""
    began: float = 0.0


def read_body(record: InstanceRecord) -> Body:
    """What an instance holds."""
    return record.value if isinstance(record.value, Body) else msgspec.convert(record.value, Body)


def read_pending_move(record: InstanceRecord) -> PendingMove | None:
    """The move that is on its way, if there is one."""
    if record.reservation is None:
        return None
    value = record.reservation.value
    return value if isinstance(value, PendingMove) else msgspec.convert(value, PendingMove)


def digest(value: Any) -> str:
    """The SHA-256 of a value, whatever the order of its keys."""
    return hashlib.sha256(canonical(value)).hexdigest()
