"""The call that a handler answers: who made it, and the trace that it belongs to."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from waypost.execution import tracing
from waypost.workers.frames import InvokeFunction, Origin, Text
from waypost.workers.functions import trace_here

current: Final[ContextVar[InvokeFunction | None]] = ContextVar("invocation", default=None)
"""The call that is being answered here."""


@dataclass(frozen=True, slots=True)
class InvocationContext:
    """A call that is being answered."""

    function_id: str
    invocation_id: str
    observe_depth: int = 0
    """How many observers stand behind it."""
    caller: dict[str, Any] | None = None
    """Who made it: `worker_id`, `worker_name`, and the `function_id` and `invocation_id` that it was made from."""
    activation: dict[str, Any] | None = None
    """The `observer_id` and `activation_id`, where it is made for an observer."""
    traceparent: str | None = None
    baggage: str | None = None


def current_invocation() -> InvocationContext | None:
    """The call that this code runs for, in threads of handlers too; nothing outside of handlers."""
    call = current.get()
    if call is None:
        return None
    return InvocationContext(
        call.function_id,
        call.invocation_id or "",
        max(call.observe_depth or 0, 0),
        _told(call.caller),
        _told(call.activation),
        call.traceparent,
        call.baggage,
    )


@contextmanager
def answering(call: InvokeFunction) -> Iterator[None]:
    """Be a handler of a call, with a span of its trace where OpenTelemetry is in use."""
    if call.invocation_id is None:  # nobody waits for it, but what it does is known by it
        call = msgspec.structs.replace(call, invocation_id=str(uuid.uuid4()))
    token = current.set(call)
    try:
        with _traced(call) if tracing.is_on() else nullcontext():
            yield
    finally:
        current.reset(token)


@contextmanager
def _traced(call: InvokeFunction) -> Iterator[None]:
    from opentelemetry import context, propagate

    carrier = {"traceparent": call.traceparent or "", "baggage": call.baggage or ""}
    token = context.attach(propagate.extract(carrier))  # a span alone would leave the baggage behind
    try:
        with tracing.span(f"execute {call.function_id}", {"waypost.function": call.function_id}):
            yield
    finally:
        context.detach(token)


def trace_context() -> tuple[Text, Text]:
    """The `traceparent` and `baggage` of what happens here: the current span's, else those of the call."""
    here = trace_here()
    if here[0] is not None:
        return here
    call = current.get()
    return (None, None) if call is None else (call.traceparent, call.baggage)


def outgoing(frame: InvokeFunction, is_observed: bool) -> InvokeFunction:
    """A call with what there is to say of where it is made; who observes wants to know more of that."""
    frame.traceparent, frame.baggage = trace_context()
    outer = current.get()
    if outer is not None and is_observed:
        frame.caller = Origin(function_id=outer.function_id, invocation_id=outer.invocation_id, parent=parent_of(outer))
        frame.observe_depth = outer.observe_depth
    return frame


def parent_of(call: InvokeFunction) -> Origin | None:
    """Who made a call, without who was behind that."""
    return None if call.caller is None else msgspec.structs.replace(call.caller, parent=None)


def _told(part: msgspec.Struct | None) -> dict[str, Any] | None:
    if part is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(part)
    return told
