"""Calls: those of workers, those to workers, and those that wait in a queue.

Every call runs through the pipeline. A queued call is kept in the store and retried a few times after a failure; while
no worker provides its function, or when the worker disconnects before it answers, it waits without using up a retry.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import Chain, Principal
from waypost.capabilities.results import encode_json
from waypost.errors import Busy, InvocationFailed, StaleVersion, StoreError, UnknownTool, WaypostError
from waypost.execution.limits import Shares
from waypost.execution.pipeline import Pipeline
from waypost.loops import KeyLocks, cancel_tasks, running_loop, start_task
from waypost.queues import Delivery, StoreQueue
from waypost.stores.store import Store
from waypost.suggestions import did_you_mean, preselect
from waypost.workers import frames
from waypost.workers.frames import (
    LARGE_MESSAGE_BYTES,
    NULL,
    InvocationResult,
    InvokeFunction,
    encode,
    split_baggage,
    to_failure,
)
from waypost.workers.functions import DEFAULT, Call, Function, Functions, is_internal
from waypost.workers.triggers import Listener
from waypost.workers.worker import MAX_PENDING_CALLS, Worker

_log: Final = logging.getLogger(__name__)
_QUEUE_NAME: Final = "workers"
_CONCURRENCY: Final = 16
_POLL_S: Final = 10.0
_LEASE_S: Final = 60.0
_RENEW_INTERVAL_S: Final = 20.0
_RETRY_DELAYS_S: Final = (1.0, 5.0, 25.0, 120.0)
_MIN_POSTPONE_S: Final = 1.0
_MAX_POSTPONE_S: Final = 300.0
"""A call whose function no worker offers is tried again after as long as it has waited, within these bounds."""
_MAX_WAIT_S: Final = 24 * 3600.0
CALL_TIMEOUT_S: Final = 3600.0
"""The limit of the hub for calls between workers; workers have shorter ones themselves."""

AnswerCall: TypeAlias = Callable[[Worker, InvokeFunction], Awaitable[Raw]]
"""Makes the call of a worker and returns the answer."""
_decode: Final = msgspec.json.Decoder(Call).decode


class CallQueue:
    """One queue in the store for all calls that are made later."""

    def __init__(self, store: Store, invoke: Callable[[Call, Caller, str], Awaitable[Raw]]) -> None:
        self._store = store
        self._invoke = invoke
        self._queue: StoreQueue | None = None
        self._running: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    async def put(self, queue: str, call: Call, namespace: str, caller: Caller) -> str:
        """Store a call that is made later for the same caller; returns a receipt."""
        if not queue.strip():
            raise InvocationFailed("A call that is enqueued needs the name of a queue.", "enqueue_error")
        if caller.chain.token is not None:  # it ends with the call of the skill, and is not stored
            raise InvocationFailed("A call for a skill cannot be enqueued: its rights end with the skill.", "FORBIDDEN")
        receipt = str(uuid.uuid4())
        job = {
            "queue": queue,
            "call": encode(call).decode(),
            "namespace": namespace,
            "principal": msgspec.to_builtins(caller.principal),
            "chain": msgspec.to_builtins(caller.chain),
            "since": time.time(),
        }
        try:
            await self._open().put(receipt, job)
        except StoreError as error:
            raise InvocationFailed(f"The call cannot be kept: {error.message}", "enqueue_error") from None
        self.start()
        return receipt

    def start(self) -> None:
        """Start to make the calls that wait."""
        if self._running is None or self._running.done():
            self._running = running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop all calls; unfinished ones are delivered again."""
        await cancel_tasks([*self._jobs, *((self._running,) if self._running is not None else ())])
        self._running = None
        self._queue = None

    def _open(self) -> StoreQueue:
        if self._queue is None:
            self._queue = StoreQueue(self._store, _QUEUE_NAME, lease=_LEASE_S)
        return self._queue

    async def _run(self) -> None:
        while True:
            while len(self._jobs) >= _CONCURRENCY:
                await asyncio.wait(self._jobs, return_when=asyncio.FIRST_COMPLETED)
            try:
                deliveries = await self._open().take(_CONCURRENCY - len(self._jobs), _POLL_S)
            except StoreError as error:
                _log.warning("calls that were enqueued wait: %s", error)
                await asyncio.sleep(_POLL_S)
                continue
            for delivery in deliveries:
                start_task(self._deliver(delivery), self._jobs)

    async def _deliver(self, delivery: Delivery) -> None:
        renewing = running_loop().create_task(_renew_lease(delivery))
        try:
            job = delivery.value
            await self._invoke(_decode(job["call"]), _read_caller(job), job["namespace"])
        except asyncio.CancelledError:
            # Back into the queue at once, not when the lease runs out.
            with suppress(StoreError):
                await delivery.postpone(0.0, "The hub stopped.")
            raise
        except WaypostError as error:
            with suppress(StoreError):
                await _retry_or_give_up(delivery, error)
        except Exception as error:
            # A bug would fail in the same way again, so that the call is not retried.
            _log.exception("a call that was enqueued crashed")
            with suppress(StoreError):
                await delivery.give_up(f"{type(error).__name__}: {error}")
        else:
            # A stale version means that the lease ran out and the call was delivered again meanwhile.
            with suppress(StaleVersion):
                await delivery.done()
        finally:
            renewing.cancel()


