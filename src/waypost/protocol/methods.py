"""The methods of MCP but for tasks and skills, one function each: parameters and an exchange in, an answer out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.prompts import to_messages
from waypost.capabilities.resources import MAX_URI_CHARACTERS, to_contents
from waypost.capabilities.results import Result, encode_json, failure, to_result
from waypost.errors import (
    CapabilityNotSupported,
    DefinitionError,
    InsufficientScope,
    InvalidParams,
    MethodNotFound,
    UnknownResource,
)
from waypost.execution.deadline import Deadline
from waypost.execution.pipeline import check_output, error_result
from waypost.loops import maybe_await
from waypost.protocol.broadcast import Subscription
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange, parse_client_level
from waypost.protocol.lists import WIRE_KEYS, Page
from waypost.protocol.responses import EMPTY, URI_PREFIX, Answer
from waypost.protocol.session import session_of
from waypost.protocol.streams import EventStream
from waypost.protocol.task_methods import call_as_task, may_be_task, require_extension
from waypost.protocol.tasks import detailed_task
from waypost.stores.tasks import TaskRecord
from waypost.wire import downgrade, messages, params, versions
from waypost.wire.content import Text
from waypost.wire.messages import decode, encode, encode_lossy, replace_surrogates
from waypost.wire.params import SUBSCRIPTION_ID
from waypost.wire.versions import V2026_07_28

_MAX_COMPLETIONS: Final = 100
_MAX_SUBSCRIPTIONS: Final = 10_000


class _ToolResult(msgspec.Struct, rename="camel", omit_defaults=True):
    content: list[Any]
    structured_content: Any = UNSET
    is_error: bool = False


async def call_tool(engine: Engine, given: params.CallTool, exchange: Exchange) -> Answer:
    """`tools/call`"""
    tool = engine.registry.find_tool(given.name) if engine.registry.tools.tasked else None
    if tool is not None and may_be_task(engine, tool, given, exchange):
        return await call_as_task(engine, tool, given, exchange, partial(_call_for_task, engine, given))
    try:
        if engine.hooks("tool_call") is None:
            result = await engine.pipeline.call(given.name, given.arguments or {}, exchange, keep_raw=True)
        else:
            result = await _run_call(engine, given, exchange, None)
    except CapabilityNotSupported as error:
        if versions.is_modern(exchange.version):
            raise
        result = failure(error.message)
    answer = to_tool_answer(result, exchange.version)
    if engine.large_results.is_too_large(answer):
        return await _store_large_result(engine, answer, given.name, exchange, failed=result.is_error)
    return answer


async def _store_large_result(engine: Engine, answer: Answer, name: str, exchange: Exchange, *, failed: bool) -> Answer:
    """Store a result over the limit; the answer links to it, and is an error where the result is one."""
    notice = await engine.large_results.keep(answer, name, exchange.principal)
    tool = engine.registry.find_tool(name)
    # Where a tool promised structured content, only an error may come without it.
    promised = tool is not None and getattr(tool.definition, "output_schema", UNSET) is not UNSET
    notice.is_error = notice.is_error or promised or failed
    return to_tool_answer(notice, exchange.version)


async def _call_for_task(engine: Engine, given: params.CallTool, exchange: Exchange, longest: float) -> dict[str, Any]:
    """The result of a call that may become a task, as data."""
    result = await _run_call(engine, given, exchange, longest)
    answer = to_tool_answer(result, exchange.version)
    if engine.large_results.is_too_large(answer):
        answer = await _store_large_result(engine, answer, given.name, exchange, failed=result.is_error)
    data: dict[str, Any] = decode(answer.body)
    if versions.is_modern(exchange.version):
        data["resultType"] = "complete"
    return data if answer.meta is None else {**data, "_meta": answer.meta}


async def _run_call(engine: Engine, given: params.CallTool, exchange: Exchange, longest: float | None) -> Result:
    """The result of a call, from the hook `on_tool_call` if there is one."""
    hook = engine.hooks("tool_call")
    arguments = given.arguments or {}
    if hook is None:
        return await engine.pipeline.call(given.name, arguments, exchange, longest=longest, keep_raw=True)
    tool = engine.registry.find_tool(given.name)
    try:
        with Deadline((tool and tool.timeout) or longest or engine.pipeline.timeout) as deadline:
            result = to_result(await maybe_await(hook(given.name, arguments, engine.context(exchange, deadline))))
        if tool is not None:
            check_output(tool, result)
        return result
    except (Exception, asyncio.CancelledError, SystemExit) as error:
        return error_result(given.name, error, engine.pipeline.secrets)


def to_tool_answer(result: Result, version: str) -> Answer:
    """The answer to `tools/call` for a client of `version`."""
    if version == versions.V2026_07_28:
        content: list[Any] = list(result.content)
        structured = UNSET if result.structured is None else result.structured
    else:
        content = [downgrade.block(block, version) for block in result.content]  # type: ignore[arg-type]  # shaped before
        structured = downgrade.structured(result.structured, version)
        if not content and structured is UNSET and result.structured is not None:
            content = [Text(encode_json(result.structured).decode())]
    body = _ToolResult(content, structured, result.is_error)
    try:
        return Answer(encode_json(body), result.meta)
    except UnicodeEncodeError:
        body.content = replace_surrogates(msgspec.to_builtins(content))
        return Answer(encode_json(body), result.meta)


def list_method(kind: Kind) -> Callable[[Engine, params.List, Exchange], Awaitable[Answer]]:
    """`tools/list`, `prompts/list`, `resources/list` or `resources/templates/list`"""

    async def run(engine: Engine, given: params.List, exchange: Exchange) -> Answer:
        hook = engine.hooks(f"list_{kind.value}")
        if hook is None and (engine.registry[kind].scoped or engine.hides):
            shown = engine.lists.select(kind, given.cursor, shows=partial(engine.can_see, exchange.principal))
            return Answer(engine.lists.encode(kind, shown, exchange.version), private=True)
        if hook is None:
            return Answer(engine.lists.page(kind, given.cursor, exchange.version))
        page = to_page(kind, await maybe_await(hook(given.cursor, engine.context(exchange))))
        return Answer(engine.lists.encode(kind, page, exchange.version), private=True)

    return run


def to_page(kind: Kind, listed: Any) -> Page:
    """A page from what a list hook returned: a page, items, items and a cursor, or the result of the method."""
    if isinstance(listed, Page):
        return listed
    if isinstance(listed, Mapping) and isinstance(listed.get(WIRE_KEYS[kind]), Iterable):
        page = Page(list(listed[WIRE_KEYS[kind]]), listed.get("nextCursor"))
    elif isinstance(listed, tuple) and len(listed) == 2 and isinstance(listed[1], str | None):
        page = Page(list(listed[0]), listed[1])
    else:
        page = Page(list(listed) if isinstance(listed, Iterable) else [listed])
    if not all(isinstance(item, (Capability, Mapping, msgspec.Struct)) for item in page.items):
        raise DefinitionError(f"on_list_{kind.value} returns definitions, with a cursor if there are more of them.")
    return page


async def read_resource(engine: Engine, given: params.ReadResource, exchange: Exchange) -> Answer:
    """`resources/read`"""
    hook = engine.hooks("resource_read")
    if given.uri.startswith(URI_PREFIX):
        read = await engine.large_results.read(given.uri, exchange.principal)
    elif not engine.profile.offers("resources"):
        raise MethodNotFound("Method not found: resources/read")
    elif hook is None:
        read = await engine.pipeline.read(given.uri, exchange)
    else:
        read = to_contents(await maybe_await(hook(given.uri, engine.context(exchange))), given.uri, None)
    contents = [downgrade.contents(part, exchange.version) for part in read]
    return Answer(encode_lossy({"contents": contents}), private=True)


async def get_prompt(engine: Engine, given: params.GetPrompt, exchange: Exchange) -> Answer:
    """`prompts/get`"""
    hook = engine.hooks("prompt_get")
    arguments = given.arguments or {}
    if hook is None:
        written = await engine.pipeline.prompt(given.name, arguments, exchange)
    else:
        written = to_messages(await maybe_await(hook(given.name, arguments, engine.context(exchange))))
    body: dict[str, Any] = {
        "messages": [
            {"role": message.role, "content": downgrade.block(message.content, exchange.version)} for message in written
        ]
    }
    prompt = engine.registry[Kind.PROMPT].get(given.name)
    if prompt is not None and prompt.definition.description:
        body["description"] = prompt.definition.description
    return Answer(encode_lossy(body))


async def complete(engine: Engine, given: params.Complete, exchange: Exchange) -> Answer:
    """`completion/complete`"""
    context = {} if given.context is UNSET else {"context": {"arguments": given.context.arguments}}
    argument = {"name": given.argument.name, "value": given.argument.value, **context}
    hook = engine.hooks("completion")
    subject = _find_reference(engine, given.ref, must_exist=hook is None)
    if hook is None:
        found = await complete_argument(engine, subject, argument, exchange)
    else:
        found = _to_completion(list(await maybe_await(hook(subject, argument, engine.context(exchange)))))
    return Answer(encode({"completion": found}))


async def complete_argument(
    engine: Engine, subject: str, argument: Mapping[str, Any], caller: Caller
) -> dict[str, Any]:
    """Values for an argument being typed: from the target's completer, else the declared ones."""
    target = engine.registry[Kind.PROMPT].get(subject) or engine.registry[Kind.TEMPLATE].get(subject)
    if target is None or target.mcp.completer is None:
        return _to_completion(find_choices(engine, subject, argument))
    completer = replace(target, handler=target.mcp.completer, is_async=True)
    found: dict[str, Any] = await engine.pipeline.use(completer, argument, caller, engine.pipeline.timeout, "complete")
    return found


