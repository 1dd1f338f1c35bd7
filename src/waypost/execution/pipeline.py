"""The one way a capability runs: resolve, permit, take a slot, validate, run under a deadline, check the output.

Every way in (MCP, the shell, another handler) calls `call`, `read` or `prompt`. Permissions, rate limits, circuit
breakers and the audit are the guard's, where there is one. `Counters` holds how calls ended. Only calls from outside
take a slot: a nested call runs in that of the call it came from, and would wait for itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from itertools import accumulate
from math import isfinite
from sys import modules
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, Context, Services
from waypost.capabilities.prompts import PromptMessage, to_messages
from waypost.capabilities.questions import is_input_needed
from waypost.capabilities.registry import Registry, unknown_tool
from waypost.capabilities.resources import to_contents
from waypost.capabilities.results import Result, decode_result, failure, round_trip_json, to_result
from waypost.errors import (
    CallError,
    InsufficientScope,
    InvalidArguments,
    InvalidOutput,
    InvocationFailed,
    PolicyDenied,
    ProtocolError,
    StoreError,
    UnknownCapability,
    UnknownResource,
    text_of,
)
from waypost.execution import tracing
from waypost.execution.budgets import MAX_ATTEMPTS, LeaseNeeded
from waypost.execution.limits import Bulkheads, Deadline
from waypost.execution.pool import Pool
from waypost.loops import maybe_await
from waypost.redaction import redacted, without
from waypost.wire.content import Contents


class Permit(msgspec.Struct):
    """Permission for one execution, and what the audit needs when it ends."""

    name: str
    caller: Caller
    action: str
    began: float = msgspec.field(default_factory=time.perf_counter)
    digest: str = ""
    """Of its arguments as they came, for the audit."""
    is_probe: bool = False
    """Whether it probes an open circuit."""


class CallCount(msgspec.Struct):
    """How many calls of some capabilities run, from when they are resolved until they end."""

    running: int = 0


_UNCOUNTED: Final = CallCount()
"""For capabilities whose calls no owner waits for; without it, every call would have two branches more."""


class Guard(Protocol):
    """Decides about every execution before it begins, and records how it ended."""

    @property
    def is_on(self) -> bool:
        """Whether it has to be asked about capabilities that need no permissions."""

    def enter(self, capability: Capability, name: str, caller: Caller, action: str, arguments: Any) -> Permit:
        """Permit an execution, or raise `PolicyDenied`, `CircuitOpen` or `Busy`."""

    def leave(self, permit: Permit, error: BaseException | None, *, is_error: bool = False) -> None:
        """Record the end: a result, a result that is an error, or an exception."""


_log: Final = logging.getLogger(__name__)

BOUNDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Seconds at which the buckets of the histogram end; the last one is open."""

OTHER: Final = "other"
_MAX_NAMES: Final = 2_000


