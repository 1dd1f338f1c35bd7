"""A workflow instance: what the store keeps of it, its state in memory, the caller it acts for, and the instance cache.

An instance never changes without its version or its reservation changing, and every write is fenced by both. A cached
copy may therefore be used to try a move: if the copy is stale, the write fails and the instance is read again.

A pending move (`PendingMove`) is the value of the reservation: it is executing, waits for approval, waits for a child
workflow, or has an unknown outcome. Ending it requires the reservation's token, so it ends only once.
"""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from waypost.capabilities.context import Caller, DetachedCaller, Session
from waypost.capabilities.principals import Chain, Principal
from waypost.stores.instances import InstanceRecord
from waypost.stores.store import Store
from waypost.wire.versions import is_modern
from waypost.workflows.definitions import PROXY, Definition, Library, Pending, StatePlan
from waypost.workflows.scope import Proof, Scope

FOREVER: Final = 4_102_444_800.0
"""The expiry of a reservation that is never taken over; one without an expiry would not be found as reserved."""

HUMAN: Final = "human"
ADMIN: Final = "admin"
SYSTEM: Final = "system"
APPROVER: Final = "approver"
"""The role of people who decide where a workflow names no role."""
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "timed_out"})


def may_decide(role: str, principal: Principal) -> bool:
    """Whether a principal may decide about an approval that asks for a role."""
    return not {role, ADMIN, *((APPROVER,) if role == HUMAN else ())}.isdisjoint(principal.roles)


PENDING_STATUSES: Final = {
    "executing": "executing",
    "approval": "waiting_for_approval",
    "child": "waiting_for_workflow",
    "unknown": "unknown_outcome",
}
"""The status of an instance by the kind of its pending move."""


_PROC: Final = Path("/proc")
_MAX_CACHED: Final = 10_000


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
    via: str = "mcp"
    """The way in of the caller, for the audit."""
    holder: str = ""
    """The process that runs it, as `identify_process` names it."""
    request: str = ""
    """The request id of the submit, if it had one."""
    request_digest: str = ""
    approval: Approval | None = None
    child: str = ""
    tries: int = 0
    """How many children failed before it."""
    began: float = 0.0
    once: bool = False
    """Whether the instance is only there for this move, and removed when it ends."""


def read_body(record: InstanceRecord) -> Body:
    """The body of an instance record."""
    return msgspec.convert(record.value, Body)


def read_pending_move(record: InstanceRecord) -> PendingMove | None:
    """The pending move of an instance record, if there is one."""
    return None if record.reservation is None else msgspec.convert(record.reservation.value, PendingMove)


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable instance: as stored, or as it will be once a commit succeeds."""

    id: str
    version: int
    definition: Definition
    state: StatePlan
    settled: str
    """Its status while no move is pending."""
    body: Body
    pending_move: PendingMove | None = None
    token: str = ""
    until: float = 0.0

    @property
    def status(self) -> str:
        """The status that answers show."""
        # A pending move says more than the state: the store keeps `settled`, which such a move does not change.
        if self.pending_move is not None:
            return PENDING_STATUSES[self.pending_move.kind]
        return "going_on" if self.body.pending and self.goes_on else self.settled

    @property
    def goes_on(self) -> bool:
        """Whether its entry action or chain continues without a caller."""
        return bool(self.body.pending) and self.body.halted is None and not self.is_over and self.pending_move is None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.settled in ENDED

    def scope(self, principal: Principal, arguments: dict[str, Any], output: Any = None) -> Scope:
        """The values that its guards and mappings read."""
        body = self.body
        return Scope(
            body.context,
            arguments,
            body.input,
            id=self.id,
            state=self.state.name,
            version=self.version,
            principal=principal,
            evidence=body.evidence,
            output=output,
        )

    def to_record(self, due_at: float, version: int = 0) -> InstanceRecord:
        """The record for the store; `version` is the version that a commit expects to replace."""
        return InstanceRecord(
            id=self.id,
            version=version or self.version,
            definition=self.definition.id,
            principal=self.body.owner.id,
            state=self.state.name,
            status=self.settled,
            due_at=due_at,
            value=self.body,
        )

    def is_open_to(self, principal: Principal) -> bool:
        """Whether a principal may see it: its owner, admins, and people whose decision it waits for."""
        if principal.id == self.body.owner.id or ADMIN in principal.roles:
            return True
        if self.pending_move is not None and self.pending_move.approval is not None:
            return may_decide(self.pending_move.approval.role, principal)
        return HUMAN in principal.roles and any(plan.model.actor == "human" for plan in self.state.transitions.values())


def is_system(principal: Principal) -> bool:
    """Whether a principal may take the system's transitions."""
    return SYSTEM in principal.roles or ADMIN in principal.roles


