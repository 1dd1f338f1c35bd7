"""Skills as tools of the registry: how one is called, what it may ask the hub for, and how results are cleaned."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.names import check_name
from waypost.capabilities.options import ToolOptions
from waypost.capabilities.results import Result, to_result
from waypost.capabilities.tools import make_tool
from waypost.errors import (
    CallError,
    InsufficientScope,
    NoAnswer,
    PolicyDenied,
    ProtocolError,
    StaleVersion,
    StoreError,
    ToolError,
    UnknownCapability,
    WaypostError,
)
from waypost.loops import maybe_await
from waypost.policy.capability_tokens import TokenRefused
from waypost.skills.child.messages import Ask, Done, Failed, Reply
from waypost.skills.core import CORE, CoreSkill
from waypost.skills.core.inputs import CoreSettings
from waypost.skills.declarations import Declaration
from waypost.skills.processes import Calls, Pool, Program, crash
from waypost.stores.store import Store
from waypost.wire.content import Text

_log: Final = logging.getLogger(__name__)

ReadResource = Callable[[str, Context], Awaitable[Sequence[Any]]]
"""Reads a resource on behalf of a call."""

_DENIED: Final = (PolicyDenied, TokenRefused, InsufficientScope)
_REFUSED: Final = (*_DENIED, CallError, UnknownCapability, ProtocolError, StoreError)
"""What is no fault of the skill that asked."""


def is_granted(ctx: Context, permission: str) -> bool:
    """Whether the call has a permission."""
    try:
        ctx.require(permission)
    except _DENIED:
        return False
    return True


class Answers:
    """Answers the questions of one skill."""

    def __init__(self, name: str, store: Store, read: ReadResource | None) -> None:
        self._scope = f"skill:{name}"
        self._store = store
        self._read = read
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "progress": self._progress,
            "log": self._say,
            "invoke": self._invoke,
            "sample": self._sample,
            "elicit": self._elicit,
            "state_get": self._state_get,
            "state_put": self._state_put,
            "state_delete": self._state_delete,
            "read_resource": self._read_resource,
        }

    async def answer(self, ask: Ask, ctx: Context) -> Reply:
        """The reply to a question; one that ends the whole call is raised."""
        method = self._methods.get(ask.method)
        if method is None:
            return Reply(ask.id, error="AttributeError", message=f"ctx has no {ask.method}")
        try:
            return Reply(ask.id, await method(ctx, **ask.params))
        except WaypostError as error:
            return Reply(ask.id, None, _kind(error), error.message, refused=isinstance(error, _REFUSED))
        except (TypeError, ValueError, KeyError) as error:
            return Reply(ask.id, error="ValueError", message=f"ctx.{ask.method}: {error}")
        except Exception:
            _log.exception("ctx.%s failed for %s", ask.method, self._scope)
            return Reply(ask.id, error="RuntimeError", message=f"the hub failed to answer ctx.{ask.method}")

    async def _progress(self, ctx: Context, value: float, total: float | None, message: str | None) -> None:
        await ctx.progress(value, total, message)

    async def _say(self, ctx: Context, level: str, message: str, data: dict[str, Any] | None) -> None:
        await ctx.log(level, message, data)

    async def _invoke(self, ctx: Context, name: str, args: dict[str, Any]) -> dict[str, Any]:
        tool = ctx.registry.find_tool(name)
        is_workflow = (name if tool is None else tool.id).startswith("workflow:")
        ctx.require("workflow_run" if is_workflow else "skill_invoke")
        result = await ctx.invoke(name, args)
        return {"text": result.text, "structured": result.structured, "isError": result.is_error}

    async def _sample(self, ctx: Context, messages: Any, options: dict[str, Any]) -> dict[str, Any]:
        ctx.require("llm")
        answer = await ctx.sample(messages, **options)
        return {**msgspec.to_builtins(answer), "text": answer.text}

    async def _elicit(self, ctx: Context, message: str, schema: Any, options: dict[str, Any]) -> dict[str, Any]:
        answer = await ctx.elicit(message, schema, **options)
        return {"action": answer.action, "content": answer.content, "accepted": answer.accepted}

    async def _state_get(self, ctx: Context, key: str) -> Any:
        ctx.require("state_read")
        found = await self._store.state.get(self._scope, key)
        return None if found is None else found.value

    async def _state_put(self, ctx: Context, key: str, value: Any) -> None:
        ctx.require("state_write")
        await self._insisting(key, lambda version: self._store.state.put(self._scope, key, value, version))

    async def _state_delete(self, ctx: Context, key: str) -> None:
        ctx.require("state_write")

        async def remove(version: int) -> None:
            if version:
                await self._store.state.remove(self._scope, key, version)

        await self._insisting(key, remove)

    async def _insisting(self, key: str, change: Callable[[int], Awaitable[Any]]) -> None:
        """Change a value whatever it is by now: the last write wins."""
        while True:
            found = await self._store.state.get(self._scope, key)
            try:
                await change(0 if found is None else found.version)
            except StaleVersion:
                continue
            return

    async def _read_resource(self, ctx: Context, uri: str) -> Any:
        ctx.require("resources_read")
        if self._read is None:
            raise WaypostError("This hub has no resources for skills.")
        return msgspec.to_builtins(await self._read(uri, ctx))


def _kind(error: WaypostError) -> str:
    """The built-in exception that stands for what went wrong; calls that are refused have it as their cause."""
    match error.__cause__ if isinstance(error, ToolError) else error:
        case PolicyDenied() | TokenRefused() | InsufficientScope():
            return "PermissionError"
        case NoAnswer():
            return "TimeoutError"
        case UnknownCapability():
            return "LookupError"
        case _:
            return "RuntimeError"


LONGEST: Final = 100_000
"""Characters of one text that are kept."""

_UNSEEN: Final = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f"  # controls, but for tab and new lines
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"  # soft hyphens and fillers
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # of no width, and those that turn the direction
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"  # annotations, tags and selectors of plane 14
)


def cleaning(run: Handler) -> Handler:
    """A handler whose results are cleaned."""

    async def clean(arguments: Any, ctx: Context) -> Result:
        result = to_result(await maybe_await(run(arguments, ctx)))
        content = [_block(block) for block in result.content]
        return msgspec.structs.replace(result, content=content, structured=_cleaned(result.structured))

    return clean


def sanitised(text: str) -> str:
    """A text without what is not there to be seen; what is cut off is said."""
    clean = _uncommented(_UNSEEN.sub("", text))
    if len(clean) <= LONGEST:
        return clean
    return f"{clean[:LONGEST]}\n[{len(clean) - LONGEST} more characters were cut off]"


def _uncommented(text: str) -> str:
    """The text without comments of HTML; one that does not end takes the rest."""
    kept, start = [], 0
    while (found := text.find("<!--", start)) >= 0:
        kept.append(text[start:found])
        end = text.find("-->", found)
        if end < 0:
            return "".join(kept)
        start = end + 3
    return text if not kept else "".join([*kept, text[start:]])


def _block(block: Any) -> Any:
    return msgspec.structs.replace(block, text=sanitised(block.text)) if isinstance(block, Text) else block


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return sanitised(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    return value


OWNER = "dynamic"
BRANCH = "waypost/branch"
REVISION = "waypost/revision"


def tool_name(name: str) -> str:
    """The name of a skill's tool."""
    return f"skill:{name}"


