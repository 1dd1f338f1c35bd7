"""The methods of MCP: a function each, a table of those of both eras, and the way from a name to the answer.

The functions for tasks stand in a module of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from sys import modules
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, Context
from waypost.capabilities.principals import Principal
from waypost.capabilities.prompts import to_messages
from waypost.capabilities.resources import MAX_URI_CHARACTERS, to_contents
from waypost.capabilities.results import Result, encode_json, failure, to_result
from waypost.errors import (
    CapabilityNotSupported,
    DefinitionError,
    InsufficientScope,
    InvalidParams,
    MethodNotFound,
    UnknownTool,
    shorten,
)
from waypost.execution import tracing
from waypost.execution.limits import Deadline
from waypost.execution.pipeline import check_output, error_result
from waypost.loops import maybe_await
from waypost.protocol import task_methods
from waypost.protocol.broadcast import Subscription
from waypost.protocol.engine import Engine, Hook, SkillSource
from waypost.protocol.exchange import Exchange, parse_client_level
from waypost.protocol.lists import WIRE_KEYS, Page
from waypost.protocol.responses import EMPTY, URI_PREFIX, Answer
from waypost.protocol.session import session_of
from waypost.protocol.streams import EventStream
from waypost.protocol.task_methods import call_as_task, may_be_task, require_extension
from waypost.protocol.tasks import RunningTask, detailed_task
from waypost.stores.tasks import TaskCall, TaskRecord
from waypost.suggestions import did_you_mean, preselect
from waypost.wire import downgrade, messages, params, versions
from waypost.wire.content import Text
from waypost.wire.definitions import DIRECTORY, ResourceDefinition, SkillEntry
from waypost.wire.messages import Message, decode, encode, encode_lossy, replace_surrogates
from waypost.wire.params import SUBSCRIPTION_ID, decode_cursor, encode_cursor
from waypost.wire.versions import V2026_07_28

Item = TypeVar("Item", SkillEntry, ResourceDefinition)


# The most that the specification allows in one response.
_MAX_COMPLETIONS: Final = 100


class _ToolResult(msgspec.Struct, rename="camel", omit_defaults=True):
    content: list[Any]
    structured_content: Any = UNSET
    is_error: bool = False


async def call_tool(engine: Engine, given: params.CallTool, exchange: Exchange) -> Answer:
    """`tools/call`"""
    # Most hubs have no tool that runs as a task; their calls are spared this lookup, which the pipeline repeats.
    tool = engine.registry.find_tool(given.name) if engine.registry.tools.tasked else None
    is_asked = tool is not None and (tool.mcp.task != "forbidden" or given.task is not None)
    # A tool that the caller may not see must not show by how it runs; the pipeline refuses it.
    if (
        tool is not None
        and is_asked
        and engine.can_see(exchange.principal, tool)
        and may_be_task(tool, given, exchange)
    ):
        return await call_as_task(engine, tool, given, exchange, partial(_call_for_task, engine, given))
    try:
        if engine.hooks["tool_call"] is None:
            # The result is only passed on, so JSON that came from elsewhere need not be parsed.
            result = await engine.pipeline.call(given.name, given.arguments or {}, exchange, keep_raw=True)
        else:
            result = await _run_call(engine, given, exchange, None)
    # 2026-07-28 has an error code for this; in a session the model reads it in a result that is an error.
    except CapabilityNotSupported as error:
        if versions.is_modern(exchange.version):
            raise
        result = failure(error.message)
    except UnknownTool as error:
        # The handler called another tool that does not exist: a suggestion for this one would mislead.
        if error.name != given.name:
            raise
        raise UnknownTool(error.message + suggest_tool(engine, given.name, exchange), error.name) from None
    answer = to_tool_answer(result, exchange.version)
    if engine.large_results.is_too_large(answer):
        return await _store_large_result(engine, answer, given.name, exchange, failed=result.is_error)
    return answer


def suggest_tool(engine: Engine, name: str, exchange: Exchange) -> str:
    """A question that names the tool most like an unknown name, of those that the caller may see."""
    name_of = engine.lists.for_client(exchange.client_info).name_of
    names = {name_of(row): row for row in engine.registry.tools if not row.metadata.hidden}
    # Asking the policy about every tool would cost too much.
    seen = (one for one in preselect(name, names) if engine.can_see(exchange.principal, names[one]))
    return did_you_mean(name, seen, "; ", quote=lambda one: f'"{one}"')


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


def call_again(engine: Engine, task: RunningTask, call: TaskCall) -> Coroutine[Any, Any, dict[str, Any]]:
    """Make the call of a task again, whose process has ended."""
    given = params.CallTool(name=call.tool, arguments=call.arguments)
    exchange = task_methods.rebuild_exchange(engine, task, call)
    return _call_for_task(engine, given, exchange, task.record.ttl_ms / 1000)


async def _run_call(engine: Engine, given: params.CallTool, exchange: Exchange, longest: float | None) -> Result:
    """The result of a call, from the hook `on_tool_call` if there is one."""
    hook = engine.hooks["tool_call"]
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
    # A hook runs in place of the tool: what it raises is treated like an error of the tool.
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
        # This version has no structured content for such a value, so the model gets it as text.
        if not content and structured is UNSET and result.structured is not None:
            content = [Text(encode_json(result.structured).decode())]
    body = _ToolResult(content, structured, result.is_error)
    try:
        return Answer(encode_json(body), result.meta)
    # Lone surrogates have no UTF-8. They are rare, so content is only searched for them when encoding failed.
    except UnicodeEncodeError:
        body.content = replace_surrogates(msgspec.to_builtins(content))
        return Answer(encode_json(body), result.meta)


def list_method(kind: Kind) -> Callable[[Engine, params.List, Exchange], Awaitable[Answer]]:
    """`tools/list`, `prompts/list`, `resources/list` or `resources/templates/list`"""

    async def run(engine: Engine, given: params.List, exchange: Exchange) -> Answer:
        hook = engine.hooks[f"list_{kind.value}"]
        lists = engine.lists.for_client(exchange.client_info)
        if hook is None and (engine.registry[kind].scoped or engine.hides):
            shown = lists.select(kind, given.cursor, shows=partial(engine.can_see, exchange.principal))
            return Answer(lists.encode(kind, shown, exchange.version), private=True)
        if hook is None:
            # A cache must not give one client the names that are meant for another.
            body = lists.page(kind, given.cursor, exchange.version)
            return Answer(body, private=kind is Kind.TOOL and engine.lists.differ_by_client)
        page = to_page(kind, await maybe_await(hook(given.cursor, engine.context(exchange))))
        return Answer(lists.encode(kind, page, exchange.version), private=True)

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
    hook = engine.hooks["resource_read"]
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
    hook = engine.hooks["prompt_get"]
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
    hook = engine.hooks["completion"]
    subject = _find_reference(engine, given.ref, exchange.principal, must_exist=hook is None)
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
    if target is not None and not target.is_open_to(caller.principal.scopes):
        raise InsufficientScope(target.scopes, caller.principal.scopes)
    if target is None or target.mcp.completer is None:
        offered = () if target is None else target.mcp.choices.get(argument["name"], ())
        typed = str(argument["value"]).casefold()
        return _to_completion([value for value in offered if value.casefold().startswith(typed)])
    # In place of the handler, so that it runs through the pipeline, with the rights and limits of its target.
    completer = msgspec.structs.replace(target, handler=target.mcp.completer, is_async=True)
    found: dict[str, Any] = await engine.pipeline.use(completer, argument, caller, engine.pipeline.timeout, "complete")
    return found


def _to_completion(values: list[str]) -> dict[str, Any]:
    shown = values[:_MAX_COMPLETIONS]
    return {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}


def _find_reference(engine: Engine, ref: params.Reference, principal: Principal, *, must_exist: bool) -> str:
    """The name or URI a completion is about; a hook may complete for targets that are not registered.

    One that is hidden from the principal is unknown to it.
    """
    if ref.type == "ref/prompt" and ref.name is not UNSET:
        prompt = engine.registry[Kind.PROMPT].get(ref.name)
        if must_exist and (prompt is None or not engine.can_see(principal, prompt)):
            raise engine.registry.unknown_prompt(ref.name, lambda row: engine.can_see(principal, row))
        return ref.name
    if ref.type == "ref/resource" and ref.uri is not UNSET:
        found = [engine.registry[Kind.TEMPLATE].get(ref.uri), *(row for row, _ in engine.registry.resources(ref.uri))]
        seen = next((row.id for row in found if row is not None and engine.can_see(principal, row)), None)
        if seen is None and must_exist:
            raise engine.registry.unknown_resource(ref.uri, lambda row: engine.can_see(principal, row))
        return seen or ref.uri
    raise InvalidParams("A completion needs a ref: ref/prompt with a name or ref/resource with a uri.")


async def list_skills(engine: Engine, given: params.List, exchange: Exchange) -> Answer:
    """`skills/list`"""
    rows, more = _page_skills(engine, _skill_source(engine).entries(), given.cursor, exchange)
    return Answer(
        encode({"skills": [_filter_files(engine, row, exchange) for row in rows], **more}), private=_is_private(engine)
    )


async def get_skill(engine: Engine, given: params.Uri, exchange: Exchange) -> Answer:
    """`skills/get`"""
    entry = _skill_source(engine).entry(given.uri)
    if entry is None or not _can_see(engine, entry.uri, exchange):
        raise _unknown_skill("Unknown skill", given.uri)
    return Answer(encode({"skill": _filter_files(engine, entry, exchange)}), private=_is_private(engine))


async def read_directory(engine: Engine, given: params.ReadDirectory, exchange: Exchange) -> Answer:
    """`resources/directory/read`"""
    children = _skill_source(engine).children(given.uri)
    if children is None or not _can_see(engine, given.uri, exchange):
        raise _unknown_skill("Not a directory", given.uri)
    rows, more = _page_skills(engine, children, given.cursor, exchange)
    listed = [downgrade.definition(row, exchange.version) for row in rows]
    return Answer(encode({"resources": listed, **more}), private=_is_private(engine))


def _unknown_skill(reason: str, uri: str) -> InvalidParams:
    return InvalidParams(f"{reason}: {shorten(uri)}", {"uri": shorten(uri, MAX_URI_CHARACTERS)})


def _page_skills(
    engine: Engine, items: Iterable[Item], cursor: str | None, exchange: Exchange
) -> tuple[list[Item], dict[str, Any]]:
    """A page of the items that the caller may see, and the cursor of the next."""
    after = decode_cursor(cursor) or ""
    shown = (item for item in items if item.uri > after and _can_see(engine, item.uri, exchange))
    size = engine.settings.server.page_size
    page = list(islice(shown, size + 1))
    if len(page) <= size:
        return page, {}
    return page[:size], {"nextCursor": encode_cursor(page[size - 1].uri)}


def _skill_source(engine: Engine) -> SkillSource:
    assert engine.profile.skills is not None
    return engine.profile.skills


def _is_private(engine: Engine) -> bool:
    return engine.hides or engine.registry[Kind.RESOURCE].scoped > 0


def _filter_files(engine: Engine, entry: SkillEntry, exchange: Exchange) -> SkillEntry:
    """A skill with the files that the caller may see."""
    if not _is_private(engine):
        return entry
    shown = [file for file in entry.resources if _can_see(engine, file.uri, exchange)]
    return SkillEntry(entry.uri, entry.frontmatter, shown)


def _can_see(engine: Engine, uri: str, exchange: Exchange) -> bool:
    """Whether the caller may see a file or a directory."""
    if not _is_private(engine):
        return True
    if uri in engine.registry[Kind.RESOURCE]:
        return engine.can_see_resource(exchange.principal, uri)
    return _can_see_directory(engine, uri, exchange)


def _can_see_directory(engine: Engine, uri: str, exchange: Exchange) -> bool:
    """Whether the caller may see a file in a directory; an empty one is visible with its parent."""
    is_empty = True
    for file in _list_skill_files(engine, uri):
        if engine.can_see_resource(exchange.principal, file):
            return True
        is_empty = False
    above = uri.rpartition("/")[0]
    if is_empty and _skill_source(engine).children(above) is not None:
        return _can_see_directory(engine, above, exchange)
    return is_empty


def _list_skill_files(engine: Engine, uri: str) -> Iterator[str]:
    """The files in a directory, and in those below it."""
    for child in _skill_source(engine).children(uri) or ():
        if child.mime_type == DIRECTORY:
            yield from _list_skill_files(engine, child.uri)
        else:
            yield child.uri


async def ping(_engine: Engine, _given: params.Params, _exchange: Exchange) -> Answer:
    """`ping`"""
    return EMPTY


async def set_level(_engine: Engine, given: params.SetLevel, exchange: Exchange) -> Answer:
    """`logging/setLevel`"""
    session_of(exchange).log_level = parse_client_level(given.level)
    await session_of(exchange).save()
    return EMPTY


async def subscribe(engine: Engine, given: params.Uri, exchange: Exchange) -> Answer:
    """`resources/subscribe`"""
    if not engine.profile.offers_subscriptions:
        raise MethodNotFound("Method not found: resources/subscribe")
    if len(given.uri) > MAX_URI_CHARACTERS:
        raise InvalidParams(f"A URI to subscribe to has at most {MAX_URI_CHARACTERS} characters.")
    _check_scopes(engine, given.uri, exchange)
    session = session_of(exchange)
    engine.broadcast.budget.charge(session, session.principal, session.subscriptions | {given.uri})
    session.subscriptions.add(given.uri)
    engine.broadcast.subscriptions_changed()
    await session.save()
    return EMPTY


def _check_scopes(engine: Engine, uri: str, exchange: Exchange) -> None:
    """Refuse a resource that the caller's token does not reach; one that is not registered may come later."""
    # A hidden resource is treated like one that does not exist: an error about scopes would confirm that it does.
    rows = [] if engine.is_hidden(exchange.principal, uri) else [row for row, _ in engine.registry.resources(uri)]
    granted = exchange.principal.scopes
    if rows and not any(row.is_open_to(granted) for row in rows):
        raise InsufficientScope(rows[0].scopes, granted)


