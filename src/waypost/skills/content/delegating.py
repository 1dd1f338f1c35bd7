"""Skills and prompts of a registry that is a worker: where the hub keeps none itself, its clients see the worker's.

The worker is asked what it has when it comes, and again whenever it says that something changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from waypost.capabilities.capability import Capability, IsTaken
from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry, Rows
from waypost.errors import WaypostError
from waypost.loops import running_loop
from waypost.runtime.component import Component
from waypost.skills.content.delegated import LISTS, rows_of
from waypost.skills.content.functions import TRIGGER_TYPES
from waypost.skills.content.hosting import HUB
from waypost.skills.content.ports import Data
from waypost.skills.content.uris import INDEX_URI, skill_uri
from waypost.workers.frames import RegisterTrigger, TriggerRegistrationResult, failure_in
from waypost.workers.functions import DEFAULT, Call, Function, hosted
from waypost.workers.triggers import Inside
from waypost.workers.workers import Workers

if TYPE_CHECKING:
    from waypost.runtime.core import Core

_log: Final = logging.getLogger(__name__)
_HEARS: Final = "mcp::content-changed"
_PAUSE: Final = 5.0
"""Seconds after which a registry that did not answer is asked again."""
_MORE: Final = 1.0
"""Seconds that a registry has beyond those that it gives a function, so that it can tell which did not answer."""


class Delegation(Component):
    """Shows what the registry of a worker has, as long as there is one."""

    name = "delegation"

    def __init__(self, registry: Registry, workers: Workers, updated: Callable[[str], None]) -> None:
        self._registry = registry
        self._workers = workers
        self._updated = updated
        self._rows: dict[str, Rows] = {}
        """By the function that lists them."""
        self._lists: dict[str, Function] = {}
        self._stirred = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._problem = ""
        self._ear = Inside("waypost", HUB, _refused)
        workers.host([hosted(_HEARS, self._heard, metadata={"internal": True})])

    async def start(self, core: Core) -> None:
        """Look for a registry from now on."""
        self._workers.exchanged = self._look
        for kind in TRIGGER_TYPES.values():
            self._workers.bind(self._ear, RegisterTrigger(f"waypost:{kind.id}", kind.id, _HEARS))

    async def stop(self) -> None:
        """Show nothing any more."""
        self._workers.exchanged = lambda: None
        self._workers.triggers.unbind_all(self._ear)
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        for function_id in list(self._rows):
            self._show(function_id, {})
        self._lists = {}

    def _look(self) -> None:
        """Ask for the lists if they are another worker's than before."""
        offered = ((one, self._workers.functions.get(DEFAULT, one)) for one in LISTS)
        lists = {function_id: function for function_id, function in offered if function is not None}
        if lists != self._lists:
            self._lists = lists
            self._ask()

    async def _heard(self, payload: Any, _call: Call) -> None:
        """The registry says that something changed."""
        self._ask()
        skill_id = payload.get("id") if isinstance(payload, dict) else None
        if isinstance(skill_id, str):
            self._updated(skill_uri(skill_id))
            self._updated(INDEX_URI)

    def _ask(self) -> None:
        self._stirred.set()
        if self._asking is None or self._asking.done():
            self._asking = running_loop().create_task(self._asked())

    async def _asked(self) -> None:
        while self._stirred.is_set():
            self._stirred.clear()
            try:
                for function_id in LISTS:
                    self._show(function_id, await self._listed(function_id))
                self._problem = ""
            except WaypostError as error:
                await self._pause(error.message)

    async def _pause(self, problem: str) -> None:
        """Wait a while before lists are asked for again, unless there is news already; say once what is wrong."""
        if not self._stirred.is_set():
            if problem != self._problem:
                _log.warning("the skills and prompts of a worker are not known: %s", problem)
            self._problem = problem
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await self._stirred.wait()
        self._stirred.set()

    async def _listed(self, function_id: str) -> Rows:
        function = self._lists.get(function_id)
        if function is None:
            return {}
        answer = await self._call(function_id, {}, HUB)
        owner = None if function.owner is None else function.owner.owner
        return {(row.kind, row.id): _yielding(row, owner) for row in rows_of(function_id, answer, self._call)}

    async def _call(self, function_id: str, payload: Data, caller: Caller) -> Any:
        within = self._workers.settings.state_timeout + _MORE
        return await self._workers.trigger(function_id, payload, caller, within)

    def _show(self, function_id: str, rows: Rows) -> None:
        """Have these rows in the place of those before."""
        self._registry.replace(self._rows.get(function_id, {}).values(), rows.values())
        self._rows[function_id] = rows


def _yielding(row: Capability, owner: str | None) -> Capability:
    """A row of a worker's that waits as long as the hub has another of its name."""

    def wait(_is_taken: IsTaken) -> None:
        _log.warning("%s of %s is left out as long as the hub itself has another of that name", row.id, owner)

    return replace(row, owner=owner, yields=wait)


def _refused(message: Struct) -> None:
    """Tell in the log that a registry does not say when something changes."""
    if isinstance(message, TriggerRegistrationResult) and (failure := failure_in(message.error)) is not None:
        _log.warning("changes of %s are not heard of: %s", message.trigger_type, failure.message)
