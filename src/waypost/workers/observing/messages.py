"""What the hub says about observers to whoever made them, and to whoever offers what they observe."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from waypost.workers.frames import Failure


class LegacyTrigger(Struct):
    """The binding that an observer stands for."""

    trigger_type: str
    config: Raw


class ObserverInfo(Struct):
    """An observer as the owner of the function knows it: not who made it, nor under which terms."""

    id: str
    args: dict[str, Any]
    filters: dict[str, Any]
    target: str
    capture: list[str]
    on: str
    legacy: LegacyTrigger | UnsetType = UNSET


class FunctionRegistered(Struct, tag="functionregistered"):
    """A function is known, and these are its observers."""

    id: str
    namespace: str
    revision: int
    observers: list[ObserverInfo]
    local_dispatch: bool = False
    """Whether its worker may call it without the hub; it may not, for the hub would not see the call."""


class ObserverAdded(Struct, tag="observeradded"):
    """A function has one more observer, and its owner is asked whether that is all right."""

    function_id: str
    namespace: str
    revision: int
    observer: ObserverInfo


class ObserverRemoved(Struct, tag="observerremoved"):
    """A function has one observer less."""

    function_id: str
    namespace: str
    revision: int
    id: str


class ObserveResult(Struct, tag="observeresult", omit_defaults=True):
    """What became of the wish to observe."""

    id: str
    state: str
    error: Failure | None = None
    warnings: list[str] | None = None


class ObserverStateChanged(Struct, tag="observerstatechanged", omit_defaults=True):
    """An observer stands otherwise than before."""

    id: str
    state: str
    fires: int
    reason: Failure | None = None
