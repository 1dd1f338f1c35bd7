"""Handlers of imported tools, prompts and resources: each forwards a request to its server and returns the answer."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.errors import (
    CapabilityNotSupported,
    InvalidParams,
    ProtocolError,
    RemoteError,
    ToolError,
    UnknownResource,
    WaypostError,
)
from waypost.imports.relay import (
    Complete,
    Pages,
    Parked,
    Parking,
    Passing,
    Reports,
    abilities_of,
    asked,
    log_level_of,
    name_in_run,
)
from waypost.imports.rows import FOREIGN
from waypost.imports.sources import Source
from waypost.imports.trust import key_of
from waypost.redaction import redacted, without
from waypost.upstreams.pool import ProgressReporter, Upstreams
from waypost.upstreams.tasks import requires_task, task_in
from waypost.upstreams.upstream import Progress
from waypost.wire.content import BlobContents, Contents, Text, TextContents
from waypost.wire.params import CLIENT_CAPABILITIES, LOG_LEVEL
from waypost.wire.versions import V2025_11_25, is_modern
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY

_OWN: Final = "io.modelcontextprotocol/"
"""How the entries of `_meta` begin that are about one connection and not about the answer."""
_PLAIN: Final = {"type", "text"}
_MOST_ROUNDS: Final = 16
_QUESTION: Final = "input_required"

Data = dict[str, Any]


class PageNeeded(ProtocolError):
    """A person has to open a page first."""

    code = -32042


class Forwarded:
    """One request of a caller to the server behind a connection."""

    def __init__(
        self, upstreams: Upstreams, pages: Pages, connection: str, method: str, params: Data, ctx: Context
    ) -> None:
        self._upstreams = upstreams
        self._pages = pages
        self._connection = connection
        self._method = method
        self._params = params
        self._ctx = ctx
        self._meta: Data = {IDEMPOTENCY_KEY: ctx.idempotency_key} if ctx.idempotency_key else {}
        self._is_begun_here = False

    async def answer(self, parking: Parking, secrets: Sequence[str]) -> Data:
        """What the server answers; its refusal is a `RemoteError`, without secrets of the configuration."""
        try:
            answer = await self._answer(parking)
        except OSError as error:
            raise ToolError(redacted(str(error), secrets)) from None
        except RemoteError as error:
            raise self._told(error, secrets) from None
        if answer.get("resultType", "complete") != "complete":
            raise RemoteError(f'The connection "{self._connection}" asks for what nobody here can give.', -32000)
        return answer

    def _told(self, error: RemoteError, secrets: Sequence[str]) -> WaypostError:
        """A server's refusal as the caller hears it."""
        needed = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
        if error.code == CapabilityNotSupported.code and isinstance(needed, dict):
            if requires_task(error):  # although it was told that tasks are known here
                return RemoteError(f"{self._params.get('name')} only runs as a task, and none was begun.", error.code)
            return CapabilityNotSupported(needed)
        message = redacted(error.message, secrets)
        if error.code == PageNeeded.code and self._can_open_pages:
            shown = error.data.get("elicitations") if isinstance(error.data, dict) else None
            self._show(*(shown if isinstance(shown, list) else ()))
            return PageNeeded(message, _discreet(error.data, secrets))
        return RemoteError(message, error.code)

    def _show(self, *pages: Any) -> None:
        """Hear of it when somebody was at pages that the caller is sent to."""
        if self._pages.show(self._connection, pages, self._ctx):
            self._upstreams.follow(self._connection, self._ctx.principal.id)

    @property
    def _can_open_pages(self) -> bool:
        """Whether the caller's client knows the error that asks for a page to be opened; only one version has it."""
        caller = self._ctx.caller
        return caller.version == V2025_11_25 and "url" in (caller.client_capabilities.get("elicitation") or ())

    async def _answer(self, parking: Parking) -> Data:
        abilities = abilities_of(self._ctx)
        if is_modern(self._upstreams.version(self._connection)):
            level = log_level_of(self._ctx)
            self._meta |= {} if level is None else {LOG_LEVEL: level}
            if abilities:
                self._meta[CLIENT_CAPABILITIES] = abilities
                return await self._in_rounds()
        elif abilities and is_modern(self._ctx.caller.version):
            return await parking.converse(self._ctx, self._name, self._parked)
        return await self._once(self._params)

    @property
    def _name(self) -> str:
        told = msgspec.json.encode([self._connection, self._method, self._params], order="sorted")
        return name_in_run(self._ctx, f"upstream.{hashlib.sha256(told).hexdigest()[:16]}")

    async def _once(self, params: Data, *, waits: bool = True) -> Data:
        """What the server says to one request, and with `waits` what a task comes to that it begins."""
        who = self._ctx.principal.id
        return await self._told_meanwhile(
            lambda take, passing: self._upstreams.request(
                self._connection, self._method, params, self._meta, take, passing, who, waits=waits
            )
        )

    async def _pursued(self, task: Data, name: str) -> Data:
        """What a task of a stateless server comes to; one that an earlier run began is looked at at once."""
        shown = task if self._is_begun_here else {**task, "pollIntervalMs": 0}
        return await self._told_meanwhile(
            lambda take, passing: self._upstreams.wait_for_task(
                self._connection,
                shown,
                self._meta,
                reporter=None if take is None else ProgressReporter(take),
                downstream=passing,
                principal=self._ctx.principal.id,
                ask=partial(self._asked, name=name),
            )
        )

    async def _told_meanwhile(self, work: Callable[[Progress | None, Passing], Awaitable[Data]]) -> Data:
        """Do something while the caller hears how far it is, and what the server remarks."""
        passing = Passing(self._ctx, self._show)
        reports = Reports(self._ctx) if self._ctx.caller.wants_progress else None
        try:
            answer = await work(None if reports is None else reports.take, passing)
            if reports is not None:
                await reports.delivered()
            await passing.remarks.delivered()
            return answer
        finally:
            if reports is not None:
                reports.stop()
            await passing.stop()

    async def _parked(self, parked: Parked) -> Data:
        return await self._upstreams.request(
            self._connection, self._method, self._params, self._meta, parked.report, parked, self._ctx.principal.id
        )

    async def _in_rounds(self) -> Data:
        """Answer the questions of a stateless server until it has none; an earlier run's are not asked for again."""
        name, given = self._name, self._params
        for number in range(_MOST_ROUNDS):
            try:
                question = await self._ctx.caller.once(f"{name}.{number}", partial(self._round, number, given))
            except Complete as complete:
                return complete.answer
            if (task := task_in(question)) is not None:
                return await self._pursued(task, f"{name}.{number}")
            if question.get("resultType", "complete") != _QUESTION:
                return dict(question)
            answers = await self._asked(question.get("inputRequests") or {}, f"{name}.{number}")
            given = {**self._params, "inputResponses": answers}
            if "requestState" in question:
                given["requestState"] = question["requestState"]
        raise RemoteError(f"The server asked {_MOST_ROUNDS} times without an answer of its own.", -32000)

    async def _round(self, number: int, given: Data) -> Data:
        """What the server says; an answer without any question before it need not be remembered."""
        answer = await self._once(given, waits=False)
        self._is_begun_here = True
        if not number and answer.get("resultType") != _QUESTION and task_in(answer) is None:
            raise Complete(answer)
        return answer

    async def _asked(self, questions: Mapping[str, Any], name: str) -> Data:
        """Ask the caller's client everything at once."""
        loop = asyncio.get_running_loop()
        asking = {
            key: loop.create_task(asked(self._ctx, str(one["method"]), one.get("params") or {}, f"{name}.{key}"))
            for key, one in questions.items()
        }
        try:
            await asyncio.gather(*asking.values())
            return {key: one.result() for key, one in asking.items()}
        finally:
            for one in asking.values():
                one.cancel()
            if asking:
                await asyncio.wait(asking.values())