def dynamic_tool(
    name: str, declaration: Declaration, handler: Handler, *, revision: int, timeout: float | None
) -> Capability:
    """The tool of a dynamic skill; its revision tells clients that the code behind it is another."""
    return make_tool(
        check_name(tool_name(name)),
        ToolOptions(timeout=timeout, permissions=declaration.permissions or (), meta={REVISION: revision}),
        arguments=declaration.arguments,
        output=None,
        handler=handler,
        arity=2,
        asynchronous=True,
        description=f"{declaration.description or f'{name} skill'} [dynamic]",
        owner=OWNER,
    )


def handler(program: Program, pool: Pool, answers: Answers) -> Handler:
    """Runs a skill in one of its processes."""

    async def run(arguments: dict[str, Any], ctx: Context) -> Result:
        async with pool.process(program) as process:
            caller = _caller(program, ctx)
            outcome = await process.call(skill_args(arguments), caller, lambda ask: answers.answer(ask, ctx))
        return _result(program.name, outcome)

    return run


def skill_args(arguments: dict[str, Any]) -> dict[str, Any]:
    """What `run` gets: `input`, `config`, and typed fields both beside them and in `config`, whose own keys win."""
    typed = {key: value for key, value in arguments.items() if key not in ("input", "config")}
    config = {**typed, **arguments.get("config", {})}
    return {**typed, "input": arguments.get("input", ""), "config": config}


def _caller(program: Program, ctx: Context) -> dict[str, Any]:
    return {
        "principal": ctx.principal.id,
        "roles": ctx.principal.roles,
        "request_id": ctx.request_id,
        "network": "web_read" in program.permissions and is_granted(ctx, "web_read"),
    }


def _result(name: str, outcome: Done | Failed) -> Result:
    if isinstance(outcome, Failed):
        raise crash(name, outcome)
    result = to_result(outcome.value)
    if outcome.branch is not None:
        result.meta = {BRANCH: outcome.branch}
    return result


CORE_OWNER = "core"


def core_tools(
    names: Collection[str] | None,
    settings: CoreSettings,
    timeout: float | None,
    calls: Calls,
    *,
    sanitize: bool = False,
) -> list[Capability]:
    """The tools of the skills that are wanted: those named, else all but the shell."""
    wanted = {skill.name for skill in CORE} - {"shell"} if names is None else set(names)
    return [_tool(skill, settings, timeout, calls, sanitize) for skill in CORE if skill.name in wanted]


def _tool(skill: CoreSkill, settings: CoreSettings, timeout: float | None, calls: Calls, sanitize: bool) -> Capability:
    run = calls.counted(_handler(skill, settings))
    declared = Declaration(
        description=skill.description,
        version=skill.version,
        permissions=skill.permissions,
        routes=skill.routes,
        external=skill.external,
        input_schema=dict(skill.input_schema),
    )
    return make_tool(
        tool_name(skill.name),
        ToolOptions(timeout=timeout, permissions=skill.permissions),
        arguments=declared.arguments,
        output=None,
        handler=cleaning(run) if sanitize and skill.external else run,
        arity=2,
        asynchronous=True,
        description=skill.description,
        owner=CORE_OWNER,
    )


def _handler(skill: CoreSkill, settings: CoreSettings) -> Handler:
    run = skill.make(settings)

    async def handler(arguments: dict[str, Any], ctx: Context) -> Result:
        value = await run(skill_args(arguments), ctx)
        result = to_result(value)
        result.meta = {BRANCH: skill.branch(value)}
        return result

    return handler
