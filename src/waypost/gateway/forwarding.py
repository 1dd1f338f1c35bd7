"""A call handed on to another server: what it answers is the answer, and what it reports is reported."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.capabilities.results import Result
from waypost.errors import RemoteError, ToolError
from waypost.upstreams.pool import Upstreams
from waypost.wire.content import Text
from waypost.workflows.executors.mcp import KEY
from waypost.workflows.redaction import redacted

_OWN: Final = "io.modelcontextprotocol/"
"""How the entries of `_meta` begin that are about one connection and not about the answer."""
_MOST_REPORTS: Final = 100
_PLAIN: Final = {"type", "text"}


async def forward(
    upstreams: Upstreams, connection: str, tool: str, arguments: dict[str, Any], ctx: Context, secrets: Sequence[str]
) -> Result:
    """Call a tool of another server on behalf of whoever is calling; its failures are this call's."""
    meta = {KEY: ctx.idempotency_key} if ctx.idempotency_key else {}
    reports = Reports(ctx)
    try:
        answer = await upstreams.call_tool(connection, tool, arguments, meta, reports.take)
        await reports.delivered()
    except OSError as error:
        raise ToolError(redacted(str(error), secrets)) from None
    except RemoteError as error:
        raise ToolError(redacted(error.message, secrets)) from None
    finally:
        reports.stop()
    return as_result(answer)


def as_result(answer: Mapping[str, Any]) -> Result:
    """What a server answered, as it is."""
    meta = {name: value for name, value in (answer.get("_meta") or {}).items() if not name.startswith(_OWN)}
    content: list[Any] = [_block(block) for block in answer["content"]]
    return Result(content, answer.get("structuredContent"), bool(answer["isError"]), meta or None)


def _block(block: Any) -> Any:
    """A block as it came; plain text is told apart so that others in this hub can read it."""
    if isinstance(block, dict) and block.keys() == _PLAIN and block["type"] == "text" and type(block["text"]) is str:
        return Text(block["text"])
    return block


class Reports:
    """Hands on how far a call is, in order; when they come too fast, the oldest are left out."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._waiting: deque[tuple[float, float | None, str | None]] = deque(maxlen=_MOST_REPORTS)
        self._telling: asyncio.Task[None] | None = None

    def take(self, told: Mapping[str, Any]) -> None:
        """Hand on one report; one that makes no sense is left out."""
        value, total, message = told.get("progress"), told.get("total"), told.get("message")
        if type(value) not in (int, float):
            return
        self._waiting.append(
            (
                value,  # type: ignore[arg-type]  # looked at above
                total if type(total) in (int, float) else None,
                message if isinstance(message, str) else None,
            )
        )
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())
            # A caller who cannot be told any more is no concern of the call.
            self._telling.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def delivered(self) -> None:
        """Wait until everything is handed on."""
        if self._telling is not None:
            await asyncio.wait({self._telling})

    def stop(self) -> None:
        """Hand nothing more on."""
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        while self._waiting:
            await self._ctx.progress(*self._waiting.popleft())
