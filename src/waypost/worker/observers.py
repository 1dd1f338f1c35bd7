"""Observers that a worker makes: functions that hear of the calls of others."""

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
from waypost.worker.loop import Answer, Home
from waypost.worker.observed_functions import ObserveRejection
from waypost.workers.frames import Failure, Observe, ObserveSource, ObserveTarget, Unobserve
from waypost.workers.observing.messages import ObserveResult, ObserverStateChanged

_log: Final = logging.getLogger(__name__)
FEATURE: Final = "observe.v1"
_OPTIONS: Final = ("id", "max_fires", "expires_in_ms", "max_in_flight", "metadata")

State: TypeAlias = Literal["pending", "active", "suspended", "error", "disposed"]
Reason: TypeAlias = dict[str, str]
"""A `code` and a `message`."""
Listener: TypeAlias = Callable[[State, Reason | None], object]
Send: TypeAlias = Callable[[Struct], None]


FromEngine: TypeAlias = ObserveResult | ObserverStateChanged


class ObserverHandle:
    """An observer; it is there again after each reconnection until it is disposed."""

    def __init__(self, observers: Observers, wish: Observe) -> None:
        self.id = wish.id
        self.state: State = "pending"
        """`pending`, `active`, `suspended`, `error` or `disposed`."""
        self.reason: Reason | None = None
        """Why it stands so: a `code` and a `message`."""
        self.wish = wish
        self._observers = observers
        self._listeners: list[Listener] = []
        self._news = asyncio.Event()

    def ready(self) -> Answer[None]:
        """When it is active; an `ObserveRejection` with the code of its reason when it will not be."""
        return self._observers.home.start(self._until_ready())

    def on_state_change(self, listener: Listener) -> Callable[[], None]:
        """Call something with the state and the reason each time they change; call what comes back to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def dispose(self) -> None:
        """Observe no more."""
        self._observers.home.soon(self._observers.dispose, self)

    def turn(self, state: str, reason: Failure | None) -> None:
        """It stands otherwise now."""
        told = None if reason is None else {"code": reason.code, "message": reason.message}
        if self.state == "disposed" or (state, told) == (self.state, self.reason):
            return
        self.state, self.reason = cast("State", state), told
        self._news.set()
        self._news = asyncio.Event()
        for listener in list(self._listeners):
            try:
                listener(self.state, told)
            except Exception:
                _log.exception("the state of the observer %s was not understood", self.id)

    async def _until_ready(self) -> None:
        while self.state != "active":
            if self.state in ("error", "disposed"):
                reason = self.reason or {
                    "code": "OBSERVE_FAILED",
                    "message": f"The observer {self.id} is {self.state}.",
                }
                raise ObserveRejection(reason["code"], reason["message"])
            await self._news.wait()


class Observers:
    """Every observer of one worker."""

    def __init__(self, home: Home, send: Send) -> None:
        self.home = home
        self._send = send
        self._handles: dict[str, ObserverHandle] = {}
        self._can: bool | None = None
        """Whether the engine knows of observers; nobody knows without a connection."""

    @property
    def is_known(self) -> bool:
        """Whether the engine that the worker is connected to knows of observers."""
        return self._can is True

    def put(self, wish: Observe) -> ObserverHandle:
        """Have an observer."""
        if wish.id in self._handles:
            raise DefinitionError(f"There is an observer {wish.id} already.")
        handle = self._handles[wish.id] = ObserverHandle(self, wish)
        self.home.soon(self._begin, handle)
        return handle

    def dispose(self, handle: ObserverHandle) -> None:
        """Have an observer no more."""
        if self._handles.pop(handle.id, None) is not None and self._can:
            self._send(Unobserve(handle.id))
        handle.turn("disposed", Failure("UNOBSERVED", "The worker observes no more."))

    def connected(self, features: list[str]) -> None:
        """The engine says what it can."""
        self._can = FEATURE in features
        for handle in list(self._handles.values()):
            self._begin(handle)

    def lost(self) -> None:
        """There is no connection."""
        self._can = None

    def end(self, why: InvocationFailed) -> None:
        """There will be no connection any more."""
        self._can = None
        for handle in self._handles.values():
            handle.turn("disposed", Failure(why.code, why.message))
        self._handles.clear()

    def take(self, frame: FromEngine) -> None:
        """Hear of an observer."""
        match frame:
            case ObserveResult():
                self._turn(frame.id, frame.state, frame.error)
                for warning in frame.warnings or ():
                    _log.warning("the observer %s: %s", frame.id, warning)
            case ObserverStateChanged():
                self._turn(frame.id, frame.state, frame.reason)

    def _begin(self, handle: ObserverHandle) -> None:
        if self._can:
            self._send(handle.wish)
        elif self._can is False:
            handle.turn("error", Failure("UNSUPPORTED", "The engine knows nothing of observers."))

    def _turn(self, observer_id: str, state: str, reason: Failure | None) -> None:
        handle = self._handles.get(observer_id)
        if handle is None:
            return
        if state == "disposed":
            del self._handles[observer_id]
        handle.turn(state, reason)


def wish_of(
    source: Mapping[str, Any], target: str | Mapping[str, Any], options: Mapping[str, Any], namespace: str | None
) -> Observe:
    """What a worker asks the engine for; a `DefinitionError` says what makes no sense."""
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise DefinitionError(f"An observer has no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}.")
    given = {"function_id": target} if isinstance(target, str) else target
    wish = Observe(
        options.get("id") or str(uuid.uuid4()),
        _part(source, ObserveSource, "source", namespace),
        _part(given, ObserveTarget, "target", namespace),
        UNSET if options.get("metadata") is None else Raw(encode_json(options["metadata"])),
        options.get("max_fires"),
        options.get("expires_in_ms"),
        options.get("max_in_flight"),
    )
    try:
        msgspec.json.decode(encode_json(wish), type=Observe)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"The observer makes no sense: {error}.") from None
    return wish


def _part(given: Mapping[str, Any], kind: type[Any], name: str, namespace: str | None) -> Any:
    unknown = [key for key in given if key not in kind.__struct_fields__]
    if unknown:
        fields = ", ".join(kind.__struct_fields__)
        raise DefinitionError(f"The {name} of an observer has no {unknown[0]!r}; there are {fields}.")
    try:
        part = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"The {name} of an observer makes no sense: {error}.") from None
    if part.namespace is None and not part.function_id.startswith(("engine::", "configuration::")):
        part.namespace = namespace
    return part
