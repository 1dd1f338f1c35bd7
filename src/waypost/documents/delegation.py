"""Documents of a registry that is a worker, shown as long as that worker is connected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from waypost.capabilities.capability import Capability, Kind, McpFeatures, Priority
from waypost.capabilities.context import Caller, Context
from waypost.capabilities.registry import Registry
from waypost.documents.content import Whole
from waypost.documents.documents import HUB
from waypost.documents.functions import TRIGGER_TYPES
from waypost.documents.ports import Data
from waypost.documents.uris import INDEX_URI, skill_uri
from waypost.errors import InvocationFailed, UnknownPrompt, UnknownResource, WaypostError
from waypost.loops import running_loop
from waypost.runtime.component import Component
from waypost.wire.content import BlobContents, Contents, TextContents
from waypost.wire.definitions import PromptDefinition, ResourceDefinition, TemplateDefinition
from waypost.workers.frames import RegisterTrigger, TriggerRegistrationResult, read_failure
from waypost.workers.functions import DEFAULT, Call, Function, hosted
from waypost.workers.triggers import HubListener
from waypost.workers.workers import Workers

if TYPE_CHECKING:
    from waypost.runtime.core import Core


LISTS: Final = {
    "skills::resources-list": "resources",
    "skills::resources-templates": "resourceTemplates",
    "prompts::mcp-list": "prompts",
}
"""The functions that list something, and where in their answers it is."""
_READ: Final = "skills::resources-read"
_GET: Final = "prompts::mcp-get"
_NOT_FOUND: Final = "not found"
"""How a registry says that there is no such thing; functions of workers have no code for it."""
_log: Final = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[str, Data, Caller], Awaitable[Any]]
"""Calls a function of the registry on somebody's behalf."""


def rows_of(function_id: str, answer: Any, ask: Ask) -> Iterator[Capability]:
    """The rows for what a function listed; what makes no sense is told and left out."""
    listed = answer.get(LISTS[function_id]) if isinstance(answer, dict) else None
    for told in listed if isinstance(listed, list) else ():
        try:
            yield _MAKERS[function_id](told, ask)
        except msgspec.ValidationError as error:
            _log.warning("%s lists something that is left out: %s", function_id, error)


def _resource(told: Any, ask: Ask) -> Capability:
    definition = msgspec.convert(told, ResourceDefinition)

    async def read(_: Data, context: Context) -> list[Contents]:
        return await _contents(definition.uri, ask, context.caller)

    return Capability(
        kind=Kind.RESOURCE,
        id=definition.uri,
        definition=definition,
        handler=read,
        is_async=True,
        mcp=McpFeatures(subscribable=True),
    )


def _template(told: Any, ask: Ask) -> Capability:
    definition = msgspec.convert(told, TemplateDefinition)
    template = definition.uri_template
    beginning = template.partition("{")[0]

    async def read(given: Data, context: Context) -> list[Contents]:
        return await _contents(given["uri"], ask, context.caller)

    return Capability(
        kind=Kind.TEMPLATE,
        id=template,
        definition=definition,
        handler=read,
        is_async=True,
        mcp=McpFeatures(template=Whole(template, lambda uri: uri.startswith(beginning)), subscribable=True),
    )


def _prompt(told: Any, ask: Ask) -> Capability:
    definition = msgspec.convert(told, PromptDefinition)

    async def write(arguments: Data, context: Context) -> Any:
        try:
            answer = await ask(_GET, {"name": definition.name, "arguments": arguments}, context.caller)
        except InvocationFailed as error:
            raise UnknownPrompt(error.message) if _NOT_FOUND in error.message else error from None
        return answer.get("messages") if isinstance(answer, dict) else answer

    return Capability(kind=Kind.PROMPT, id=definition.name, definition=definition, handler=write, is_async=True)


async def _contents(uri: str, ask: Ask, caller: Caller) -> list[Contents]:
    try:
        answer = await ask(_READ, {"uri": uri}, caller)
    except InvocationFailed as error:
        raise UnknownResource(uri, error.message) if _NOT_FOUND in error.message else error from None
    parts = answer.get("contents") if isinstance(answer, dict) else None
    if not isinstance(parts, list):
        raise InvocationFailed(f"{_READ} answered something that has no contents.")
    try:
        return [_part(one) for one in parts]
    except msgspec.ValidationError as error:
        raise InvocationFailed(f"{_READ} answered contents that cannot be used: {error}.") from None


def _part(told: Any) -> Contents:
    if isinstance(told, dict) and "blob" in told:
        return msgspec.convert(told, BlobContents)
    return msgspec.convert(told, TextContents)


_MAKERS: Final = dict(zip(LISTS, (_resource, _template, _prompt), strict=True))


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
        self._lists: dict[str, Function] = {}
        self._stirred = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._problem = ""
        self._ear = HubListener("waypost", HUB, _refused)
        workers.host([hosted(_HEARS, self._heard, metadata={"internal": True})])

    async def start(self, core: Core) -> None:
        """Look for a registry from now on."""
        self._workers.on_change = self._look
        for kind in TRIGGER_TYPES.values():
            self._workers.bind(self._ear, RegisterTrigger(f"waypost:{kind.id}", kind.id, _HEARS))

    async def stop(self) -> None:
        """Show nothing any more."""
        self._workers.on_change = lambda: None
        self._workers.triggers.unbind_all(self._ear)
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        for function_id in LISTS:
            self._show(function_id, [])
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

    async def _listed(self, function_id: str) -> list[Capability]:
        function = self._lists.get(function_id)
        if function is None:
            return []
        answer = await self._call(function_id, {}, HUB)
        owner = None if function.owner is None else function.owner.owner
        rows = {(row.kind, row.id): row for row in rows_of(function_id, answer, self._call)}
        return [replace(row, owner=owner, priority=Priority.WORKER) for row in rows.values()]

    async def _call(self, function_id: str, payload: Data, caller: Caller) -> Any:
        within = self._workers.settings.state_timeout + _MORE
        return await self._workers.trigger(function_id, payload, caller, within)

    def _show(self, function_id: str, rows: list[Capability]) -> None:
        """Publish the rows of a list in place of those before; one whose name the hub has itself is left out."""
        self._registry.offer(f"delegated/{function_id}", rows, Priority.WORKER)


def _refused(message: Struct) -> None:
    """Tell in the log that a registry does not say when something changes."""
    if isinstance(message, TriggerRegistrationResult) and (failure := read_failure(message.error)) is not None:
        _log.warning("changes of %s are not heard of: %s", message.trigger_type, failure.message)
