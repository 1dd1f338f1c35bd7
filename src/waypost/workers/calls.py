"""Calls: those of workers, those to workers, and those that wait in a queue.

Every call runs through the pipeline. A queued call is kept in the store and retried a few times after a failure; while
no worker provides its function, or when the worker disconnects before it answers, it waits without using up a retry.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import Chain, Principal
from waypost.capabilities.results import Result, encode_json
from waypost.errors import Busy, InvocationFailed, StaleVersion, StoreError, WaypostError
from waypost.execution.pipeline import Pipeline
from waypost.loops import running_loop
from waypost.queues import Delivery, StoreQueue
from waypost.stores.store import Store
from waypost.workers.frames import (
    NULL,
    InvocationResult,
    InvokeFunction,
    Origin,
    WorkerUnreachable,
    encode,
    not_found,
    to_failure,
)
from waypost.workers.functions import DEFAULT, Call, Function, Functions, is_internal
from waypost.workers.triggers import Listener
from waypost.workers.worker import MAX_PENDING_CALLS, Worker

_log: Final = logging.getLogger(__name__)
_NAME: Final = "workers"
_CONCURRENCY: Final = 16
_POLL_S: Final = 10.0
_LEASE_S: Final = 60.0
_RENEW_INTERVAL_S: Final = 20.0
_RETRY_DELAYS_S: Final = (1.0, 5.0, 25.0, 120.0)
"""Seconds after which what failed is tried again."""
_MIN_POSTPONE_S: Final = 1.0
_MAX_POSTPONE_S: Final = 300.0
"""Seconds after which somebody who offers the function is looked for again; between them, as long as it has waited."""
_MAX_WAIT_S: Final = 24 * 3600.0

MakeCall: TypeAlias = Callable[[Call, str, str], Awaitable[Any]]
"""Makes a call in a namespace on behalf of a worker, by its name."""
_decode: Final = msgspec.json.Decoder(Call).decode


class CallQueue:
    """One queue in the store for all calls that are made later."""

    def __init__(self, store: Store, make: MakeCall) -> None:
        self._store = store
        self._make = make
        self._queue: StoreQueue | None = None
        self._running: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    async def put(self, queue: str, call: Call, namespace: str, sender: str) -> str:
        """Keep a call to be made later; its receipt."""
        if not queue.strip():
            raise InvocationFailed("A call that is enqueued needs the name of a queue.", "enqueue_error")
        receipt = str(uuid.uuid4())
        told = encode(call).decode()
        job = {"queue": queue, "call": told, "namespace": namespace, "sender": sender, "since": time.time()}
        try:
            await self._here().put(receipt, job)
        except StoreError as error:
            raise InvocationFailed(f"The call cannot be kept: {error.message}", "enqueue_error") from None
        self.start()
        return receipt

    def start(self) -> None:
        """Make what waits, from now on."""
        if self._running is None or self._running.done():
            self._running = running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Make nothing more; what is not done comes again."""
        tasks = [*self._jobs, *((self._running,) if self._running is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running = None
        self._queue = None

    def _here(self) -> StoreQueue:
        if self._queue is None:
            self._queue = StoreQueue(self._store, _NAME, lease=_LEASE_S)
        return self._queue

    async def _run(self) -> None:
        while True:
            try:
                taken = await self._here().take(_CONCURRENCY, _POLL_S)
            except StoreError as error:
                _log.warning("calls that were enqueued wait: %s", error.message)
                await asyncio.sleep(_POLL_S)
                continue
            for delivery in taken:
                task = running_loop().create_task(self._do(delivery))
                self._jobs.add(task)
                task.add_done_callback(self._jobs.discard)
            if len(self._jobs) >= _CONCURRENCY:
                await asyncio.wait(self._jobs, return_when=asyncio.FIRST_COMPLETED)

    async def _do(self, delivery: Delivery) -> None:
        keeping = running_loop().create_task(_renew_lease(delivery))
        try:
            job = delivery.value
            await self._make(_decode(job["call"]), job["namespace"], job["sender"])
        except asyncio.CancelledError:
            with suppress(StoreError):
                await delivery.postpone(0.0, "The hub stopped.")
            raise
        except WaypostError as error:
            with suppress(StoreError):
                await _retry_or_give_up(delivery, error)
        except Exception as error:
            _log.exception("a call that was enqueued crashed")
            with suppress(StoreError):
                await delivery.give_up(f"{type(error).__name__}: {error}")
        else:
            with suppress(StaleVersion):
                await delivery.done()
        finally:
            keeping.cancel()


async def _retry_or_give_up(delivery: Delivery, error: WaypostError) -> None:
    """Have a call made again after a while, or never."""
    since = delivery.value.get("since")
    if isinstance(error, WorkerUnreachable) and since is not None:
        waited = time.time() - since
        is_over = waited >= _MAX_WAIT_S
        if is_over:
            await delivery.give_up(error.message)
        else:
            await delivery.postpone(min(max(waited, _MIN_POSTPONE_S), _MAX_POSTPONE_S), error.message)
    else:
        pause = _RETRY_DELAYS_S[min(delivery.attempts, len(_RETRY_DELAYS_S)) - 1]
        is_over = not await delivery.retry(pause, error.message)
    if is_over:
        what = (_decode(delivery.value["call"]).function_id, delivery.value["queue"], error.message)
        _log.warning("the call of %s in the queue %s was given up: %s", *what)


async def _renew_lease(delivery: Delivery) -> None:
    with suppress(StoreError):
        while True:
            await asyncio.sleep(_RENEW_INTERVAL_S)
            await delivery.keep()


CALL_TIMEOUT_S: Final = 3600.0
"""Seconds after which a call between workers is given up here; workers themselves give up sooner."""
_ROLES: Final = ("worker",)

Make: TypeAlias = Callable[[Worker, InvokeFunction], Awaitable[Raw]]
"""Makes the call of a worker."""


class CallRunner:
    """Makes the calls of workers, and calls to them."""

    def __init__(self, functions: Functions, pipeline: Pipeline, queueing: CallQueue) -> None:
        self._functions = functions
        self._pipeline = pipeline
        self._queueing = queueing
        self._beside: set[asyncio.Task[None]] = set()
        self._dropped = 0
        self.route: Make | None = None
        """Makes a call of an owner for an observer of its function."""

    @property
    def running(self) -> int:
        """How many calls run that nobody waits for."""
        return len(self._beside)

    def take(self, worker: Worker, frame: InvokeFunction) -> None:
        """A worker calls something."""
        action = None if frame.action is None else frame.action.type
        if action == "void":
            self.later(self._unanswered(worker, frame))
        elif action == "enqueue":
            self._start(worker, self._answered(worker, frame, self._enqueued))
        elif frame.invocation_id is None:
            self.later(self._unanswered(worker, frame))
        else:
            self._start(worker, self._answered(worker, frame, self._made))

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        if len(self._beside) >= MAX_PENDING_CALLS:
            work.close()
            self._dropped += 1
            if self._dropped % MAX_PENDING_CALLS == 1:
                _log.warning(
                    "%d calls without an answer run already; %d were dropped", MAX_PENDING_CALLS, self._dropped
                )
            return
        task = running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def invoke(
        self, function_id: str, call: Call, caller: Caller, *, namespace: str = DEFAULT, within: float = CALL_TIMEOUT_S
    ) -> Raw:
        """Call a function by its id; a name that no function has may be a tool's."""
        function = self._functions.find(function_id, namespace)
        if function is not None:
            return await self.run(function, call, caller, within)
        if not is_internal(function_id) and self._pipeline.registry.find_tool(function_id) is not None:
            return await self._tool(function_id, call, caller, within)
        raise not_found(function_id, namespace)

    async def run(self, function: Function, call: Call, caller: Caller, within: float = CALL_TIMEOUT_S) -> Raw:
        """Run a function through the pipeline."""
        assert function.capability is not None
        within = min(within, function.timeout or within)
        answer: Raw = await self._pipeline.use(function.capability, call, caller, within)
        return answer

    def check(self, function: Function, caller: Caller, action: str) -> None:
        """Refuse a caller what the rules are against, and put on record what it may do."""
        assert function.capability is not None
        self._pipeline.check(function.capability, function.capability.id, caller, action)

    async def close(self) -> None:
        """Stop what nobody waits for."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def _start(self, worker: Worker, work: Coroutine[Any, Any, None]) -> None:
        task = running_loop().create_task(work)
        worker.calls.add(task)
        task.add_done_callback(worker.calls.discard)

    async def _answered(self, worker: Worker, frame: InvokeFunction, make: Make) -> None:
        answer = InvocationResult(frame.invocation_id, frame.function_id)
        try:
            if len(worker.calls) > MAX_PENDING_CALLS:
                raise Busy(f"{worker.name} waits for {MAX_PENDING_CALLS} calls already; try again later.")
            answer.result = await make(worker, frame)
            worker.send(answer)
        except Exception as error:
            answer.result, answer.error = UNSET, Raw(encode(to_failure(error)))
            worker.send(answer)

    async def _unanswered(self, worker: Worker, frame: InvokeFunction) -> None:
        try:
            await self._made(worker, frame)
        except InvocationFailed as error:
            _log.debug("a call of %s that nobody waits for failed: %s", frame.function_id, error.message)
        except Exception as error:
            to_failure(error)

    async def _made(self, worker: Worker, frame: InvokeFunction) -> Raw:
        if frame.activation is not None and self.route is not None and worker.observes:
            return await self.route(worker, frame)
        call, namespace = call_of(worker, frame), _namespace(frame)
        call.is_void = frame.invocation_id is None or (frame.action is not None and frame.action.type == "void")
        return await self.invoke(frame.function_id, call, caller_of(worker), namespace=namespace)

    async def _enqueued(self, worker: Worker, frame: InvokeFunction) -> Raw:
        namespace = _namespace(frame)
        queue = frame.action.queue if frame.action is not None else None
        receipt = await self._queueing.put(queue or "", call_of(worker, frame), namespace, worker.name)
        return Raw(encode({"messageReceiptId": receipt}))

    async def _tool(self, name: str, call: Call, caller: Caller, within: float) -> Raw:
        given = call.payload()
        if given is not None and not isinstance(given, dict):
            raise InvocationFailed(f"The tool {name} takes an object, not {type(given).__name__}.")
        result = await self._pipeline.call(name, given or {}, caller, longest=within)
        if result.is_error:
            raise InvocationFailed(result.text or f"The tool {name} failed.")
        return Raw(encode_json(_value(result)))


def call_of(worker: Worker, frame: InvokeFunction) -> Call:
    """A worker's call as whoever runs the function sees it."""
    if worker.origin is None:
        worker.origin = Origin(worker.id, worker.name)
    origin = worker.origin
    if frame.caller is not None:
        origin = msgspec.structs.replace(frame.caller, worker_id=worker.id, worker_name=worker.name)
    return Call(
        frame.function_id,
        NULL if frame.data is UNSET else frame.data,
        frame.metadata,
        frame.traceparent,
        frame.baggage,
        origin,
        worker.id,
        frame.observe_depth or worker.depth,
    )


def caller_of(listener: Listener) -> Caller:
    """Who a worker, or a part of the hub, is to the rules."""
    if listener.caller is None:
        listener.caller = on_behalf_of(listener.name)
    return listener.caller


def on_behalf_of(name: str) -> Caller:
    """A worker by its name, as the rules see it."""
    principal = Principal(f"worker:{name}", _ROLES)
    # It stands behind something that runs in the worker, which may itself be a call: it does not wait for a place.
    return DetachedCaller(principal, Chain(f"worker:{name}", "worker", 1))


def _namespace(frame: InvokeFunction) -> str:
    if frame.namespace is None:
        return DEFAULT
    if not frame.namespace.strip():
        raise InvocationFailed("The namespace is blank; leave it out for the default one.", "INVALID_NAMESPACE")
    return frame.namespace


def _value(result: Result) -> Any:
    """A tool's answer as a value: its data, else its text."""
    if result.structured is None:
        return result.text
    return result.structured if result.bare is None else result.bare
