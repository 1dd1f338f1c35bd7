"""Observers that a worker registers: functions that are called for the calls of other functions."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.capabilities.results import encode_json
from waypost.errors import DefinitionError, InvocationFailed
from waypost.worker.loop import Answer, WorkerLoop
from waypost.worker.observed_functions import ObserveRejection
from waypost.workers.frames import (
    OBSERVE_FEATURE,
    Failure,
    Observe,
    ObserveResult,
    ObserverStateChanged,
    ObserveSource,
    ObserveTarget,
    Unobserve,
)

_log: Final = logging.getLogger(__name__)
_OPTIONS: Final = ("id", "max_fires", "expires_in_ms", "max_in_flight", "metadata")

State: TypeAlias = Literal["pending", "active", "suspended", "error", "disposed"]
Reason: TypeAlias = dict[str, str]
"""A `code` and a `message`."""
Listener: TypeAlias = Callable[[State, Reason | None], object]
Send: TypeAlias = Callable[[Struct], None]


class ObserverHandle:
    """An observer; it is registered again after each reconnection until it is disposed."""

    def __init__(self, observers: Observers, frame: Observe) -> None:
        self.id = frame.id
        self.state: State = "pending"
        """`pending`, `active`, `suspended`, `error` or `disposed`."""
        self.reason: Reason | None = None
        """Why it has that state: a `code` and a `message`."""
        self.frame = frame
        self._observers = observers
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()

    def ready(self) -> Answer[None]:
        """When it is active; an `ObserveRejection` with the code of its reason when it will not be."""
        return self._observers.loop.start(self._until_ready())

    def on_state_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the state and the reason when they change, until the function returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def dispose(self) -> None:
        """Stop observing."""
        self._observers.loop.call(self._observers.dispose, self)

    def set_state(self, state: str, reason: Failure | None) -> None:
        """Its state has changed."""
        shown = None if reason is None else {"code": reason.code, "message": reason.message}
        if self.state == "disposed" or (state, shown) == (self.state, self.reason):
            return
        self.state, self.reason = cast("State", state), shown
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in list(self._listeners):
            try:
                listener(self.state, shown)
            except Exception:
                _log.exception("a listener for the state of the observer %s failed", self.id)

    async def _until_ready(self) -> None:
        while self.state != "active":
            if self.state in ("error", "disposed"):
                reason = self.reason or {
                    "code": "OBSERVE_FAILED",
                    "message": f"The observer {self.id} is {self.state}.",
                }
                raise ObserveRejection(reason["code"], reason["message"])
            await self._changed.wait()


class Observers:
    """Every observer of one worker."""

    def __init__(self, loop: WorkerLoop, send: Send) -> None:
        self.loop = loop
        self._send = send
        self._handles: dict[str, ObserverHandle] = {}
        self._is_supported: bool | None = None
        """Whether the engine supports observers; unknown without a connection."""

    @property
    def is_supported(self) -> bool:
        """Whether the engine that the worker is connected to supports observers."""
        return self._is_supported is True

    def add(self, frame: Observe) -> ObserverHandle:
        """Register an observer."""
        if frame.id in self._handles:
            raise DefinitionError(f"There is an observer {frame.id} already.")
        handle = self._handles[frame.id] = ObserverHandle(self, frame)
        self.loop.call(self._register, handle)
        return handle

    def dispose(self, handle: ObserverHandle) -> None:
        """Remove an observer."""
        if self._handles.pop(handle.id, None) is not None and self._is_supported:
            self._send(Unobserve(handle.id))
        handle.set_state("disposed", Failure("UNOBSERVED", "The worker disposed the observer."))

    def connected(self, features: list[str]) -> None:
        """The engine has said which features it has."""
        self._is_supported = OBSERVE_FEATURE in features
        for handle in list(self._handles.values()):
            self._register(handle)

    def disconnected(self) -> None:
        """The connection is lost."""
        self._is_supported = None

    def close(self, why: InvocationFailed) -> None:
        """There will be no connection any more."""
        self._is_supported = None
        for handle in self._handles.values():
            handle.set_state("disposed", Failure(why.code, why.message))
        self._handles.clear()

    def on_message(self, frame: ObserveResult | ObserverStateChanged) -> None:
        """The engine reports the state of an observer."""
        if isinstance(frame, ObserveResult):
            reason = frame.error
            for warning in frame.warnings or ():
                _log.warning("the observer %s: %s", frame.id, warning)
        else:
            reason = frame.reason
        handle = self._handles.get(frame.id)
        if handle is not None:
            if frame.state == "disposed":
                del self._handles[frame.id]
            handle.set_state(frame.state, reason)

    def _register(self, handle: ObserverHandle) -> None:
        if self._is_supported:
            self._send(handle.frame)
        elif self._is_supported is False:
            handle.set_state("error", Failure("UNSUPPORTED", "The engine does not support observers."))


def build_observe(
    source: Mapping[str, Any], target: str | Mapping[str, Any], options: Mapping[str, Any], namespace: str | None
) -> Observe:
    """The message that registers an observer; a `DefinitionError` says what is wrong with it."""
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise DefinitionError(f"An observer has no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}.")
    given = {"function_id": target} if isinstance(target, str) else target
    frame = Observe(
        options.get("id") or str(uuid.uuid4()),
        _part(source, ObserveSource, "source", namespace),
        _part(given, ObserveTarget, "target", namespace),
        UNSET if options.get("metadata") is None else Raw(encode_json(options["metadata"])),
        options.get("max_fires"),
        options.get("expires_in_ms"),
        options.get("max_in_flight"),
    )
    try:
        msgspec.json.decode(encode_json(frame), type=Observe)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"The observer is not valid: {error}.") from None
    return frame


def _part(given: Mapping[str, Any], kind: type[Any], name: str, namespace: str | None) -> Any:
    unknown = [key for key in given if key not in kind.__struct_fields__]
    if unknown:
        fields = ", ".join(kind.__struct_fields__)
        raise DefinitionError(f"The {name} of an observer has no {unknown[0]!r}; there are {fields}.")
    try:
        part = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"The {name} of an observer is not valid: {error}.") from None
    if part.namespace is None and not part.function_id.startswith(("engine::", "configuration::")):
        part.namespace = namespace
    return part
