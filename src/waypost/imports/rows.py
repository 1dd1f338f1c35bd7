"""Rows of the registry for what upstream servers list, and their handlers.

Each handler forwards a request to its server and returns the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from waypost.capabilities.capability import (
    GATEWAY_TOOLS,
    Capability,
    HeaderParameter,
    Kind,
    McpFeatures,
    Metadata,
    Priority,
    check_name,
    fold_name,
    is_readable_hint,
    is_readable_icon,
    read_header_parameters,
)
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import MAX_URI_CHARACTERS, UriTemplate
from waypost.capabilities.results import Result
from waypost.capabilities.schemas.forms import OpenForm
from waypost.capabilities.schemas.validators import check_limits
from waypost.config.models import Import
from waypost.errors import (
    CapabilityNotSupported,
    DefinitionError,
    InvalidParams,
    MethodNotFound,
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
from waypost.imports.sources import (
    MARK,
    NAMED_BY,
    TOOL,
    Data,
    Held,
    Selection,
    Source,
    escape_hidden,
    escape_prose,
    pin_key,
)
from waypost.loops import running_loop
from waypost.redaction import hide, redacted
from waypost.upstreams.client import requires_task, task_in
from waypost.upstreams.pool import ProgressReporter, Upstreams
from waypost.wire.content import BlobContents, Contents, Text, TextContents
from waypost.wire.definitions import (
    Definition,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
    ToolExecution,
)
from waypost.wire.params import CLIENT_CAPABILITIES, LOG_LEVEL, LOG_LEVELS
from waypost.wire.versions import V2025_11_25, is_modern
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MAX_EXPRESSIONS: Final = 32
_SEPARATOR: Final = re.compile(r"[/?#]")


class ForeignTemplate(UriTemplate):
    """Matches the URIs that a server's template can expand to, without taking its variables apart."""

    def __init__(self, template: str) -> None:
        self.template = template
        literals = _EXPRESSION.split(template)
        self._expressions = literals[1::2]
        self.beginning, *self._literals = literals[::2]
        self.variables = ()
        if not _SCHEME.match(self.beginning):
            raise DefinitionError("its URI template does not begin with a scheme.")
        if len(template) > MAX_URI_CHARACTERS or len(self._expressions) > _MAX_EXPRESSIONS:
            raise DefinitionError("its URI template is too long.")

    def match(self, uri: str) -> dict[str, str] | None:
        """The URI itself, if the template can expand to it."""
        if len(uri) > MAX_URI_CHARACTERS or not uri.startswith(self.beginning):
            return None
        place = len(self.beginning)
        for index, (expression, literal) in enumerate(zip(self._expressions, self._literals, strict=True)):
            is_last = index == len(self._literals) - 1
            if is_last and not uri.endswith(literal):
                return None
            end = max(place, len(uri) - len(literal)) if is_last else uri.find(literal, place)
            if end < 0 or not _fits(expression, uri[place:end]):
                return None
            place = end + len(literal)
        return {"uri": uri} if place == len(uri) else None


def _fits(expression: str, value: str) -> bool:
    """Whether an expression can expand to a value; a plain one holds no separators."""
    plain = expression[:1].isalnum() or expression[:1] in ("_", "%")
    return bool(value) and _SEPARATOR.search(value) is None if plain else True


FOREIGN: Final = "upstream:"
"""The prefix of the owner of imported rows, before the name of the connection."""
_RESERVED: Final = {fold_name(name) for name in GATEWAY_TOOLS}
_KINDS: Final = {TOOL: Kind.TOOL, "prompt": Kind.PROMPT, "resource": Kind.RESOURCE, "template": Kind.TEMPLATE}
Defined = TypeVar("Defined", ToolDefinition, PromptDefinition, ResourceDefinition, TemplateDefinition)