def _discreet(value: Any, secrets: Sequence[str]) -> Any:
    """Data without secrets of the configuration."""
    if isinstance(value, str):
        return without(value, secrets)
    if isinstance(value, dict):
        return {name: _discreet(member, secrets) for name, member in value.items()}
    return [_discreet(item, secrets) for item in value] if isinstance(value, list) else value


def as_result(answer: Mapping[str, Any]) -> Result:
    """What a server answered, as it is."""
    meta = {name: value for name, value in (answer.get("_meta") or {}).items() if not name.startswith(_OWN)}
    content: list[Any] = [_block(block) for block in answer.get("content") or ()]
    return Result(content, answer.get("structuredContent"), bool(answer.get("isError")), meta or None)


def _block(block: Any) -> Any:
    """A block as it came; plain text is told apart so that others in this hub can read it."""
    if isinstance(block, dict) and block.keys() == _PLAIN and block["type"] == "text" and type(block["text"]) is str:
        return Text(block["text"])
    return block


_INVALID: Final = -32602
_NOT_KNOWN: Final = -32601
_MOST_VALUES: Final = 100
_NOT_FOUND: Final = (-32002, _INVALID)
_NOUNS: Final = {Kind.TOOL: "tool", Kind.PROMPT: "prompt", Kind.RESOURCE: "resource", Kind.TEMPLATE: "template"}


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