@cache
def _machine_id() -> str:
    """The boot id and pid namespace; empty if /proc is not available."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _start_time(pid: int) -> str | None:
    """The start time of a process in kernel ticks; `None` if there is no such process."""
    try:
        # The name of the program stands in parentheses and may itself contain some, so fields are counted after the
        # last one.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A zombie has exited: only its parent has not waited for it yet.
    return None if fields[0] in ("Z", "X") else fields[19]


def identify_process(replica: str = "") -> str:
    """The holder name of this process, which ends with its id among the replicas.

    The boot id, pid namespace, pid and start time distinguish it from every other process on this machine, also after
    the pid is reused; other replicas on the machine need not wait for the lease to see that it has exited.
    """
    # The random part tells processes apart where there is no replica id, and /proc may be missing.
    return f"{_machine_id()}|{os.getpid()}|{_start_time(os.getpid()) or ''}|{replica or secrets.token_hex(4)}"


def replica_of(holder: str) -> str:
    """The id that a holder has among the replicas."""
    return holder.rpartition("|")[2]


def has_exited(holder: str) -> bool:
    """Whether a holder is known to have exited; false if it runs on another machine."""
    # Only on the same boot and in the same pid namespace does a pid name the same process; elsewhere the lease decides.
    machine, _, rest = holder.partition("|")
    pid, _, more = rest.partition("|")
    began = more.partition("|")[0]
    if not machine or machine != _machine_id() or not pid.isdecimal() or not began:
        return False
    return _start_time(int(pid)) != began


class NonInteractiveCaller(DetachedCaller):
    """A client that gets progress and logs but cannot be asked.

    A modern client answers a question by repeating its request, which would run the workflow's move again.
    """

    def __init__(self, client: Caller, chain: Chain) -> None:
        super().__init__(client.principal, chain)
        self._client = client
        self.version = client.version
        self.request_id = client.request_id
        self.client_info = client.client_info
        self.wants_progress = client.wants_progress

    @property
    def session(self) -> Session:
        """The client's session."""
        return self._client.session

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Send progress to the client."""
        await self._client.progress(value, total, message)

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Send a log message to the client."""
        await self._client.log(level, message, data)

    def with_chain(self, chain: Chain) -> Caller:
        """The same client with another chain, for a nested call."""
        return NonInteractiveCaller(self._client, chain)


def detached_caller(principal: Principal, run: str) -> Caller:
    """The caller for work that continues without a client, on behalf of a principal."""
    return DetachedCaller(principal, Chain("workflow", "workflow", 0, run))


def for_workflow(caller: Caller, definition: str, run: str) -> Caller:
    """The caller that the capabilities of a workflow see."""
    if definition == PROXY:  # a proxied call counts as the client's own call: policy rules for clients apply
        chain = msgspec.structs.replace(caller.chain, depth=caller.chain.depth + 1, run=run)
    else:
        name, depth = f"workflow:{definition}", caller.chain.depth + 1
        # Without the key of the call that led here: each call of an executor brings its own.
        chain = msgspec.structs.replace(caller.chain, caller=name, type="workflow", depth=depth, run=run, key="")
    return NonInteractiveCaller(caller, chain) if is_modern(caller.version) else caller.with_chain(chain)


def _may_be_open_to(record: InstanceRecord, reader: Principal) -> bool:
    """Whether the record alone does not rule out that a principal may see the instance."""
    if record.principal == reader.id or not {ADMIN, HUMAN}.isdisjoint(reader.roles):
        return True
    pending_move = read_pending_move(record)
    approval = None if pending_move is None else pending_move.approval
    return approval is not None and may_decide(approval.role, reader)


class InstanceCache:
    """The most recently used instances, in front of the store."""

    def __init__(self, store: Store, library: Library) -> None:
        self._store = store
        self._library = library
        self._kept: OrderedDict[str, Instance] = OrderedDict()

    async def get(self, workflow_id: str, reader: Principal | None = None) -> Instance | None:
        """Read an instance from the store; one that `reader` may not see takes as long as one that does not exist."""
        record = await self._store.instances.get(workflow_id)
        # Not restored: loading the pinned definition takes longer, which would show a stranger that the id exists.
        if record is None or (reader is not None and not _may_be_open_to(record, reader)):
            return None
        instance = await self.restore(record)
        self.keep(instance)
        return instance

    def find(self, workflow_id: str, version: int, reader: Principal) -> Instance | None:
        """An instance at a version that `reader` may see, if it is in memory."""
        kept = self._kept.get(workflow_id)
        # Not while a move or a chain is pending: these change within one version, maybe in another process.
        if kept is None or kept.version != version or kept.pending_move is not None or kept.body.pending:
            return None
        return kept if kept.is_open_to(reader) else None

    async def restore(self, record: InstanceRecord) -> Instance:
        """Build an instance from its record and its pinned definition."""
        body = read_body(record)
        definition = await self._library.load_pinned(body.digest)
        reservation = record.reservation
        return Instance(
            id=record.id,
            version=record.version,
            definition=definition,
            state=definition.states[record.state],
            settled=record.status,
            body=body,
            pending_move=read_pending_move(record),
            token="" if reservation is None else reservation.token,
            until=0.0 if reservation is None else reservation.until,
        )

    def keep(self, instance: Instance) -> None:
        """Cache an instance."""
        kept = self._kept
        kept[instance.id] = instance
        kept.move_to_end(instance.id)
        if len(kept) > _MAX_CACHED:
            kept.popitem(last=False)

    def drop(self, workflow_id: str) -> None:
        """Remove an instance that another process has changed."""
        self._kept.pop(workflow_id, None)