class Counters:
    """What was counted since `began`; only ever added to."""

    __slots__ = (
        "_buckets",
        "_calls",
        "_clock",
        "_names",
        "began",
        "error",
        "ok",
        "seconds",
        "stall_seconds",
        "stalls",
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began = clock()
        self._calls: dict[tuple[str, str], int] = {}
        self._names: set[str] = set()
        self.ok: defaultdict[str, int] = defaultdict(int)
        self.error: defaultdict[str, int] = defaultdict(int)
        """Calls of tools without a time; the pipeline adds to them in place, without the cost of a method call."""
        self._buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        """How long all calls took together."""
        self.stalls = 0
        """How many turns of the event loop took too long, and how long they took together."""
        self.stall_seconds = 0.0

    def count(self, capability: str, outcome: str, seconds: float) -> None:
        """One more call of a capability ended with an outcome, after so many seconds."""
        try:
            self._calls[capability, outcome] += 1
        except KeyError:
            self._begin(capability, outcome)
        self._buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def _begin(self, capability: str, outcome: str) -> None:
        # Names that callers make up, such as URIs of a template, must not fill the memory.
        if capability not in self._names and len(self._names) >= _MAX_NAMES:
            capability = OTHER
        self._names.add(capability)
        key = (capability, outcome)
        self._calls[key] = self._calls.get(key, 0) + 1

    @property
    def uptime(self) -> float:
        """Seconds since counting began."""
        return self._clock() - self.began

    def calls(self) -> dict[tuple[str, str], int]:
        """How many calls ended how, by capability and outcome."""
        found = dict(self._calls)
        for outcome, tools in (("ok", self.ok), ("error", self.error)):
            for name, number in tools.items():
                found[name, outcome] = found.get((name, outcome), 0) + number
        return dict(sorted(found.items()))

    def by_outcome(self) -> dict[str, int]:
        """How many calls ended how."""
        found: dict[str, int] = {}
        for (_, outcome), number in self.calls().items():
            found[outcome] = found.get(outcome, 0) + number
        return dict(sorted(found.items()))

    def timed(self) -> list[int]:
        """How many calls took a time within each bucket of the histogram."""
        return list(self._buckets)

    def buckets(self) -> dict[float, int]:
        """How many calls took at most so many seconds; all of them at infinity."""
        return dict(zip((*BOUNDS, float("inf")), accumulate(self._buckets), strict=True))


class Pipeline:
    """Runs the capabilities of one registry."""

    def __init__(
        self, registry: Registry, services: Services, *, timeout: float, slots: Bulkheads, pool: Pool | None = None
    ) -> None:
        self.registry = registry
        self.timeout = timeout
        self.pool = pool or Pool()
        self.slots = slots
        self.guard: Guard | None = None
        self.secrets: tuple[str, ...] = ()
        """Values that are removed from every error text."""
        self.counters = Counters()
        self._ok, self._error = self.counters.ok, self.counters.error
        self._services = services
        self.call_counts: dict[Capability, CallCount] = {}
        """The running calls of capabilities whose owner has to know when there are none any more."""

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        caller: Caller,
        *,
        longest: float | None = None,
        keep_raw: bool = False,
    ) -> Result:
        """Call a tool; what goes wrong inside it becomes a result that is an error.

        `longest` replaces the usual deadline, unless the tool has its own. With `keep_raw`, structured data that came
        as JSON from elsewhere may stay encoded, for a caller that only passes the result on.
        """
        tool = self.registry.tool(name)
        if tool.scopes:
            self._check_scopes(tool, tool.id, "call", caller, name)
        calls = self.call_counts.get(tool, _UNCOUNTED)
        calls.running += 1
        guard, permit, slot = self.guard, None, None
        try:
            depth = caller.chain.depth
            # A nested call may carry a token that limits it, and has a greatest depth, also without any rule.
            if guard is not None and (guard.is_on or tool.permissions or depth):
                try:
                    permit = guard.enter(tool, tool.id, caller, "call", arguments)
                except LeaseNeeded as needed:
                    permit = await self._wait_to_enter(needed, guard, tool, tool.id, caller, "call", arguments)
            # Nested calls share the slot of the first one: otherwise a chain of calls could wait for itself.
            if not depth:
                principal = caller.principal.id
                if not self.slots.try_acquire(principal):
                    await self.slots.acquire(principal, tool.timeout or longest or self.timeout)
                slot = principal
            admitted = tool.arguments.admit(arguments)
            seconds = tool.timeout or longest or self.timeout
            # The usual case is written out here: each further coroutine would be paid for by every call.
            if tool.is_async and tracing.SDK not in modules:
                with Deadline(seconds, self.slots, slot) as deadline:
                    value = await tool.handler(admitted, Context(caller, self._services, deadline, tool))
            else:
                value = await self._run(tool, admitted, caller, seconds, slot)
            result = to_result(value) if keep_raw else decode_result(to_result(value))
            if tool.output is not None:
                check_output(tool, result)
        except BaseException as error:  # `SystemExit` too: a handler that calls `sys.exit` must not end the hub
            if guard is not None and permit is not None:
                guard.leave(permit, error)
            return error_result(tool.id, error, self.secrets, name)
        finally:
            if slot is not None:
                self.slots.release(slot)
            calls.running -= 1
        if guard is not None and permit is not None:
            guard.leave(permit, None, is_error=result.is_error)
        else:
            (self._error if result.is_error else self._ok)[tool.id] += 1
        return result

    async def read(self, uri: str, caller: Caller) -> list[Contents]:
        """Read a resource; where one template finds nothing, the next that matches is tried."""
        missing: UnknownResource | None = None
        for capability, variables in self.registry.resources(uri):
            try:
                self._check_scopes(capability, uri, "read", caller)
                admitted = capability.arguments.admit(variables)
                value = await self._run_guarded(capability, uri, "read", admitted, caller)
            except InvalidArguments:  # the template matches but its variables do not fit; the next one may
                continue
            except UnknownResource as error:
                if capability.mcp.unknown is not None and self._services.is_hidden(caller.principal, uri):
                    missing = await capability.mcp.unknown(uri, caller)
                elif error.uri == uri:
                    missing = error
                continue
            mime_type = getattr(capability.definition, "mime_type", None) or None
            return to_contents(value, uri, mime_type)
        raise missing or self.registry.unknown_resource(uri, lambda row: self.shows(row, caller))

    async def prompt(self, name: str, arguments: dict[str, Any], caller: Caller) -> list[PromptMessage]:
        """The messages of a prompt."""
        prompt = self.registry.prompt(name, lambda row: self.shows(row, caller))
        self._check_scopes(prompt, prompt.id, "prompt", caller)
        try:
            admitted = prompt.arguments.admit(arguments)
        except InvalidArguments as error:
            # An error about arguments would show that a hidden prompt exists.
            self._refuse_hidden(prompt, prompt.id, "prompt", caller)
            raise InvalidArguments(error.problems, f"prompt {prompt.id}") from None
        return to_messages(await self._run_guarded(prompt, prompt.id, "prompt", admitted, caller))

    def shows(self, capability: Capability, caller: Caller) -> bool:
        """Whether a caller may see a capability: suggestions name no other."""
        principal = caller.principal
        return capability.is_open_to(principal.scopes) and not self._services.is_hidden(principal, capability.id)

    async def use(
        self, capability: Capability, given: Any, caller: Caller, longest: float, action: str = "call"
    ) -> Any:
        """Run a handler on input that only it understands; returns its value as it is."""
        self._check_scopes(capability, capability.id, action, caller)
        return await self._run_guarded(capability, capability.id, action, given, caller, longest)

    def check(self, capability: Capability, name: str, caller: Caller, action: str) -> None:
        """Raise where the policy denies an action, and record one that it allows."""
        self._check_scopes(capability, name, action, caller)
        if self.guard is not None:
            self.guard.leave(self._enter(self.guard, capability, name, caller, action, None), None)

    def _check_scopes(
        self, capability: Capability, name: str, action: str, caller: Caller, asked: str | None = None
    ) -> None:
        """Refuse a caller whose token does not carry every scope the capability asks for.

        What a rule hides is unknown; `asked` is the name that the caller used for it, where that is another one.
        """
        granted = caller.principal.scopes
        if not capability.is_open_to(granted):
            self._refuse_hidden(capability, name, action, caller, asked)
            raise InsufficientScope(capability.scopes, granted)

    def _refuse_hidden(
        self, capability: Capability, name: str, action: str, caller: Caller, asked: str | None = None
    ) -> None:
        """Refuse what a rule hides before another error shows that it exists; the audit records the attempt."""
        if self.guard is not None and self._services.is_hidden(caller.principal, name):
            self._enter(self.guard, capability, name, caller, action, None, asked)

    def _enter(
        self,
        guard: Guard,
        capability: Capability,
        name: str,
        caller: Caller,
        action: str,
        arguments: Any,
        asked: str | None = None,
    ) -> Permit:
        """The guard's permit; what a rule hides gets the error of a name that does not exist."""
        try:
            return guard.enter(capability, name, caller, action, arguments)
        except PolicyDenied as error:
            if not error.is_hiding:
                raise
        asked = asked or name
        if capability.kind is Kind.TOOL:
            raise unknown_tool(asked)
        if capability.kind is Kind.PROMPT:
            raise self.registry.unknown_prompt(asked, lambda row: self.shows(row, caller))
        raise self.registry.unknown_resource(asked, lambda row: self.shows(row, caller))

    async def _wait_to_enter(self, needed: LeaseNeeded, guard: Guard, *given: Any) -> Permit:
        """The guard's permit, once this replica has its part of a limit of all replicas."""
        for _ in range(MAX_ATTEMPTS):
            await needed.lease.wait()
            try:
                return self._enter(guard, *given)
            except LeaseNeeded as error:
                needed = error
        raise needed

    async def _run_guarded(
        self,
        capability: Capability,
        name: str,
        action: str,
        admitted: Any,
        caller: Caller,
        longest: float | None = None,
    ) -> Any:
        """Run a resource, a prompt or another handler without a tool's result, if the guard permits it."""
        guard, permit = self.guard, None
        calls = self.call_counts.get(capability, _UNCOUNTED)
        calls.running += 1
        try:
            if guard is None or not (guard.is_on or capability.permissions or caller.chain.depth):
                return await self._run_in_slot(capability, admitted, caller, longest)
            try:
                permit = self._enter(guard, capability, name, caller, action, admitted)
            except LeaseNeeded as needed:
                permit = await self._wait_to_enter(needed, guard, capability, name, caller, action, admitted)
            value = await self._run_in_slot(capability, admitted, caller, longest)
        except BaseException as error:
            if guard is not None and permit is not None:
                guard.leave(permit, error)
            raise
        finally:
            calls.running -= 1
        guard.leave(permit, None)
        return value

    async def _run_in_slot(self, capability: Capability, admitted: Any, caller: Caller, longest: float | None) -> Any:
        """Run it in a slot of its caller; nested calls share the slot of the first one."""
        if caller.chain.depth:
            return await _contain_exit(self._run(capability, admitted, caller, longest, None))
        principal = caller.principal.id
        if not self.slots.try_acquire(principal):
            await self.slots.acquire(principal, longest or capability.timeout or self.timeout)
        try:
            return await _contain_exit(self._run(capability, admitted, caller, longest, principal))
        finally:
            self.slots.release(principal)

    def _run(
        self, capability: Capability, admitted: Any, caller: Caller, seconds: float | None, slot: str | None
    ) -> Coroutine[Any, Any, Any]:
        run = self._traced if tracing.SDK in modules else self._run_under
        deadline = Deadline(seconds or capability.timeout or self.timeout, self.slots, slot)
        return run(capability, admitted, caller, deadline)

    async def _traced(self, capability: Capability, admitted: Any, caller: Caller, deadline: Deadline) -> Any:
        with tracing.span(f"run {capability.id}", {"waypost.capability": capability.id}):
            return await self._run_under(capability, admitted, caller, deadline)

    async def _run_under(self, capability: Capability, admitted: Any, caller: Caller, deadline: Deadline) -> Any:
        with deadline:
            context = Context(caller, self._services, deadline, capability)
            if capability.is_async:
                return await capability.handler(admitted, context)
            run = self.pool.run(capability.id, capability.handler, admitted, context, principal=caller.principal.id)
            return await maybe_await(await run)