def _read_caller(job: Mapping[str, Any]) -> Caller:
    if "sender" in job:  # stored by an earlier version
        return worker_caller(job["sender"])
    return DetachedCaller(msgspec.convert(job["principal"], Principal), msgspec.convert(job["chain"], Chain))


async def _retry_or_give_up(delivery: Delivery, error: WaypostError) -> None:
    since = delivery.value.get("since")
    if isinstance(error, frames.WorkerUnreachable) and since is not None:
        waited = time.time() - since
        is_over = waited >= _MAX_WAIT_S
        if is_over:
            await delivery.give_up(error.message)
        else:
            await delivery.postpone(min(max(waited, _MIN_POSTPONE_S), _MAX_POSTPONE_S), error.message)
    else:
        delay = _RETRY_DELAYS_S[min(delivery.attempts, len(_RETRY_DELAYS_S)) - 1]
        is_over = not await delivery.retry(delay, error.message)
    if is_over:
        function_id, queue = _decode(delivery.value["call"]).function_id, delivery.value["queue"]
        _log.warning("the call of %s in the queue %s was given up: %s", function_id, queue, error.message)


async def _renew_lease(delivery: Delivery) -> None:
    # A call may take an hour, a lease a minute: after a crash its calls are delivered again soon.
    with suppress(StoreError):
        while True:
            await asyncio.sleep(_RENEW_INTERVAL_S)
            await delivery.keep()