def _to_completion(values: list[str]) -> dict[str, Any]:
    shown = values[:_MAX_COMPLETIONS]
    return {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}


def _find_reference(engine: Engine, ref: params.Reference, *, must_exist: bool = True) -> str:
    """The name or URI a completion is about; a hook may complete for targets that are not registered."""
    if ref.type == "ref/prompt" and ref.name is not UNSET:
        return engine.registry.prompt(ref.name).id if must_exist else ref.name
    if ref.type == "ref/resource" and ref.uri is not UNSET:
        try:
            return (engine.registry[Kind.TEMPLATE].get(ref.uri) or engine.registry.resource(ref.uri)).id
        except UnknownResource:
            if must_exist:
                raise
            return ref.uri
    raise InvalidParams("A completion needs a ref: ref/prompt with a name or ref/resource with a uri.")


def find_choices(engine: Engine, subject: str, argument: Mapping[str, Any]) -> list[str]:
    """The declared values of an argument that begin with the given text."""
    target = engine.registry[Kind.PROMPT].get(subject) or engine.registry[Kind.TEMPLATE].get(subject)
    offered = () if target is None else target.mcp.choices.get(argument["name"], ())
    typed = str(argument["value"]).casefold()
    return [value for value in offered if value.casefold().startswith(typed)]