def error_result(name: str, error: BaseException, secrets: tuple[str, ...], asked: str = "") -> Result:
    """The result for an error of a tool; errors that are not the tool's are raised.

    Where a rule hides the tool, that is the error for a tool that does not exist, under the name that was asked for.

    From a text that a handler chose, known secrets are removed; from the text of a crash or of a worker, also
    everything that looks like one.
    """
    if _must_propagate(error):
        raise error
    if isinstance(error, InvalidArguments):
        return failure(f"Invalid arguments for tool {name}: {error.message}")
    if isinstance(error, InvocationFailed):
        return failure(redacted(error.message, secrets), error)
    if isinstance(error, (CallError, StoreError)):
        return failure(without(error.message, secrets), error)
    if isinstance(error, PolicyDenied) and error.is_hiding:
        raise unknown_tool(asked or name)
    if isinstance(error, (ProtocolError, UnknownCapability, PolicyDenied)):
        raise error
    if isinstance(error, asyncio.CancelledError) and _is_task_cancelled():
        raise error
    _log.error("tool %s crashed", name, exc_info=error)
    return failure(redacted(f"Tool crashed: {type(error).__name__}: {text_of(error)}", secrets))


def _must_propagate(error: BaseException) -> bool:
    """Whether an exception ends more than the handler: an interrupt, or a question to a stateless client."""
    return isinstance(error, (KeyboardInterrupt, GeneratorExit)) or is_input_needed(error)