class CallRunner:
    """Makes the calls of workers, and calls to them."""

    def __init__(self, functions: Functions, pipeline: Pipeline, store: Store, max_depth: int, max_bytes: int) -> None:
        self._functions = functions
        self._max_depth = max_depth
        self._payloads = Shares(max_bytes)
        """The bytes of large payloads, which stay in memory until the call ends, by the worker that makes it."""
        self._pipeline = pipeline
        self.queue = CallQueue(store, self.invoke)
        self._background: set[asyncio.Task[None]] = set()
        self._dropped = 0
        self._suggesting = KeyLocks()
        """Held for a worker while a name like the one that it called is sought."""
        self.call_observer: AnswerCall | None = None
        """Makes the call of an owner to an observer of its function."""

    @property
    def running(self) -> int:
        """How many calls run without a caller that waits."""
        return len(self._background)

    def start(self, worker: Worker, frame: InvokeFunction) -> None:
        """Start a call that a worker makes."""
        size = 0 if frame.data is UNSET else len(frame.data)
        is_large = size >= LARGE_MESSAGE_BYTES
        if is_large and not self._payloads.try_take(worker.id, size):
            self._refuse(worker, frame)
            return
        task: asyncio.Task[None] | None
        if frame.action is not None and frame.action.type == "enqueue":
            task = start_task(self._answer(worker, frame, self._enqueue), worker.calls)
        elif frame.is_void:
            task = self.start_background(self._run_void(worker, frame))
        else:
            task = start_task(self._answer(worker, frame, self._make), worker.calls)
        if is_large:
            if task is None:
                self._payloads.give_back(worker.id, size)
            else:
                task.add_done_callback(lambda _: self._payloads.give_back(worker.id, size))

    def _refuse(self, worker: Worker, frame: InvokeFunction) -> None:
        if frame.is_void:
            _log.debug("a large call of %s without an answer was dropped", frame.function_id)
            return
        message = (
            f"{self._payloads.total} bytes of large calls are in work (workers.limits.callBytes); try again later."
        )
        error = Raw(encode(to_failure(Busy(message))))
        worker.send(InvocationResult(frame.invocation_id, frame.function_id, error=error))

    def start_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start something that has no caller to wait for it; dropped when too much of that runs."""
        if len(self._background) < MAX_PENDING_CALLS:
            return start_task(work, self._background)
        # Or Python would warn that the coroutine was never awaited.
        work.close()
        self._dropped += 1
        if self._dropped % MAX_PENDING_CALLS == 1:
            _log.warning("%d calls without an answer run already; %d were dropped", MAX_PENDING_CALLS, self._dropped)
        return None

    async def invoke(self, call: Call, caller: Caller, namespace: str = DEFAULT, within: float = CALL_TIMEOUT_S) -> Raw:
        """Make a call: of a function by its id, or of a tool by its name."""
        function_id = call.function_id
        function = self._functions.find(function_id, namespace)
        if function is not None:
            capability = function.capability
            assert capability is not None  # registering a function publishes it before it can be found
            within = min(within, function.timeout or within)
            try:
                answer: Raw = await self._pipeline.use(capability, call, caller, within)
                return answer
            except UnknownTool as error:
                # A tool that the function called may be unknown: that is a failure of the function.
                if error.name != capability.id:
                    raise
                raise await self._unknown(call, namespace, caller) from None  # a rule hides it
        if not is_internal(function_id) and self._pipeline.registry.find_tool(function_id) is not None:
            try:
                return await self._call_tool(call, caller, within)
            except UnknownTool as error:
                if error.name != function_id:
                    raise
        raise await self._unknown(call, namespace, caller)

    async def _unknown(self, call: Call, namespace: str, caller: Caller) -> InvocationFailed:
        """The error for a function that does not exist, with the nearest one that the caller may see."""
        function_id, find = call.function_id, self._functions.find
        if call.is_void:  # the error is read by no caller
            return frames.function_not_found(function_id, namespace)
        # One suggestion for a worker in a turn of the loop: it may make very many wrong calls at once.
        async with self._suggesting[call.sender]:
            await asyncio.sleep(0)
            rows = {one.id: one.capability for one in self._functions if find(one.id, namespace) is one}
            near = preselect(function_id, (one for one in rows if not is_internal(one)))
            seen = (one for one in near if (row := rows[one]) is not None and self._pipeline.shows(row, caller))
            return frames.function_not_found(function_id, namespace, did_you_mean(function_id, seen, "; "))

    def check(self, function: Function, caller: Caller, action: str) -> None:
        """Raise if policies deny a caller an action; allowed ones are recorded in the audit."""
        assert function.capability is not None
        self._pipeline.check(function.capability, function.capability.id, caller, action)

    async def close(self) -> None:
        """Stop the calls that have no caller to wait for them, queued ones first."""
        await self.queue.stop()
        await cancel_tasks(self._background)

    async def _answer(self, worker: Worker, frame: InvokeFunction, make: AnswerCall) -> None:
        answer = InvocationResult(frame.invocation_id, frame.function_id)
        try:
            if len(worker.calls) > MAX_PENDING_CALLS:
                raise Busy(f"{worker.name} waits for {MAX_PENDING_CALLS} calls already; try again later.")
            answer.result = await make(worker, frame)
            if frame.invocation_id is not None:  # a queued call needs none
                worker.send(answer)
        except Exception as error:  # a result that is too large to send is an error too
            answer.result, answer.error = UNSET, Raw(encode(to_failure(error)))
            if frame.invocation_id is not None:
                worker.send(answer)

    async def _run_void(self, worker: Worker, frame: InvokeFunction) -> None:
        try:
            await self._make(worker, frame)
        except InvocationFailed as error:
            _log.debug("a call of %s without an answer failed: %s", frame.function_id, error.message)
        except Exception as error:
            # Only for its log entry: there is no caller to answer.
            to_failure(error)

    async def _make(self, worker: Worker, frame: InvokeFunction) -> Raw:
        if frame.activation is not None and self.call_observer is not None and worker.observes:
            return await self.call_observer(worker, frame)
        call, namespace = to_call(worker, frame), read_namespace(frame.namespace)
        call.is_void = frame.is_void
        return await self.invoke(call, self._find_caller(worker, frame), namespace)

    def _find_caller(self, worker: Worker, frame: InvokeFunction) -> Caller:
        """The caller of a worker's call: that of the call whose handler makes it, behind the worker; else the worker.

        Behind a worker a principal has neither its roles nor its permissions and scopes, because the worker decides
        what is called. Rules for the principal, with its roles, and rules for the worker all apply.
        """
        parent, own = worker.find_caller(frame), caller_of(worker)
        if parent is None:
            return own
        principal, chain = parent
        if chain.hops >= self._max_depth:
            raise InvocationFailed(
                f"The call came through {chain.hops} workers already, and workers.maxDepth is {self._max_depth}.",
                "DEPTH_EXCEEDED",
            )
        known = msgspec.structs.replace(principal, claims=None)
        behind = (*chain.behind, *(one for one in (known, own.principal) if one not in chain.behind))
        depth, hops = max(chain.depth, own.chain.depth), chain.hops + 1
        name, kind = own.chain.caller, own.chain.type
        chain = msgspec.structs.replace(chain, caller=name, type=kind, depth=depth, key="", hops=hops, behind=behind)
        return DetachedCaller(Principal(principal.id, own.principal.roles), chain)

    async def _enqueue(self, worker: Worker, frame: InvokeFunction) -> Raw:
        namespace = read_namespace(frame.namespace)
        queue = frame.action.queue if frame.action is not None else None
        caller = self._find_caller(worker, frame)
        receipt = await self.queue.put(queue or "", to_call(worker, frame), namespace, caller)
        return Raw(encode({"messageReceiptId": receipt}))

    async def _call_tool(self, call: Call, caller: Caller, within: float) -> Raw:
        name, arguments = call.function_id, call.payload()
        if arguments is not None and not isinstance(arguments, dict):
            raise InvocationFailed(f"The tool {name} takes an object, not {type(arguments).__name__}.")
        result = await self._pipeline.call(name, arguments or {}, caller, longest=within)
        if result.is_error:
            raise InvocationFailed(result.text or f"The tool {name} failed.")
        if result.structured is None:
            return Raw(encode_json(result.text))
        return Raw(encode_json(result.structured if result.bare is None else result.bare))


def to_call(worker: Worker, frame: InvokeFunction) -> Call:
    """A worker's message as a call."""
    # A worker says which call it comes from, but not who it is.
    if frame.caller is None:
        origin = frames.Origin(worker.id, worker.name)
    else:
        origin = msgspec.structs.replace(frame.caller, worker_id=worker.id, worker_name=worker.name)
    return Call(
        frame.function_id,
        NULL if frame.data is UNSET else frame.data,
        frame.metadata,
        frame.traceparent,
        None if frame.baggage is None else split_baggage(frame.baggage)[0],
        origin,
        worker.id,
        frame.observe_depth or worker.depth,
    )


def caller_of(listener: Listener) -> Caller:
    """The caller for policies that a worker, or a part of the hub, is."""
    if listener.caller is None:
        listener.caller = worker_caller(listener.name)
    return listener.caller


def worker_caller(name: str) -> Caller:
    """The caller for policies that a worker with a name is.

    It waits for no slot of its principal: the call may be part of another call to the same worker, which holds one.
    """
    return DetachedCaller(Principal(f"worker:{name}", ("worker",)), Chain(f"worker:{name}", "worker", 1, hops=1))


def read_namespace(given: str | None) -> str:
    """The namespace that a message names, or the default one; a blank one is an error."""
    if given is None:
        return DEFAULT
    if not given.strip():
        raise InvocationFailed("The namespace is blank; leave it out for the default one.", "INVALID_NAMESPACE")
    return given
