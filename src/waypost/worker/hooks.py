"""How a function may be observed, as whoever offers it says: `register_function(..., observe=ObserveHooks(...))`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from waypost.errors import DefinitionError, InvocationFailed
from waypost.worker.shapes import request_format
from waypost.workers.frames import Observable

if TYPE_CHECKING:
    from waypost.worker.owned import Observer

Delivery: TypeAlias = Literal["auto", "owner"]
Hook: TypeAlias = "Callable[[Observer], Awaitable[None] | None]"
_LEFT_OUT: Final[Any] = object()
_FIELDS: Final = ("delivery", "args_format", "legacy_trigger_type", "allow", "on_observer_added", "on_observer_removed")


class ObserveRejection(InvocationFailed):
    """An observer is not wanted; raised in `on_observer_added`, its code is told to whoever observes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, code)

    def __reduce__(self) -> tuple[type[ObserveRejection], tuple[str, str]]:
        return type(self), (self.code, self.message)


class ObserveHooks:
    """How the observers of a function hear of it, and what is called when one comes or goes.

    Made with keywords, or by a subclass that has these as attributes and methods. The two functions are plain or
    asynchronous, and called one at a time. An error of `on_observer_added` refuses the observer.
    """

    delivery: Delivery | None = None
    """`auto`: every call is offered to every observer; `owner`: the worker hands events to observers itself."""
    args_format: Any = None
    """What the arguments of observers look like, if it is `owner`: a JSON Schema, or a type."""
    legacy_trigger_type: str | None = None
    """The kind of trigger that it takes the place of."""
    allow: bool | None = None
    """Whether it may be observed at all."""
    on_observer_added: Hook | None = None
    on_observer_removed: Hook | None = None

    def __init__(
        self,
        *,
        delivery: Delivery | None = _LEFT_OUT,
        args_format: Any = _LEFT_OUT,
        legacy_trigger_type: str | None = _LEFT_OUT,
        allow: bool | None = _LEFT_OUT,
        on_observer_added: Hook | None = _LEFT_OUT,
        on_observer_removed: Hook | None = _LEFT_OUT,
    ) -> None:
        given = (delivery, args_format, legacy_trigger_type, allow, on_observer_added, on_observer_removed)
        for name, value in zip(_FIELDS, given, strict=True):
            if value is not _LEFT_OUT:
                setattr(self, name, value)

    @property
    def is_active(self) -> bool:
        """Whether anything of it is of use only where the engine knows of observers."""
        return self.delivery == "owner" or bool(self.on_observer_added or self.on_observer_removed)


def hooks_of(given: ObserveHooks | Mapping[str, Any] | None) -> ObserveHooks:
    """The hooks of a function; a `DefinitionError` says what makes no sense."""
    if not isinstance(given, ObserveHooks | Mapping | None):
        raise DefinitionError(f"observe takes ObserveHooks or a dict of its fields, not {type(given).__name__}.")
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in _FIELDS]
        if unknown:
            raise DefinitionError(f"observe has no {unknown[0]!r}; there are {', '.join(_FIELDS)}.")
        given = ObserveHooks(**given)
    hooks = given or ObserveHooks()
    if hooks.delivery not in (None, "auto", "owner"):
        raise DefinitionError(f"observe.delivery is 'auto' or 'owner', not {hooks.delivery!r}.")
    if hooks.args_format is not None and hooks.delivery != "owner":
        raise DefinitionError("observe.args_format needs delivery='owner': other functions take no arguments.")
    return hooks


def terms_of(hooks: ObserveHooks) -> Observable | None:
    """What the engine is told of the hooks, if there is anything."""
    wanted = hooks.args_format
    if isinstance(wanted, type):
        wanted = request_format(wanted)
    terms = Observable(hooks.delivery, wanted, hooks.legacy_trigger_type, hooks.allow)
    return None if terms == Observable() else terms