async def _contain_exit(call: Awaitable[Any]) -> Any:
    """Await a handler; `SystemExit`, other `BaseException`s and a cancellation of its own become an error."""
    try:
        return await call
    except asyncio.CancelledError as error:
        if _is_task_cancelled():
            raise
        raise RuntimeError("the handler awaited something that was cancelled") from error
    except SystemExit as error:
        raise RuntimeError("the handler tried to end the process") from error
    except BaseException as error:
        if isinstance(error, Exception) or _must_propagate(error):
            raise
        raise RuntimeError(f"{type(error).__name__}: {text_of(error)}") from error


def _is_task_cancelled() -> bool:
    """Whether the current task was cancelled from outside; a handler may also raise `CancelledError` itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_output(tool: Capability, result: Result) -> None:
    """Raise `InvalidOutput` for a result that does not fit the tool's output schema; errors need not."""
    if tool.output is None or result.is_error:
        return
    if result.structured is None:
        problems = "structured content is missing"
    else:
        bare = result.bare
        # The schema was made from this type, so a value of it fits; JSON has no infinity and no NaN.
        is_as_promised = type(bare) is tool.returns
        if is_as_promised and (tool.returns is not float or isfinite(bare)):
            return
        seen = round_trip_json(result.structured)
        if tool.output.is_valid(seen):
            return
        problems = "; ".join(tool.output.problems(seen))
    raise InvalidOutput(f"Tool {tool.id} returned a result that does not fit its output schema: {problems}")