def build_rows(source: Source, selection: Selection, handlers: Handlers) -> dict[str, Capability]:
    """The rows of a selection, by their pin keys; notes in the selection why others are left out.

    Which names they are published under is decided by the registry.
    """
    rows: dict[str, Capability] = {}
    selection.problems = problems = {}
    if source.manifest is None:
        return rows
    listed = source.manifest.lists
    settings = selection.settings
    known = {one["name"] for one in (*listed[TOOL], *listed["prompt"])} if settings.include else set()
    for missing in [name for name in settings.include if name not in known]:
        problems[missing] = "The server has no such tool or prompt."
    earlier = {row.id for other in source.selections[: selection.index] for row in other.rows.values()}
    for noun in _KINDS:
        looks: dict[str, str] = {}
        for definition in _select(selection, listed, noun):
            own = definition[NAMED_BY[noun]]
            key = pin_key(noun, own)
            has_name = noun in (TOOL, "prompt")
            name = f"{settings.prefix or source.name}.{own}" if has_name else own
            look = fold_name(name) if has_name else name
            if name in earlier:
                problems[key] = f"{name} comes with an earlier import of {source.name}."
            elif noun == TOOL and look in _RESERVED:
                problems[key] = f"{name} can be mistaken for a tool of the gateway."
            elif look in looks:
                problems[key] = f"{name} can be mistaken for {looks[look]}."
            else:
                try:
                    both = handlers.build(source, selection, noun, own)
                    row = _build_row(source, settings, noun, definition, name, both)
                except (DefinitionError, msgspec.ValidationError) as error:
                    problems[key] = f"{name} cannot be offered: {error}"
                    continue
                looks[look] = name
                rows[key] = _keep_row(selection.rows.get(key), row)
    return rows


def _select(selection: Selection, listed: Mapping[str, list[Data]], noun: str) -> list[Data]:
    """The definitions of one list that an import wants."""
    settings = selection.settings
    if noun in ("resource", "template"):
        wanted = listed[noun] if selection.has_resources else []
        return [one for one in wanted if one.get("name") not in settings.exclude]
    wanted = [one for one in listed[noun] if not settings.include or one["name"] in settings.include]
    return [one for one in wanted if one["name"] not in settings.exclude]


def _keep_row(old: Capability | None, new: Capability) -> Capability:
    """The old row where the new one is equal, so that caches by identity stay valid."""
    if old is None or (old.id, old.metadata, old.definition) != (new.id, new.metadata, new.definition):
        return new
    return old if old.mcp.subscribable == new.mcp.subscribable else new


def _build_row(
    source: Source, settings: Import, noun: str, definition: Data, name: str, handlers: tuple[Handler, Handler | None]
) -> Capability:
    prefix = settings.prefix or source.name
    held = source.held.get(pin_key(noun, definition[NAMED_BY[noun]])) if settings.trust != "off" else None
    is_out = held is not None and settings.trust == "quarantine"
    shown, template = _build_definition(noun, definition, name, prefix, held, is_out)
    form = OpenForm()  # the server checks the arguments: its schema may have changed since it was listed
    headers: tuple[HeaderParameter, ...] = ()
    task = "forbidden"
    if isinstance(shown, ToolDefinition):
        form.schema, headers = shown.input_schema, read_header_parameters(shown.input_schema)
        # A task of the hub outlives the deadline of a call, and so keeps the result of a task of the server.
        if source.manifest is not None and source.manifest.has_tasks and not is_out:
            task = "optional"
            shown = msgspec.structs.replace(shown, execution=ToolExecution(task))
    return Capability(
        kind=_KINDS[noun],
        id=name,
        definition=shown,
        handler=handlers[0],
        is_async=True,
        arguments=form,
        owner=f"{FOREIGN}{source.name}",
        priority=Priority.IMPORT,
        metadata=Metadata(hidden=is_out, tags=tuple(settings.tags)),
        mcp=McpFeatures(
            task=task,
            headers=headers,
            template=template,
            subscribable=bool(source.manifest and source.manifest.is_subscribable) and noun in ("resource", "template"),
            completer=handlers[1],
        ),
    )


def _build_definition(
    noun: str, definition: Data, name: str, prefix: str, held: Held | None, is_out: bool
) -> tuple[Definition, UriTemplate | None]:
    """The definition as clients see it: only its name while it is quarantined."""
    if noun == TOOL:
        check_name(name)
        return ToolDefinition(name) if is_out else _build_tool(definition, name, held), None
    if noun == "prompt":
        check_name(name)
        if is_out:
            return PromptDefinition(name), None
        return msgspec.structs.replace(_convert(definition, PromptDefinition, held), name=name), None
    if noun == "resource":
        if is_out:
            return ResourceDefinition(name, name), None
        return _show_origin(_convert(definition, ResourceDefinition, held), prefix), None
    template = ForeignTemplate(name)
    if is_out:
        return TemplateDefinition(name, name), template
    return _show_origin(_convert(definition, TemplateDefinition, held), prefix), template