async def ping(_engine: Engine, _given: params.Params, _exchange: Exchange) -> Answer:
    """`ping`"""
    return EMPTY


async def set_level(_engine: Engine, given: params.SetLevel, exchange: Exchange) -> Answer:
    """`logging/setLevel`"""
    session_of(exchange).log_level = parse_client_level(given.level)
    await session_of(exchange).save()
    return EMPTY


async def subscribe(engine: Engine, given: params.Subscribe, exchange: Exchange) -> Answer:
    """`resources/subscribe`"""
    if not engine.profile.offers_subscriptions:
        raise MethodNotFound("Method not found: resources/subscribe")
    if len(given.uri) > MAX_URI_CHARACTERS:
        raise InvalidParams(f"A URI to subscribe to has at most {MAX_URI_CHARACTERS} characters.")
    _check_scopes(engine, given.uri, exchange)
    if len(session_of(exchange).subscriptions) >= _MAX_SUBSCRIPTIONS:
        raise InvalidParams(f"A session may subscribe to {_MAX_SUBSCRIPTIONS} resources; unsubscribe from some.")
    session_of(exchange).subscriptions.add(given.uri)
    engine.broadcast.subscriptions_changed()
    await session_of(exchange).save()
    return EMPTY


def _check_scopes(engine: Engine, uri: str, exchange: Exchange) -> None:
    """Refuse a resource that the caller's token does not reach; one that is not registered may come later."""
    rows = [row for row, _ in engine.registry.resources(uri)]
    granted = exchange.principal.scopes
    if rows and not any(row.is_open_to(granted) for row in rows):
        raise InsufficientScope(rows[0].scopes, granted)


