"""Periodic maintenance of instances: timeouts, expired approvals, interrupted chains, moves of dead processes.

`Recovery` brings one instance up to date; `Watch` finds the instances that need it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from waypost.capabilities.context import Caller
from waypost.errors import StaleVersion, StoreError
from waypost.stores.instances import InstanceRecord
from waypost.stores.store import Store
from waypost.workflows import transitions
from waypost.workflows.approvals import Approvals
from waypost.workflows.definitions import ENTER, TIMEOUT
from waypost.workflows.instance import (
    FOREVER,
    Instance,
    InstanceCache,
    PendingMove,
    detached_caller,
    has_exited,
    replica_of,
)
from waypost.workflows.runner import LEASE_S, Outcome, Runner
from waypost.workflows.transitions import choose_chained

if TYPE_CHECKING:
    from waypost.workflows.engine import Engine

STARTUP_GRACE_S: Final = 30.0
"""How long after a start recovery waits for missing capabilities: workers and upstreams connect later."""


INTERVAL_S: Final = 0.5
"""Seconds between two passes."""
# One renewal may fail, and the lease still lasts until the next.
_RENEW_EVERY_S: Final = LEASE_S / 3
_BATCH_SIZE: Final = 100
_BATCH_TIMEOUT_S: Final = 1.0
"""How long a pass waits for a batch; slower instances continue in the background."""
_log: Final = logging.getLogger(__name__)


class Recovery:
    """Applies what is due to an instance: timeouts, expired approvals, takeover of moves of dead processes."""

    def __init__(
        self, cache: InstanceCache, runner: Runner, approvals: Approvals, is_ready: Callable[[Instance, str], bool]
    ) -> None:
        self._cache = cache
        self._runner = runner
        self._approvals = approvals
        self._is_ready = is_ready
        self._grace_until = 0.0
        self.put_off: set[str] = set()
        """Instances to retry soon because a capability that they call is missing."""
        self._gone: dict[str, float] = {}
        """When replicas were found to be gone, by id; only those whose leases may not have expired yet."""
        self.is_replica_gone = False
        """Whether a replica is gone and its moves were not looked at yet."""

    def begin(self) -> None:
        """Start the grace period for missing capabilities."""
        self._grace_until = time.monotonic() + STARTUP_GRACE_S

    def is_early(self, instance: Instance, move: str) -> bool:
        """Whether a move should wait for a missing capability; if so, it is retried soon."""
        if time.monotonic() >= self._grace_until or self._is_ready(instance, move):
            return False
        self.put_off.add(instance.id)
        return True

    def release_leases(self, replica: str, at: float) -> None:
        """Let all moves be taken over whose lease a replica took or renewed before it was found to be gone."""
        # After the time of a lease there is none left that the replica could have taken before.
        self._gone = {one: gone_at for one, gone_at in self._gone.items() if gone_at + LEASE_S > at}
        self._gone[replica] = at
        self.is_replica_gone = True

    def _is_released(self, instance: Instance, holder: str) -> bool:
        # A replica that was only stopped comes back under the same id: what it leases from then on is its own.
        return instance.until - LEASE_S <= self._gone.get(replica_of(holder), 0.0)

    async def apply_due(self, instance: Instance) -> Outcome:
        """Apply what is due to an instance and return it."""
        now = self._runner.now()
        if instance.is_over or (instance.pending_move is None and not 0 < instance.body.deadline <= now):
            return Outcome(instance)
        try:
            return await self._apply(instance, now)
        except StaleVersion:
            return Outcome(await self._cache.get(instance.id) or instance)

    async def _apply(self, instance: Instance, now: float) -> Outcome:
        pending_move = instance.pending_move
        # Before the timeout: an instance does not time out under a running executor, whose outcome would be lost.
        if pending_move is not None and pending_move.kind == "executing":
            # A lease that ran out, a replica that was declared dead, or a process of this machine that is known to have
            # exited: no other process may still run the move, except one that lost its lease, and that one is fenced
            # by the new token.
            holder = pending_move.holder
            is_abandoned = instance.until < now or self._is_released(instance, holder) or has_exited(holder)
            is_idempotent = instance.state.actions[pending_move.move].idempotent
            if is_abandoned and not (is_idempotent and self.is_early(instance, pending_move.move)):
                instance = await self._take_over(instance, pending_move)
            return Outcome(instance)
        # An unknown outcome outlasts the deadline: a timeout would hide that something may have been done.
        if 0 < instance.body.deadline <= now and (pending_move is None or pending_move.kind != "unknown"):
            leads = instance.definition.model.on_timeout
            target = None if leads is None else leads.target
            timed_out = transitions.interrupt(instance, target, TIMEOUT, instance.body.owner.id, "timed_out", now)
            after = await self._runner.interrupt(instance, timed_out)
            await self._runner.end_child(instance, f"{instance.id}, which waited for it, timed out")
            return await self._runner.follow(Outcome(after), detached_caller(instance.body.owner, instance.id))
        if pending_move is not None and pending_move.approval is not None and pending_move.approval.expires_at <= now:
            return Outcome((await self._approvals.expire(instance, pending_move)).instance)
        return Outcome(instance)

    async def _take_over(self, instance: Instance, pending_move: PendingMove) -> Instance:
        """Take over a move whose process is gone.

        Its executor may or may not have run. An idempotent move is run again under the same key. For any other move
        the outcome is unknown: the reservation is kept for ever, until an operator resolves it. The caller of a single
        call got no answer, so its instance stays to show the outcome.
        """
        if instance.state.actions[pending_move.move].idempotent:
            pending_move = msgspec.structs.replace(pending_move, holder=self._runner.holder, once=False)
            instance = await self._runner.reserve(instance, pending_move)
            self._runner.spawn(self._rerun(instance, detached_caller(pending_move.by, instance.id)), instance.id)
            return instance
        pending_move = msgspec.structs.replace(pending_move, kind="unknown", holder="", once=False)
        return await self._runner.reserve(instance, pending_move, FOREVER)

    async def _rerun(self, instance: Instance, caller: Caller) -> Outcome:
        return await self._runner.follow(await self._runner.run(instance, caller), caller)


class Watch:
    """The maintenance loop of one replica; replicas that share a store all run it, fenced by reservations."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._checking: set[str] = set()

    def start(self) -> None:
        """Start the loop, first with what an earlier process left behind."""
        if self._task is None:
            self._engine.recovery.begin()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop the loop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        recovered, renewed = False, time.monotonic()
        while True:
            if not recovered and await self._is_used():
                recovered = True
                await self._try(self.recover())
            await asyncio.sleep(INTERVAL_S)
            if not recovered:
                continue
            # Also while draining: the moves that still run must keep their leases until they end.
            if time.monotonic() - renewed >= _RENEW_EVERY_S:
                renewed = time.monotonic()
                await self._try(self._renew())
            if self._engine.draining:
                continue  # what is due is for other replicas
            recovery = self._engine.recovery
            if recovery.put_off or recovery.is_replica_gone:
                recovery.put_off.clear()
                recovery.is_replica_gone = False
                await self._try(self.recover())
            await self._try(self.look())

    async def _is_used(self) -> bool:
        """Whether the store exists; maintenance must not create a database file."""
        store = self._store
        try:
            return store.is_open or (store.database.is_durable and bool(await store.database.schema_version()))
        except StoreError:
            return True

    async def _try(self, pass_: object) -> None:
        try:
            await pass_  # type: ignore[misc]  # a coroutine of this class
        except StoreError as error:
            _log.warning("workflow maintenance failed: %s", error)
        # The loop must survive a bug: without it there are no timeouts and no takeovers until the next start.
        except Exception:
            _log.exception("workflow maintenance failed")

    async def recover(self) -> None:
        """Check all reserved instances and those due within a lease: an earlier process may have left them."""
        after = ""
        while page := await self._store.instances.reserved(after, _BATCH_SIZE):
            await self._check_page(page)
            after = page[-1].id
        # Ahead of time: the chains that the earlier process followed are due only after their grace.
        await self.look(ahead=LEASE_S)

    async def look(self, ahead: float = 0.0) -> None:
        """Check the instances that are due and those whose reservation has expired."""
        instances, now = self._store.instances, self._store.now()
        await self._check_page(await instances.due(now + ahead, _BATCH_SIZE))
        await self._check_page(await instances.abandoned(now, _BATCH_SIZE))

    async def _check_page(self, page: list[InstanceRecord]) -> None:
        """Check instances concurrently: a slow or damaged one must not delay the others."""
        fresh = [one for one in page if one.id not in self._checking]
        # As tasks of the runner, so that stopping the engine waits for them.
        if tasks := [self._engine.runner.spawn(self._check_once(one)) for one in fresh]:
            await asyncio.wait(tasks, timeout=_BATCH_TIMEOUT_S)

    async def _check_once(self, record: InstanceRecord) -> None:
        self._checking.add(record.id)
        try:
            await self._check(record)
        finally:
            self._checking.discard(record.id)

    async def _check(self, record: InstanceRecord) -> None:
        engine = self._engine
        instance = await engine.cache.restore(record)
        # Never touch what this process moves itself: its own commit would then fail as stale.
        if instance.id in engine.runner.busy or instance.token in engine.runner.running:
            return
        with suppress(StaleVersion):
            # A parent that is due to time out is not woken: the timeout ends it, and its child with it.
            if (
                instance.pending_move is not None
                and instance.pending_move.kind == "child"
                and not 0 < instance.body.deadline <= self._store.now()
            ):
                await engine.runner.wake(instance.id)
                return
            after = (await engine.recovery.apply_due(instance)).instance
            if after.version != instance.version or not after.goes_on or self._is_early(after):
                return
            # The record may be older than the end of a chain that was followed meanwhile, and the version would not
            # show it: an error halts a chain without a new version, and must not run again by itself.
            fresh = await engine.cache.get(instance.id)
            if fresh is not None and fresh.goes_on and instance.id not in engine.runner.busy:
                engine.runner.busy.add(instance.id)  # now, not when the task runs: another pass may come before
                caller = detached_caller(instance.body.owner, instance.id)
                engine.runner.spawn(engine.runner.follow(Outcome(fresh), caller), instance.id)

    def _is_early(self, instance: Instance) -> bool:
        move = ENTER if instance.body.pending == "enter" else choose_chained(instance, instance.body.owner)
        return isinstance(move, str) and self._engine.recovery.is_early(instance, move)

    async def _renew(self) -> None:
        """Extend the leases of the moves that this process runs, so that no replica takes them over."""
        until = self._store.now() + LEASE_S
        # That a lease is lost needs no answer here: the new token of its taker makes the commit of the move fail.
        for token, workflow_id in list(self._engine.runner.running.items()):
            await self._store.instances.renew(workflow_id, token, until)
