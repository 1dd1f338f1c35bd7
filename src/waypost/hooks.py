"""Lifecycle hooks: which there are, and how several functions for one hook are run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from waypost.errors import DefinitionError
from waypost.loops import maybe_await

Hook = Callable[..., Awaitable[Any] | Any]

WRAPPING: Final = frozenset(
    {
        "request",
        "list_tools",
        "list_prompts",
        "list_resources",
        "list_resource_templates",
        "tool_call",
        "resource_read",
        "prompt_get",
        "completion",
    }
)
"""Hooks that answer in place of the hub; each goes on to the next by calling the method `Hub.on_<hook>`."""
NOTIFYING: Final = frozenset(
    {
        "init",
        "notification",
        "elicitation",
        "sampling",
        "roots",
        "event",
        "call",
        "cast",
        "terminate",
        "session_expired",
    }
)
"""Hooks that all run, one after the other; the first result that is not `None` is the answer."""
DESCRIBING: Final = frozenset({"server_info", "server_capabilities", "supported_protocol_versions", "instructions"})
"""Hooks that say what the hub is, without arguments; the first result that is not empty counts."""
LIFECYCLE: Final = frozenset({"start", "stop"})
"""Hooks of the process: after everything started, and before anything stops."""
HOOKS: Final = (*sorted(WRAPPING | NOTIFYING | DESCRIBING | LIFECYCLE),)

_position: ContextVar[tuple[str, int]] = ContextVar("waypost_hook", default=("", -1))
"""The hook that runs, and which of its functions."""


class Hooks:
    """The functions that a hub's user registered, per hook in the order of registration.

    `overridden` is what a subclass of `Hub` wrote as a method; it runs after the registered functions.
    """

    def __init__(self, overridden: Callable[[str], Hook | None]) -> None:
        self._overridden = overridden
        self._registered: dict[str, list[Hook]] = {}
        self._chosen: dict[str, Hook | None] = {}

    def add(self, name: str, function: Hook) -> None:
        """Register one more function for a hook."""
        self._registered.setdefault(name, []).append(function)
        self._chosen.pop(name, None)

    def stack(self, name: str) -> list[Hook]:
        """All functions of a hook, the first to run first."""
        own = self._overridden(name)
        return [*self._registered.get(name, ()), *(() if own is None else (own,))]

    def get(self, name: str) -> Hook | None:
        """What runs a hook, or `None` where there is no function for it; looked up for every request."""
        try:
            return self._chosen[name]
        except KeyError:
            self._chosen[name] = found = self._choose(name)
            return found

    def _choose(self, name: str) -> Hook | None:
        stack = self.stack(name)
        if not stack:
            return None
        if name in WRAPPING:
            return lambda *args: self._run(name, 0, args)
        if len(stack) == 1:
            return stack[0]

        async def run_all(*args: Any) -> Any:
            results = [await maybe_await(function(*args)) for function in stack]
            return next((result for result in results if result is not None), None)

        return run_all

    async def go_on(self, name: str, args: tuple[Any, ...], default: Hook) -> Any:
        """Run the function after the one that runs now, or what the hub does by itself."""
        running, index = _position.get()
        index = index + 1 if running == name else len(self.stack(name))
        if index < len(self.stack(name)):
            return await self._run(name, index, args)
        return await maybe_await(default(*args))

    async def _run(self, name: str, index: int, args: tuple[Any, ...]) -> Any:
        token = _position.set((name, index))
        try:
            return await maybe_await(self.stack(name)[index](*args))
        finally:
            _position.reset(token)

    def describe(self, name: str) -> Any:
        """What the functions of a describing hook say, if any says something."""
        return next((said for function in self._registered.get(name, ()) if (said := function())), None)


def check_hook(name: str) -> None:
    """Raise `DefinitionError` for a name that is no hook."""
    if name not in HOOKS:
        raise DefinitionError(f"There is no hook {name!r}; there are {', '.join(HOOKS)}.")
