"""Skills as tools of the registry: how one is called, what it may ask the hub for, and how results are cleaned."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost import errors
from waypost.capabilities.capability import Capability, ToolOptions, check_name
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.results import Result, to_result
from waypost.capabilities.tools import make_tool
from waypost.errors import InsufficientScope, PolicyDenied, StaleVersion, ToolError, UnknownCapability, WaypostError
from waypost.loops import maybe_await
from waypost.policy.capability_tokens import TokenRefused
from waypost.redaction import map_texts
from waypost.skills.child.messages import Ask, Failed, Reply
from waypost.skills.core import CORE, CoreSkill
from waypost.skills.core.inputs import CoreSettings
from waypost.skills.files import Declaration
from waypost.skills.processes import Calls, Pool, Program, to_exception
from waypost.stores.store import Store
from waypost.wire.content import Audio, Block, EmbeddedResource, Image, ResourceLink, Text

_log: Final = logging.getLogger(__name__)

ReadResource = Callable[[str, Context], Awaitable[Sequence[Any]]]
"""Reads a resource on behalf of a call."""

_DENIED: Final = (PolicyDenied, TokenRefused, InsufficientScope)
_REFUSED: Final = (*_DENIED, errors.CallError, UnknownCapability, errors.ProtocolError, errors.StoreError)
"""Errors that are not the fault of the skill that asked."""

DYNAMIC_OWNER: Final = "dynamic"
CORE_OWNER: Final = "core"
BRANCH: Final = "waypost/branch"
REVISION: Final = "waypost/revision"
MAX_TEXT_CHARACTERS: Final = 100_000
"""Longer texts of a cleaned result are cut."""

_INVISIBLE: Final = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f"  # controls, but for tab and new lines
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"  # soft hyphens and fillers
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # of no width, and those that turn the direction
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"  # annotations, tags and selectors of plane 14
)


class Answers:
    """Answers what one running dynamic skill asks the hub for, each request under the permission it needs."""

    def __init__(self, name: str, store: Store, read: ReadResource | None) -> None:
        self._scope = f"skill:{name}"
        self._store = store
        self._read = read
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "progress": Context.progress,
            "log": Context.log,
            "invoke": self._invoke,
            "sample": self._sample,
            "elicit": self._elicit,
            "state_get": self._get_state,
            "state_put": self._put_state,
            "state_delete": self._delete_state,
            "read_resource": self._read_resource,
        }

    async def answer(self, ask: Ask, ctx: Context) -> Reply:
        """Reply to a request; an error that ends the whole call is raised."""
        # What a process may ask for is decided here: the code on its side belongs to the skill.
        method = self._methods.get(ask.method)
        if method is None:
            return Reply(ask.id, error="AttributeError", message=f"ctx has no {ask.method}")
        try:
            return Reply(ask.id, await method(ctx, **ask.params))
        except WaypostError as error:
            return Reply(ask.id, None, _builtin_name(error), error.message, refused=isinstance(error, _REFUSED))
        except (TypeError, ValueError, KeyError) as error:
            return Reply(ask.id, error="ValueError", message=f"ctx.{ask.method}: {error}")
        except Exception:
            _log.exception("ctx.%s failed for %s", ask.method, self._scope)
            return Reply(ask.id, error="RuntimeError", message=f"the hub failed to answer ctx.{ask.method}")

    async def _invoke(self, ctx: Context, name: str, args: dict[str, Any]) -> dict[str, Any]:
        # By the name of the tool that is found: a portable name must not get around the permission for workflows.
        tool = ctx.registry.find_tool(name)
        is_workflow = (name if tool is None else tool.id).startswith("workflow:")
        ctx.require("workflow_run" if is_workflow else "skill_invoke")
        result = await ctx.invoke(name, args)
        parts = {"content": result.content, "structured": result.structured}
        answer: dict[str, Any] = msgspec.to_builtins({**parts, "isError": result.is_error, "meta": result.meta})
        return answer

    async def _sample(self, ctx: Context, messages: Any, options: dict[str, Any]) -> dict[str, Any]:
        ctx.require("llm")
        answer = await ctx.sample(messages, **options)
        return {**msgspec.to_builtins(answer), "text": answer.text}

    async def _elicit(self, ctx: Context, message: str, schema: Any, options: dict[str, Any]) -> dict[str, Any]:
        answer = await ctx.elicit(message, schema, **options)
        return {"action": answer.action, "content": answer.content, "accepted": answer.accepted}

    async def _get_state(self, ctx: Context, key: str) -> Any:
        ctx.require("state_read")
        found = await self._store.state.get(self._scope, key)
        return None if found is None else found.value

    async def _put_state(self, ctx: Context, key: str, value: Any) -> None:
        ctx.require("state_write")
        await self._overwrite(key, lambda version: self._store.state.put(self._scope, key, value, version))

    async def _delete_state(self, ctx: Context, key: str) -> None:
        ctx.require("state_write")

        async def remove(version: int) -> None:
            if version:
                await self._store.state.remove(self._scope, key, version)

        await self._overwrite(key, remove)

    async def _overwrite(self, key: str, change: Callable[[int], Awaitable[Any]]) -> None:
        """Apply a change to whatever version is stored: the last write wins."""
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


def _builtin_name(error: WaypostError) -> str:
    """Return the name of the built-in exception that a skill sees; a refused call has its reason as its cause."""
    match error.__cause__ if isinstance(error, ToolError) else error:
        case PolicyDenied() | TokenRefused() | InsufficientScope():
            return "PermissionError"
        case errors.NoAnswer():
            return "TimeoutError"
        case UnknownCapability():
            return "LookupError"
        case _:
            return "RuntimeError"


def sanitize_results(run: Handler) -> Handler:
    """Wrap a handler so that the texts of its results are cleaned."""

    async def run_sanitized(arguments: Any, ctx: Context) -> Result:
        result = to_result(await maybe_await(run(arguments, ctx)))
        content = [
            msgspec.structs.replace(block, text=sanitize(block.text)) if isinstance(block, Text) else block
            for block in result.content
        ]
        return msgspec.structs.replace(
            result, content=content, structured=map_texts(result.structured, sanitize, in_names=True)
        )

    return run_sanitized


def sanitize(text: str) -> str:
    """Remove invisible characters and HTML comments from a text, and cut it where it is too long, with a note."""
    clean = _remove_comments(_INVISIBLE.sub("", text))
    if len(clean) <= MAX_TEXT_CHARACTERS:
        return clean
    return f"{clean[:MAX_TEXT_CHARACTERS]}\n[{len(clean) - MAX_TEXT_CHARACTERS} more characters were cut off]"


def _remove_comments(text: str) -> str:
    """Remove HTML comments; an unclosed one reaches to the end, as in a browser."""
    kept, start = [], 0
    while (found := text.find("<!--", start)) >= 0:
        kept.append(text[start:found])
        end = text.find("-->", found)
        if end < 0:
            return "".join(kept)
        start = end + 3
    return text if not kept else "".join([*kept, text[start:]])


def tool_name(name: str) -> str:
    """Return the name of a skill's tool."""
    return f"skill:{name}"


