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
"""The built-in workflow that wraps the call of a single capability."""

WAITING: Final = "waiting_for_action"
FOREVER: Final = 4_102_444_800.0
"""The expiry of a reservation that is never taken over."""

Pending = Literal["", "enter", "chain"]

canonical: Final = msgspec.json.Encoder(order="deterministic").encode


class Parent(msgspec.Struct, frozen=True):
    """The instance that waits for this child."""

    id: str


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The stored fields of an instance beside its state and version."""

    digest: str
    """The digest of the definition that it is pinned to."""
    owner: Principal
    input: dict[str, Any] = {}
    context: dict[str, Any] = {}
    evidence: list[Proof] = []
    deadline: float = 0.0
    """When it times out; 0 for never."""
    pending: Pending = ""
    """What continues without a caller: the entry action of the state, or the chain."""
    halted: dict[str, Any] | None = None
    """The error that halted the entry action or the chain."""
    failure: dict[str, Any] | None = None
    """The error of the last move, if it failed."""
    parent: Parent | None = None
    depth: int = 0
    """The number of its ancestors."""
    outcome: str = ""
    ended_at: float = 0.0
    started_at: float = 0.0


class Approval(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pending approval, and what approvers are shown."""

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
    """The approvals so far: `{by, at, reason, via}`."""


class PendingMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A move that has reserved its instance."""

    kind: Literal["executing", "approval", "child", "unknown"]
    move: str
    """The transition's name, or `$enter`."""
    by: Principal
    key: str
    """The idempotency key, the same each time the move is run."""
    arguments: dict[str, Any] = {}
    chained: bool = False
    holder: str = ""
    """The process that runs it, as `identify_process` names it."""
    request: str = ""
    """The request id of the submit, if it had one."""
    request_digest: str = ""
    approval: Approval | None = None
    child: str = ""
    began: float = 0.0


def read_body(record: InstanceRecord) -> Body:
    """The body of an instance record."""
    return record.value if isinstance(record.value, Body) else msgspec.convert(record.value, Body)


def read_pending_move(record: InstanceRecord) -> PendingMove | None:
    """The pending move of an instance record, if there is one."""
    if record.reservation is None:
        return None
    value = record.reservation.value
    return value if isinstance(value, PendingMove) else msgspec.convert(value, PendingMove)


def digest(value: Any) -> str:
    """The SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(canonical(value)).hexdigest()
