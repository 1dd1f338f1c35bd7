"""The one way a capability runs: resolve, permit, take a slot, validate, run under a deadline, check the output.

Every way in (MCP, the shell, another handler) calls `call`, `read` or `prompt`. Permissions, rate limits, circuit
breakers and the audit are the guard's, where there is one. Only calls from outside take a slot: a nested call runs in
that of the call it came from, and would wait for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from math import isfinite
from time import perf_counter
from typing import Any, Final, Protocol

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller, Context, Services
from waypost.capabilities.prompts import PromptMessage, to_messages
from waypost.capabilities.questions import is_input_needed
from waypost.capabilities.registry import Registry
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
from waypost.execution.counters import Counters
from waypost.execution.deadline import Deadline
from waypost.execution.pool import Pool
from waypost.execution.shares import Bulkheads
from waypost.loops import maybe_await
from waypost.redaction import redacted, without
from waypost.wire.content import Contents


class Permit:
    """Permission for one execution, and what the audit needs when it ends."""

    __slots__ = ("action", "began", "caller", "digest", "is_probe", "name")

    def __init__(self, name: str, caller: Caller, action: str) -> None:
        self.name = name
        self.caller = caller
        self.action = action
        self.began = perf_counter()
        self.digest = ""
        """Of its arguments as they came, for the audit."""
        self.is_probe = False
        """Whether it probes an open circuit."""


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
            check_scopes(tool, caller)
        guard, permit, slot = self.guard, None, None
        try:
            depth = caller.chain.depth
            if guard is not None and (guard.is_on or tool.permissions or depth):
                permit = guard.enter(tool, tool.id, caller, "call", arguments)
            if not depth:
                principal = caller.principal.id
                if not self.slots.try_acquire(principal):
                    await self.slots.acquire(principal)
                slot = principal
            admitted = tool.arguments.admit(arguments)
            seconds = tool.timeout or longest or self.timeout
            if tool.is_async and not tracing.is_on():
                with Deadline(seconds, self.slots, slot) as deadline:
                    value = await tool.handler(admitted, Context(caller, self._services, deadline, tool))
            else:
                value = await self._run(tool, admitted, caller, seconds, slot)
            result = to_result(value) if keep_raw else decode_result(to_result(value))
            if tool.output is not None:
                check_output(tool, result)
        except BaseException as error:
            if guard is not None and permit is not None:
                guard.leave(permit, error)
            if _must_propagate(error):
                raise
            return error_result(tool.id, error, self.secrets)
        finally:
            if slot is not None:
                self.slots.release(slot)
        if guard is not None and permit is not None:
            guard.leave(permit, None, is_error=result.is_error)
        else:
            (self._error if result.is_error else self._ok)[tool.id] += 1
        return result

    async def read(self, uri: str, caller: Caller) -> list[Contents]:
        """Read a resource; where one template finds nothing, the next that matches is tried."""
        missing = UnknownResource(uri)
        for capability, variables in self.registry.resources(uri):
            try:
                check_scopes(capability, caller)
                admitted = capability.arguments.admit(variables)
                value = await self._run_guarded(capability, uri, "read", admitted, caller)
            except InvalidArguments:
                continue
            except UnknownResource as error:
                missing = error if error.uri == uri else missing
                continue
            mime_type = getattr(capability.definition, "mime_type", None) or None
            return to_contents(value, uri, mime_type)
        raise missing

    async def prompt(self, name: str, arguments: dict[str, Any], caller: Caller) -> list[PromptMessage]:
        """The messages of a prompt."""
        prompt = self.registry.prompt(name, lambda row: self._is_shown(row, caller))
        check_scopes(prompt, caller)
        admitted = prompt.arguments.admit(arguments)
        return to_messages(await self._run_guarded(prompt, prompt.id, "prompt", admitted, caller))

    def _is_shown(self, capability: Capability, caller: Caller) -> bool:
        principal = caller.principal
        return capability.is_open_to(principal.scopes) and not self._services.is_hidden(principal, capability.id)

    async def use(
        self, capability: Capability, given: Any, caller: Caller, longest: float, action: str = "call"
    ) -> Any:
        """Run a handler on input that only it understands; returns its value as it is."""
        check_scopes(capability, caller)
        return await self._run_guarded(capability, capability.id, action, given, caller, longest)

    def check(self, capability: Capability, name: str, caller: Caller, action: str) -> None:
        """Raise where the policy denies an action, and record one that it allows."""
        check_scopes(capability, caller)
        if self.guard is not None:
            self.guard.leave(self.guard.enter(capability, name, caller, action, None), None)

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
        guard = self.guard
        if guard is None or not (guard.is_on or capability.permissions or caller.chain.depth):
            return await self._run_in_slot(capability, admitted, caller, longest)
        permit = guard.enter(capability, name, caller, action, admitted)
        try:
            value = await self._run_in_slot(capability, admitted, caller, longest)
        except BaseException as error:
            guard.leave(permit, error)
            raise
        guard.leave(permit, None)
        return value

    async def _run_in_slot(self, capability: Capability, admitted: Any, caller: Caller, longest: float | None) -> Any:
        """Run it in a slot of its caller; nested calls share the slot of the first one."""
        if caller.chain.depth:
            return await _contain_exit(self._run(capability, admitted, caller, longest, None))
        principal = caller.principal.id
        if not self.slots.try_acquire(principal):
            await self.slots.acquire(principal)
        try:
            return await _contain_exit(self._run(capability, admitted, caller, longest, principal))
        finally:
            self.slots.release(principal)

    def _run(
        self, capability: Capability, admitted: Any, caller: Caller, seconds: float | None, slot: str | None
    ) -> Coroutine[Any, Any, Any]:
        run = self._traced if tracing.is_on() else self._run_under
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


def check_scopes(capability: Capability, caller: Caller) -> None:
    """Refuse a caller whose token does not carry every scope the capability asks for."""
    granted = caller.principal.scopes
    if not capability.is_open_to(granted):
        raise InsufficientScope(capability.scopes, granted)


def error_result(name: str, error: BaseException, secrets: tuple[str, ...] = ()) -> Result:
    """The result for an error of a tool; errors that are not the tool's are raised.

    From a text that a handler chose, known secrets are removed; from the text of a crash or of a worker, also
    everything that looks like one.
    """
    if isinstance(error, InvalidArguments):
        return failure(f"Invalid arguments for tool {name}: {error.message}")
    if isinstance(error, InvocationFailed):
        return failure(redacted(error.message, secrets), error)
    if isinstance(error, (CallError, StoreError)):
        return failure(without(error.message, secrets), error)
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
        is_as_promised = type(bare) is tool.returns
        if is_as_promised and (tool.returns is not float or isfinite(bare)):
            return
        seen = round_trip_json(result.structured)
        if tool.output.is_valid(seen):
            return
        problems = "; ".join(tool.output.problems(seen))
    raise InvalidOutput(f"Tool {tool.id} returned a result that does not fit its output schema: {problems}")
