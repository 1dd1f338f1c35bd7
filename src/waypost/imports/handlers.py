"""Handlers of imported tools, prompts and resources: each forwards a request to its server and returns the answer."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from waypost.capabilities.capability import Kind
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
    ABILITIES,
    ClientRelay,
    Complete,
    Pages,
    SuspendedCall,
    SuspendedCalls,
    ask_caller,
    name_in_run,
)
from waypost.imports.rows import FOREIGN
from waypost.imports.sources import Selection, Source
from waypost.imports.trust import pin_key
from waypost.loops import running_loop
from waypost.redaction import redacted, without
from waypost.upstreams.pool import ProgressReporter, Upstreams
from waypost.upstreams.tasks import requires_task, task_in
from waypost.wire.content import BlobContents, Contents, Text, TextContents
from waypost.wire.params import CLIENT_CAPABILITIES, LOG_LEVEL, LOG_LEVELS
from waypost.wire.versions import V2025_11_25, is_modern
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY

_CONNECTION_META: Final = "io.modelcontextprotocol/"
"""The prefix of entries of `_meta` that are about one connection and not about the answer."""
_TEXT_BLOCK: Final = {"type", "text"}
_MAX_ROUNDS: Final = 16
_MAX_VALUES: Final = 100
_INPUT_REQUIRED: Final = "input_required"
_INVALID_PARAMS: Final = -32602
_METHOD_NOT_FOUND: Final = -32601
_NOT_FOUND: Final = (-32002, _INVALID_PARAMS)
_NOUNS: Final = {Kind.TOOL: "tool", Kind.PROMPT: "prompt", Kind.RESOURCE: "resource", Kind.TEMPLATE: "template"}

Data = dict[str, Any]


class PageNeeded(ProtocolError):
    """A user has to open a page first."""

    code = -32042


class _Completion(msgspec.Struct, rename="camel"):
    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class Handlers:
    """Builds handlers; `refresh` waits until it is known what a server offers now."""

    def __init__(self, registry: Registry, upstreams: Upstreams, refresh: Callable[[Source], Awaitable[None]]) -> None:
        self.upstreams = upstreams
        self.suspended = SuspendedCalls()
        self.pages = Pages()
        self._registry = registry
        self._refresh = refresh

    def build(self, source: Source, selection: Selection, kind: Kind, own: str) -> tuple[Handler, Handler | None]:
        """The handler and the completer of a row; `own` is the server's name for it."""
        admit = partial(self._admit, source, selection, pin_key(_NOUNS[kind], own), own)
        match kind:
            case Kind.TOOL:
                return self._build_tool(source, own, admit), None
            case Kind.PROMPT:
                ref = {"type": "ref/prompt", "name": own}
                return self._build_prompt(source, own, admit), self._build_completer(source, ref, admit)
            case Kind.TEMPLATE:
                ref = {"type": "ref/resource", "uri": own}
                return self._build_resource(source, own, admit), self._build_completer(source, ref, admit)
            case Kind.RESOURCE:
                return self._build_resource(source, own, admit), None

    def _build_tool(self, source: Source, own: str, admit: Callable[[], Awaitable[None]]) -> Handler:
        async def call(arguments: Data, ctx: Context) -> Result:
            await admit()
            request = ForwardedRequest(self, source, "tools/call", {"name": own, "arguments": arguments}, ctx)
            try:
                return to_result(await request.send())
            except RemoteError as error:
                raise ToolError(error.message) from None

        return call

    def _build_prompt(self, source: Source, own: str, admit: Callable[[], Awaitable[None]]) -> Handler:
        async def get(arguments: Data, ctx: Context) -> list[Any]:
            await admit()
            request = ForwardedRequest(self, source, "prompts/get", {"name": own, "arguments": arguments}, ctx)
            try:
                answer = await request.send()
            except RemoteError as error:
                kind = InvalidParams if error.code == _INVALID_PARAMS else ToolError
                raise kind(error.message) from None
            messages = answer.get("messages")
            if not isinstance(messages, list):
                raise _not_mcp_error(source)
            return messages

        return get

    def _build_resource(self, source: Source, own: str, admit: Callable[[], Awaitable[None]]) -> Handler:
        async def read(variables: Data, ctx: Context) -> list[Contents]:
            uri = str(variables.get("uri", own))
            # The hub itself may have got a resource at this URI after the template was imported; its own wins.
            if any(not (row.owner or "").startswith(FOREIGN) for row, _ in self._registry.resources(uri)):
                raise UnknownResource(uri)
            await admit()
            try:
                answer = await ForwardedRequest(self, source, "resources/read", {"uri": uri}, ctx).send()
            except RemoteError as error:
                if error.code in _NOT_FOUND:
                    raise UnknownResource(uri) from None
                raise ToolError(error.message) from None
            try:
                found: list[Contents] = [
                    msgspec.convert(one, BlobContents) if "blob" in one else msgspec.convert(one, TextContents)
                    for one in answer["contents"]
                ]
            except (msgspec.ValidationError, KeyError, TypeError):
                raise _not_mcp_error(source) from None
            if not found:
                raise UnknownResource(uri)
            return found

        return read

    def _build_completer(self, source: Source, ref: Data, admit: Callable[[], Awaitable[None]]) -> Handler:
        async def complete(argument: Data, ctx: Context) -> Data:
            await admit()
            typed = {"name": argument["name"], "value": argument["value"]}
            params = {"ref": ref, "argument": typed} | {one: argument[one] for one in argument if one not in typed}
            try:
                answer = await self.upstreams.complete(source.name, params, ctx.principal.id)
                given = msgspec.convert(answer["completion"], _Completion)
            except OSError as error:
                raise ToolError(redacted(str(error), source.secrets)) from None
            except RemoteError as error:
                if error.code == _METHOD_NOT_FOUND:
                    return {"values": []}
                refusal = InvalidParams if error.code == _INVALID_PARAMS else ToolError
                raise refusal(redacted(error.message, source.secrets)) from None
            except (msgspec.ValidationError, KeyError, TypeError):
                raise _not_mcp_error(source) from None
            if len(given.values) > _MAX_VALUES:
                given.values, given.has_more = given.values[:_MAX_VALUES], True
            completion: Data = msgspec.to_builtins(given)
            return completion

        return complete

    async def _admit(self, source: Source, selection: Selection, key: str, own: str) -> None:
        """Refuse a definition that its server no longer offers, or that is held back."""
        refresh = source.refresh
        if refresh.listed_session != refresh.session or source.name not in self.upstreams.versions:
            await self._refresh(source)
        offer = selection.offers.get(key)
        if offer is None or offer.row is None:
            raise ToolError(f"{own} of {source.name} is gone: its server no longer offers it.")
        if offer.row.metadata.hidden:
            raise ToolError(source.explain_hold(key, offer.row.id))