async def unsubscribe(engine: Engine, given: params.Subscribe, exchange: Exchange) -> Answer:
    """`resources/unsubscribe`"""
    if not engine.profile.offers_subscriptions:
        raise MethodNotFound("Method not found: resources/unsubscribe")
    session_of(exchange).subscriptions.discard(given.uri)
    engine.broadcast.subscriptions_changed()
    await session_of(exchange).save()
    return EMPTY


_LISTEN_BACKLOG: Final = 1024


async def discover(engine: Engine, _given: params.Params, _exchange: Exchange) -> Answer:
    """`server/discover`"""
    body: dict[str, Any] = {
        "supportedVersions": list(engine.profile.versions),
        "capabilities": engine.profile.capabilities(V2026_07_28),
    }
    if engine.profile.instructions is not None:
        body["instructions"] = engine.profile.instructions
    return Answer(encode(body))


async def listen(engine: Engine, given: params.Listen, exchange: Exchange) -> Answer:
    """`subscriptions/listen`"""
    engine.sessions.check_not_revoked(exchange.principal)
    with engine.broadcast.hold_stream(exchange.principal):
        return await _follow_changes(engine, given, exchange)


async def _follow_changes(engine: Engine, given: params.Listen, exchange: Exchange) -> Answer:
    granted = await _narrow_filter(engine, given.notifications, exchange)
    stream = EventStream("listen", _LISTEN_BACKLOG, engine.settings.limits.max_stream_bytes, is_resumable=False)
    subscription = Subscription(exchange.request_id, granted, stream, exchange.principal)
    tag = {SUBSCRIPTION_ID: exchange.request_id}

    def notify(record: TaskRecord) -> None:
        if record.id in granted.task_ids:
            subscription.notify("notifications/tasks", **detailed_task(record))

    stops = (engine.broadcast.subscribe(subscription), engine.tasks.watch(notify))
    try:
        acknowledged = {"_meta": tag, "notifications": granted}
        await exchange.outlet.send(messages.notification("notifications/subscriptions/acknowledged", acknowledged))
        async for event in stream.follow(0):
            if event is not None:
                await exchange.outlet.send(event.message)
    finally:
        for stop in stops:
            stop()
    return Answer(EMPTY.body, tag)


async def _narrow_filter(engine: Engine, asked: params.ListenFilter, exchange: Exchange) -> params.ListenFilter:
    """The part of a filter that the declared capabilities cover and the caller may see."""
    return params.ListenFilter(
        tools_list_changed=asked.tools_list_changed and engine.profile.offers_list_changed("tools"),
        prompts_list_changed=asked.prompts_list_changed and engine.profile.offers_list_changed("prompts"),
        resources_list_changed=asked.resources_list_changed and engine.profile.offers_list_changed("resources"),
        resource_subscriptions=asked.resource_subscriptions if engine.profile.offers_subscriptions else [],
        task_ids=await _find_own_tasks(engine, asked.task_ids, exchange),
    )


async def _find_own_tasks(engine: Engine, asked: list[str], exchange: Exchange) -> list[str]:
    if not asked:
        return []
    require_extension(exchange)
    own = []
    for task_id in asked:
        with suppress(InvalidParams):
            own.append((await engine.tasks.find(task_id, exchange.principal)).id)
    return own