async def unsubscribe(engine: Engine, given: params.Uri, exchange: Exchange) -> Answer:
    """`resources/unsubscribe`"""
    if not engine.profile.offers_subscriptions:
        raise MethodNotFound("Method not found: resources/unsubscribe")
    session = session_of(exchange)
    session.subscriptions.discard(given.uri)
    engine.broadcast.budget.count(session, session.principal, session.subscriptions)
    engine.broadcast.subscriptions_changed()
    await session.save()
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
    # A revocation ends the streams that are open; one between authentication and here would miss this stream.
    engine.sessions.check_not_revoked(exchange.principal)
    asked = given.notifications
    with engine.broadcast.hold_stream(exchange.principal, (*asked.resource_subscriptions, *asked.task_ids)):
        return await _follow_changes(engine, given, exchange)


async def _follow_changes(engine: Engine, given: params.Listen, exchange: Exchange) -> Answer:
    granted = await _narrow_filter(engine, given.notifications, exchange)
    stream = EventStream("listen", _LISTEN_BACKLOG, engine.settings.limits.max_stream_bytes, is_resumable=False)
    uris, task_ids = frozenset(granted.resource_subscriptions), frozenset(granted.task_ids)
    subscription = Subscription(exchange.request_id, granted, stream, exchange.principal, uris)
    tag = {SUBSCRIPTION_ID: exchange.request_id}

    def notify(record: TaskRecord) -> None:
        subscription.notify("notifications/tasks", **detailed_task(record))

    # Before the acknowledgement, so that no change falls between the two; the stream holds it until then.
    stops = (engine.broadcast.subscribe(subscription), engine.tasks.watch(notify, task_ids))
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
        # Unknown tasks and those of other principals are left out alike.
        with suppress(InvalidParams):
            own.append((await engine.tasks.find(task_id, exchange.principal)).id)
    return own


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method: its parameters, the function that answers it, the server capability it belongs to."""

    params: type[params.Params]
    run: Callable[[Engine, Any, Exchange], Awaitable[Answer]]
    capability: str | None = None
    cacheable: bool = False
    name_field: str | None = None
    """The parameter that the header `Mcp-Name` repeats."""


_SHARED: Final[dict[str, Method]] = {
    "tools/call": Method(params=params.CallTool, run=call_tool, capability="tools", name_field="name"),
    "tools/list": Method(params=params.List, run=list_method(Kind.TOOL), capability="tools", cacheable=True),
    "prompts/list": Method(params=params.List, run=list_method(Kind.PROMPT), capability="prompts", cacheable=True),
    "prompts/get": Method(params=params.GetPrompt, run=get_prompt, capability="prompts", name_field="name"),
    "resources/list": Method(
        params=params.List, run=list_method(Kind.RESOURCE), capability="resources", cacheable=True
    ),
    "resources/templates/list": Method(
        params=params.List, run=list_method(Kind.TEMPLATE), capability="resources", cacheable=True
    ),
    "resources/read": Method(params=params.ReadResource, run=read_resource, cacheable=True, name_field="uri"),
    "completion/complete": Method(params=params.Complete, run=complete, capability="completions"),
    "skills/list": Method(params=params.List, run=list_skills, capability="skills", cacheable=True),
    "skills/get": Method(params=params.Uri, run=get_skill, capability="skills", cacheable=True),
    "resources/directory/read": Method(
        params=params.ReadDirectory, run=read_directory, capability="skills", cacheable=True
    ),
}

# Sessions begin with `initialize`, have state on the server (log level, subscriptions) and wait for tasks.
LEGACY: Final[dict[str, Method]] = {
    **_SHARED,
    "ping": Method(params=params.Params, run=ping),
    "logging/setLevel": Method(params=params.SetLevel, run=set_level, capability="logging"),
    "resources/subscribe": Method(params=params.Uri, run=subscribe, capability="resources"),
    "resources/unsubscribe": Method(params=params.Uri, run=unsubscribe, capability="resources"),
    "tasks/get": Method(params=params.TaskId, run=task_methods.get_session_task, capability="tasks"),
    "tasks/result": Method(params=params.TaskId, run=task_methods.get_session_task_result, capability="tasks"),
    "tasks/cancel": Method(params=params.TaskId, run=task_methods.cancel_session_task, capability="tasks"),
    "tasks/list": Method(params=params.List, run=task_methods.list_session_tasks, capability="tasks"),
}

# 2026-07-28 has no sessions: one listen stream replaces subscriptions, and clients poll their tasks.
MODERN: Final[dict[str, Method]] = {
    **_SHARED,
    "server/discover": Method(params=params.Params, run=discover, cacheable=True),
    "subscriptions/listen": Method(params=params.Listen, run=listen),
    "tasks/get": Method(params=params.TaskId, run=task_methods.get_task, capability="tasks", name_field="task_id"),
    "tasks/update": Method(
        params=params.UpdateTask, run=task_methods.update_task, capability="tasks", name_field="task_id"
    ),
    "tasks/cancel": Method(
        params=params.TaskId, run=task_methods.cancel_task, capability="tasks", name_field="task_id"
    ),
}


def find_method(engine: Engine, name: str, version: str) -> Method | None:
    """The method of that name, if this server has it in that version."""
    method = (MODERN if versions.is_modern(version) else LEGACY).get(name)
    if method is None or not (method.capability is None or engine.profile.offers(method.capability)):
        return None
    return method


def dispatch(
    engine: Engine, name: str, method: Method | None, raw: Raw | UnsetType, given: Any, exchange: Exchange
) -> Awaitable[Answer]:
    """Run a method, or the hook `on_request` in its place."""
    hook = engine.hooks["request"]
    if hook is not None:
        work: Awaitable[Answer] = _call_hook(hook, name, {} if raw is UNSET else decode(raw), engine.context(exchange))
    elif method is None:
        raise MethodNotFound(f"Method not found: {shorten(name)}")
    else:
        work = method.run(engine, given, exchange)
    # Without a span the method's own awaitable is returned: no further coroutine per request.
    return _trace(name, given, work, exchange) if tracing.SDK in modules else work


async def _trace(name: str, given: Any, work: Awaitable[Answer], exchange: Exchange) -> Answer:
    """Run a method in a span that is named and described as OpenTelemetry's conventions for MCP say."""
    attributes = {"rpc.system": "jsonrpc", "mcp.method.name": name, "mcp.protocol.version": exchange.version}
    target = ""
    if isinstance(given, params.CallTool):
        target = attributes["gen_ai.tool.name"] = given.name
        attributes["gen_ai.operation.name"] = "execute_tool"
    elif isinstance(given, params.GetPrompt):
        target = attributes["gen_ai.prompt.name"] = given.name
    elif isinstance(given, params.ReadResource):
        # Not part of the name: there may be any number of URIs.
        attributes["mcp.resource.uri"] = given.uri
    with tracing.span(f"{name} {target}".rstrip(), attributes, exchange.meta.trace_context):
        return await work


async def _call_hook(hook: Hook, name: str, given: dict[str, Any], context: Context) -> Answer:
    result = await maybe_await(hook(name, given, context))
    body: dict[str, Any] = msgspec.to_builtins(result) if result is not None else {}
    meta = body.pop("_meta", None)
    return Answer(encode(body), meta, private=True)


async def route(engine: Engine, name: str, given: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """The result of a method as data, for a hook that calls `super().on_request`."""
    method = find_method(engine, name, exchange.version)
    if method is None:
        raise MethodNotFound(f"Method not found: {shorten(name)}")
    answer = await method.run(engine, Message("2.0", params=Raw(encode(given))).read(method.params), exchange)
    result: dict[str, Any] = decode(answer.body)
    return result if answer.meta is None else {**result, "_meta": answer.meta}
