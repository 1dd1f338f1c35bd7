"""Rows of the hub's registry for skills and prompts that a worker lists, reads and writes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, Context
from waypost.errors import InvocationFailed, UnknownPrompt, UnknownResource
from waypost.skills.content.capabilities import Whole
from waypost.skills.content.ports import Data
from waypost.wire.content import BlobContents, Contents, TextContents
from waypost.wire.definitions import PromptDefinition, ResourceDefinition, TemplateDefinition

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
        kind=Kind.RESOURCE, id=definition.uri, definition=definition, handler=read, is_async=True, subscribable=True
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
        template=Whole(template, lambda uri: uri.startswith(beginning)),
        subscribable=True,
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