@dataclass(slots=True)
class ForwardedRequest:
    """One request of a caller to a server."""

    handlers: Handlers
    source: Source
    method: str
    params: Data
    ctx: Context
    meta: Data = field(default_factory=dict)
    is_task_new: bool = False
    """Whether a task was started by this run of the caller's request, not by an earlier one."""

    async def send(self) -> Data:
        """The server's answer; raises its refusal, as a `RemoteError` without secrets of the configuration.

        How the server's questions reach the caller depends on both eras. A stateless server asks by its answer. One
        with a session asks while it works, and a stateless caller cannot be asked then: its call is suspended.
        """
        ctx, source = self.ctx, self.source
        caller = ctx.caller
        if key := ctx.idempotency_key:
            self.meta[IDEMPOTENCY_KEY] = key
        declared = caller.client_capabilities
        abilities = {name: declared[name] for name in ABILITIES if declared.get(name) is not None} if declared else {}
        try:
            if is_modern(self.handlers.upstreams.versions.get(source.name, "")):
                level = getattr(caller, "log_level", len(LOG_LEVELS))
                if level < len(LOG_LEVELS):
                    self.meta[LOG_LEVEL] = LOG_LEVELS[level]
                if abilities:
                    self.meta[CLIENT_CAPABILITIES] = abilities
                    answer = await self._send_in_rounds()
                else:
                    answer = await self._send_once(self.params)
            elif abilities and is_modern(caller.version):
                answer = await self.handlers.suspended.run(ctx, self._name(), self._send_suspended)
            else:
                answer = await self._send_once(self.params)
        except OSError as error:
            raise ToolError(redacted(str(error), source.secrets)) from None
        except RemoteError as error:
            raise self._to_error(error) from None
        if answer.get("resultType", "complete") != "complete":
            unsupported = f'The connection "{source.name}" requested input that this client does not support.'
            raise RemoteError(unsupported, -32000)
        return answer

    async def _send_once(self, params: Data, *, waits: bool = True) -> Data:
        """The answer to one request; with `waits`, the outcome of a task that it starts."""
        caller = self.ctx.caller
        relay = ClientRelay(self.ctx, self._remember_page)
        try:
            answer = await self.handlers.upstreams.request(
                self.source.name,
                self.method,
                params,
                self.meta,
                relay.progress if caller.wants_progress else None,
                relay,
                caller.principal.id,
                waits=waits,
                within=math.inf,  # the pipeline has a deadline for the handler, which stops while a user is asked
            )
            if relay.is_used:
                await relay.flush()
            return answer
        finally:
            if relay.is_used:
                await relay.stop()

    async def _send_suspended(self, call: SuspendedCall) -> Data:
        return await self.handlers.upstreams.request(
            self.source.name, self.method, self.params, self.meta, call.progress, call, self.ctx.principal.id
        )

    async def _send_in_rounds(self) -> Data:
        """Answer the questions of a stateless server until it has none.

        Each round is a step that is remembered: when the caller's request runs again, with answers of its client, the
        rounds before are not sent again.
        """
        name, given = self._name(), self.params
        for number in range(_MAX_ROUNDS):
            try:
                question = await self.ctx.caller.once(f"{name}.{number}", partial(self._send_round, number, given))
            except Complete as complete:
                return complete.answer
            if (task := task_in(question)) is not None:
                return await self._wait_for_task(task, f"{name}.{number}")
            if question.get("resultType", "complete") != _INPUT_REQUIRED:
                return dict(question)
            answers = await self._ask_all(question.get("inputRequests") or {}, f"{name}.{number}")
            given = {**self.params, "inputResponses": answers}
            if "requestState" in question:
                given["requestState"] = question["requestState"]
        raise RemoteError(f"The server asked {_MAX_ROUNDS} times without an answer of its own.", -32000)

    async def _send_round(self, number: int, given: Data) -> Data:
        """The server's answer; raises `Complete` for an answer at once, which need not be remembered."""
        answer = await self._send_once(given, waits=False)
        self.is_task_new = True
        if not number and answer.get("resultType") != _INPUT_REQUIRED and task_in(answer) is None:
            raise Complete(answer)
        return answer

    async def _wait_for_task(self, task: Data, name: str) -> Data:
        """The outcome of a task of a stateless server; one of an earlier run is polled at once."""
        relay = ClientRelay(self.ctx, self._remember_page)
        wants_progress = self.ctx.caller.wants_progress
        try:
            answer = await self.handlers.upstreams.wait_for_task(
                self.source.name,
                task if self.is_task_new else {**task, "pollIntervalMs": 0},
                self.meta,
                reporter=ProgressReporter(relay.progress) if wants_progress else None,
                downstream=relay,
                principal=self.ctx.principal.id,
                ask=partial(self._ask_all, name=name),
            )
            await relay.flush()
            return answer
        finally:
            await relay.stop()

    async def _ask_all(self, questions: Mapping[str, Any], name: str) -> Data:
        """The answers of the caller's client to all questions, asked at once."""
        asking = {
            key: running_loop().create_task(
                ask_caller(self.ctx, str(one["method"]), one.get("params") or {}, f"{name}.{key}")
            )
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

    def _name(self) -> str:
        """A name for this request, the same whenever the caller's request runs again."""
        content = msgspec.json.encode([self.source.name, self.method, self.params], order="sorted")
        return name_in_run(self.ctx, f"upstream.{hashlib.sha256(content).hexdigest()[:16]}")

    def _remember_page(self, *pages: Any) -> None:
        """Have the server notify of pages that the caller's user is sent to."""
        if self.handlers.pages.remember(self.source.name, pages, self.ctx):
            self.handlers.upstreams.follow(self.source.name, self.ctx.principal.id)

    def _to_error(self, error: RemoteError) -> WaypostError:
        """A server's refusal as the caller gets it."""
        secrets, caller = self.source.secrets, self.ctx.caller
        data = error.data if isinstance(error.data, dict) else {}
        needed = data.get("requiredCapabilities")
        if error.code == CapabilityNotSupported.code and isinstance(needed, dict):
            if requires_task(error):  # although the hub declares tasks
                return RemoteError(f"{self.params.get('name')} only runs as a task, and none was begun.", error.code)
            return CapabilityNotSupported(needed)
        message = redacted(error.message, secrets)
        # Only this version has the error by which a client is sent to a page.
        can_open_pages = caller.version == V2025_11_25 and "url" in (
            caller.client_capabilities.get("elicitation") or ()
        )
        if error.code == PageNeeded.code and can_open_pages:
            pages = data.get("elicitations")
            self._remember_page(*(pages if isinstance(pages, list) else ()))
            return PageNeeded(message, _remove_secrets(error.data, secrets))
        return RemoteError(message, error.code)


def _remove_secrets(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return without(value, secrets)
    if isinstance(value, dict):
        return {name: _remove_secrets(member, secrets) for name, member in value.items()}
    return [_remove_secrets(item, secrets) for item in value] if isinstance(value, list) else value


def _not_mcp_error(source: Source) -> ToolError:
    return ToolError(f'What the connection "{source.name}" answered is not MCP.')


def to_result(answer: Mapping[str, Any]) -> Result:
    """A server's answer as a result. Plain text blocks become `Text`, which handlers of this hub can read."""
    meta = {name: value for name, value in (answer.get("_meta") or {}).items() if not name.startswith(_CONNECTION_META)}
    content: list[Any] = [
        Text(block["text"])
        if isinstance(block, dict)
        and block.keys() == _TEXT_BLOCK
        and block["type"] == "text"
        and type(block["text"]) is str
        else block
        for block in answer.get("content") or ()
    ]
    return Result(content, answer.get("structuredContent"), bool(answer.get("isError")), meta or None)
