"""What a running dynamic skill may ask the hub for, each under the permission it takes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from waypost.capabilities.context import Context
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
from waypost.policy.capability_tokens import TokenRefused
from waypost.skills.child.messages import Ask, Reply
from waypost.stores.store import Store

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
