"""Handlers of imported tools, prompts and resources, and the pages that upstream servers send users to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.errors import InvalidParams, RemoteError, ToolError, UnknownResource
from waypost.imports.forwarding import Forwarded, as_result
from waypost.imports.pages import Pages
from waypost.imports.rows import FOREIGN
from waypost.imports.sources import Source, key_of
from waypost.imports.suspended_calls import Parking
from waypost.redaction import redacted
from waypost.upstreams.pool import Upstreams
from waypost.wire.content import BlobContents, Contents, TextContents

_INVALID: Final = -32602
_NOT_KNOWN: Final = -32601
_MOST_VALUES: Final = 100
_NOT_FOUND: Final = (-32002, _INVALID)
_NOUNS: Final = {Kind.TOOL: "tool", Kind.PROMPT: "prompt", Kind.RESOURCE: "resource", Kind.TEMPLATE: "template"}

Data = dict[str, Any]


class _Completion(msgspec.Struct, rename="camel"):
    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class Handlers:
    """Makes handlers; `heard_of` waits until it is known what a server offers now."""

    def __init__(self, registry: Registry, upstreams: Upstreams, heard_of: Callable[[Source], Awaitable[None]]) -> None:
        self._registry = registry
        self._upstreams = upstreams
        self._heard_of = heard_of
        self.parking = Parking()
        self.pages = Pages()

    def of(self, source: Source, kind: Kind, own: str, name: str) -> tuple[Handler, Handler | None]:
        """The handler and the completer of a row: `own` is what the server calls it, `name` the row's id."""
        match kind:
            case Kind.TOOL:
                return self._tool(source, own, name), None
            case Kind.PROMPT:
                return self._prompt(source, own, name), self._completer(source, kind, own, name)
            case Kind.TEMPLATE:
                return self._resource(source, kind, own), self._completer(source, kind, own, name)
            case Kind.RESOURCE:
                return self._resource(source, kind, own), None

    def _tool(self, source: Source, own: str, name: str) -> Handler:
        async def call(arguments: Data, ctx: Context) -> Result:
            await self._admit(source, Kind.TOOL, own, name)
            try:
                return as_result(await self._sent(source, "tools/call", {"name": own, "arguments": arguments}, ctx))
            except RemoteError as error:
                raise ToolError(error.message) from None

        return call

    def _prompt(self, source: Source, own: str, name: str) -> Handler:
        async def get(arguments: Data, ctx: Context) -> list[Any]:
            await self._admit(source, Kind.PROMPT, own, name)
            try:
                answer = await self._sent(source, "prompts/get", {"name": own, "arguments": arguments}, ctx)
            except RemoteError as error:
                kind = InvalidParams if error.code == _INVALID else ToolError
                raise kind(error.message) from None
            messages = answer.get("messages")
            if not isinstance(messages, list):
                raise ToolError(f'What the connection "{source.name}" answered is not MCP.')
            return messages

        return get

    def _resource(self, source: Source, kind: Kind, own: str) -> Handler:
        async def read(variables: Data, ctx: Context) -> list[Contents]:
            uri = str(variables.get("uri", own))
            if self._is_ours(uri):
                raise UnknownResource(uri)
            await self._admit(source, kind, own, own)
            try:
                answer = await self._sent(source, "resources/read", {"uri": uri}, ctx)
            except RemoteError as error:
                if error.code in _NOT_FOUND:
                    raise UnknownResource(uri) from None
                raise ToolError(error.message) from None
            return _contents(answer, source, uri)

        return read

    def _completer(self, source: Source, kind: Kind, own: str, name: str) -> Handler:
        ref = {"type": "ref/prompt", "name": own} if kind is Kind.PROMPT else {"type": "ref/resource", "uri": own}

        async def complete(argument: Data, ctx: Context) -> Data:
            await self._admit(source, kind, own, name)
            typed = {"name": argument["name"], "value": argument["value"]}
            params = {"ref": ref, "argument": typed} | {one: argument[one] for one in argument if one not in typed}
            try:
                answer = await self._upstreams.complete(source.name, params, ctx.principal.id)
            except OSError as error:
                raise ToolError(redacted(str(error), source.secrets)) from None
            except RemoteError as error:
                if error.code == _NOT_KNOWN:
                    return {"values": []}
                refusal = InvalidParams if error.code == _INVALID else ToolError
                raise refusal(redacted(error.message, source.secrets)) from None
            return _completion(answer, source)

        return complete

    def _is_ours(self, uri: str) -> bool:
        """Whether the hub itself has something to read there, which came later."""
        return any(not (row.owner or "").startswith(FOREIGN) for row, _ in self._registry.resources(uri))

    async def _admit(self, source: Source, kind: Kind, own: str, name: str) -> None:
        """Refuse what is gone, or held back."""
        await self._heard_of(source)
        row: Capability | None = self._registry[kind].get(name)
        if row is None:
            raise ToolError(f"{name} is gone: its server no longer offers it.")
        if row.owner != f"{FOREIGN}{source.name}":
            raise ToolError(f"{name} is another server's by now; look at it again.")
        if row.metadata.hidden:
            raise ToolError(source.held_back(key_of(_NOUNS[kind], own), name))

    async def _sent(self, source: Source, method: str, params: Data, ctx: Context) -> Data:
        forwarded = Forwarded(self._upstreams, self.pages, source.name, method, params, ctx)
        return await forwarded.answer(self.parking, source.secrets)


def _completion(answer: Data, source: Source) -> Data:
    try:
        given = msgspec.convert(answer["completion"], _Completion)
    except (msgspec.ValidationError, KeyError, TypeError):
        raise ToolError(f'What the connection "{source.name}" answered is not MCP.') from None
    if len(given.values) > _MOST_VALUES:
        given.values, given.has_more = given.values[:_MOST_VALUES], True
    told: Data = msgspec.to_builtins(given)
    return told


def _contents(answer: Data, source: Source, uri: str) -> list[Contents]:
    try:
        found = [_part(one) for one in answer["contents"]]
    except (msgspec.ValidationError, KeyError, TypeError):
        raise ToolError(f'What the connection "{source.name}" answered is not MCP.') from None
    if not found:
        raise UnknownResource(uri)
    return found


def _part(one: Any) -> Contents:
    return msgspec.convert(one, BlobContents) if "blob" in one else msgspec.convert(one, TextContents)