def _build_tool(definition: Data, name: str, held: Held | None) -> ToolDefinition:
    given = _convert(definition, ToolDefinition, held)
    if given.input_schema.get("type", "object") != "object":
        raise DefinitionError('the root type of its input schema is not "object".')
    # The hub does not compile these schemas, but clients may, and a hostile one could exhaust them.
    check_limits(given.input_schema)
    if isinstance(given.output_schema, dict):
        check_limits(given.output_schema)
    hints = given.annotations or {}
    readable = {key: value for key, value in hints.items() if is_readable_hint(key, value)}
    return msgspec.structs.replace(given, name=name, execution=UNSET, annotations=readable or UNSET)


def _show_origin(given: Any, prefix: str) -> Any:
    """A resource whose name and title show the server that it comes from."""
    title = UNSET if given.title is UNSET else f"{prefix}: {given.title}"
    return msgspec.structs.replace(given, name=f"{prefix}.{escape_hidden(given.name)}", title=title)


def _convert(definition: Data, kind: type[Defined], held: Held | None) -> Defined:
    present = {key: value for key, value in definition.items() if value is not None}
    given = msgspec.convert(escape_prose(present), kind)
    # Only the hub sets the mark: a server could otherwise forge it, or hide it behind its own.
    meta = {} if given.meta is UNSET else {key: value for key, value in given.meta.items() if key != MARK}
    if held is not None:
        meta[MARK] = held.why
    icons = [icon for icon in given.icons or () if is_readable_icon(icon)]
    return msgspec.structs.replace(given, icons=icons or UNSET, meta=meta or UNSET)


_CONNECTION_META: Final = "io.modelcontextprotocol/"
"""The prefix of entries of `_meta` that are about one connection and not about the answer."""
_TEXT_BLOCK: Final = {"type", "text"}
_MAX_ROUNDS: Final = 16
_MAX_QUESTIONS: Final = 32
_MAX_VALUES: Final = 100
_INPUT_REQUIRED: Final = "input_required"
# Sessions have -32002 for this; 2026-07-28 has no code of its own and answers -32602.
_NOT_FOUND: Final = (-32002, InvalidParams.code)


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

    def build(self, source: Source, selection: Selection, noun: str, own: str) -> tuple[Handler, Handler | None]:
        """The handler and the completer of a row; `own` is the server's name for it."""
        admit = partial(self._admit, source, selection, pin_key(noun, own), own)
        match noun:
            case "tool":
                return self._build_tool(source, own, admit), None
            case "prompt":
                ref = {"type": "ref/prompt", "name": own}
                return self._build_prompt(source, own, admit), self._build_completer(source, ref, admit)
            case "template":
                ref = {"type": "ref/resource", "uri": own}
                return self._build_resource(source, own, admit), self._build_completer(source, ref, admit)
            case _:
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
                kind = InvalidParams if error.code == InvalidParams.code else ToolError
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
                if error.code == MethodNotFound.code:
                    return {"values": []}
                refusal = InvalidParams if error.code == InvalidParams.code else ToolError
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
        # Once in every session: a server that was started again may offer something else under the same name.
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
                await relay.flush()  # what the server reported before its answer arrives before it
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
        if len(questions) > _MAX_QUESTIONS:
            raise RemoteError(f"The server asked {len(questions)} questions at once; at most {_MAX_QUESTIONS}.", -32000)
        asking = {
            key: running_loop().create_task(
                ask_caller(self.ctx, str(one["method"]), one.get("params") or {}, f"{name}.{key}")
            )
            for key, one in questions.items()
        }
        try:
            await asyncio.gather(*asking.values())
            return {key: one.result() for key, one in asking.items()}
        # None of them may outlive the request, which an exception ends where a stateless client has to be asked.
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
            return PageNeeded(message, hide(error.data, secrets))
        return RemoteError(message, error.code)


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