def to_skill_args(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what `run` gets: `input`, `config`, and typed fields both beside them and in `config`, whose keys win."""
    typed = {key: value for key, value in arguments.items() if key not in ("input", "config")}
    config = {**typed, **arguments.get("config", {})}
    return {**typed, "input": arguments.get("input", ""), "config": config}


@dataclass(frozen=True)
class DynamicTools:
    """Builds the tools of dynamic skills, which run in the processes of one pool."""

    pool: Pool
    store: Store
    calls: Calls
    read_resource: ReadResource | None = None
    timeout: float | None = None
    sanitize: bool = False

    def build(self, program: Program, declaration: Declaration, revision: int) -> Capability:
        """Return the tool of a skill; its revision shows clients that the code behind it changed."""
        answers = Answers(program.name, self.store, self.read_resource)

        async def run(arguments: dict[str, Any], ctx: Context) -> Result:
            async with self.pool.process(program, ctx.principal.id) as process:
                caller = {
                    "principal": ctx.principal.id,
                    "roles": ctx.principal.roles,
                    "request_id": ctx.request_id,
                    # Declared by the skill and granted to the caller: neither is enough alone.
                    "network": "web_read" in program.permissions and _has_permission(ctx, "web_read"),
                }
                outcome = await process.call(to_skill_args(arguments), caller, lambda ask: answers.answer(ask, ctx))
            if isinstance(outcome, Failed):
                raise to_exception(program.name, outcome)
            result = _read_result(outcome.value) if outcome.is_result else to_result(outcome.value)
            if outcome.branch is not None:
                result.meta = {BRANCH: outcome.branch}
            return result

        handler, options = self.calls.count(run), ToolOptions(timeout=self.timeout, meta={REVISION: revision})
        description = f"{declaration.description or f'{program.name} skill'} [dynamic]"
        declaration = msgspec.structs.replace(declaration, description=description)
        return _make_tool(
            check_name(tool_name(program.name)), declaration, handler, options, DYNAMIC_OWNER, self.sanitize
        )


def _read_result(answer: dict[str, Any]) -> Result:
    """Return the answer of a tool that a skill passes on."""
    content = [_read_block(block) for block in answer["content"]]
    return Result(content, answer["structured"], answer["isError"], answer["meta"])


def _read_block(block: dict[str, Any]) -> Block:
    if block.get("type") != "resource":
        return msgspec.convert(block, Text | Image | Audio | ResourceLink)
    resource = EmbeddedResource(resource=block["resource"], annotations=block.get("annotations"))
    return msgspec.structs.replace(resource.block(), meta=block.get("_meta", UNSET))


def _has_permission(ctx: Context, permission: str) -> bool:
    try:
        ctx.require(permission)
    except _DENIED:
        return False
    return True


def build_core_tools(
    names: Collection[str] | None, settings: CoreSettings, timeout: float | None, calls: Calls, *, sanitize: bool
) -> list[Capability]:
    """Return the tools of the named core skills, or of all but the shell."""
    wanted = {skill.name for skill in CORE} - {"shell"} if names is None else set(names)
    tools = []
    for skill in CORE:
        if skill.name not in wanted:
            continue

        # The default binds the skill of this round; a closure would see the last one of the loop.
        async def run(arguments: dict[str, Any], ctx: Context, skill: CoreSkill = skill) -> Result:
            value = await skill.run(to_skill_args(arguments), ctx, settings)
            result = to_result(value)
            result.meta = {BRANCH: skill.branch(value)}
            return result

        options, name = ToolOptions(timeout=timeout), tool_name(skill.name)
        tools.append(_make_tool(name, skill.declaration, calls.count(run), options, CORE_OWNER, sanitize))
    return tools


def _make_tool(
    name: str, declaration: Declaration, run: Handler, options: ToolOptions, owner: str, sanitize: bool
) -> Capability:
    return make_tool(
        name,
        msgspec.structs.replace(options, permissions=declaration.permissions or ()),
        arguments=declaration.arguments,
        # Only results from outside can hide instructions for a model.
        handler=sanitize_results(run) if sanitize and declaration.external else run,
        description=declaration.description,
        owner=owner,
    )
