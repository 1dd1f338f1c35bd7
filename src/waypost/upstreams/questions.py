"""What a server asks a client, and the answers: the client's own, or those of whoever made the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import UNSET

from waypost.errors import RemoteError
from waypost.loops import awaited
from waypost.upstreams.calls import HERE, QUESTIONS, Calls
from waypost.upstreams.replies import Reply
from waypost.wire import messages
from waypost.wire.messages import Message, RequestId, decode

Answerer = Callable[[dict[str, Any]], Any]
"""Answers what the server asks: the request's parameters in, the result out, awaitable or not."""


class Questions:
    """The questions of one server."""

    def __init__(self, answers: Mapping[str, Answerer] | None) -> None:
        self.answers = dict(answers or {})
        self.calls = Calls()
        self._open: dict[RequestId, asyncio.Task[Any] | None] = {}

    async def reply(self, message: Message) -> bytes:
        """The response to a request of the server."""
        request_id, method = cast("RequestId", message.id), cast("str", message.method)
        self._open[request_id] = asyncio.current_task()
        try:
            told = await self.told(method, {} if message.params is UNSET else decode(message.params))
            return messages.result(request_id, messages.encode(told))
        except RemoteError as error:
            return messages.error(request_id, error.code, error.message, error.data)
        finally:
            del self._open[request_id]
            HERE.set(None)  # a connection that is opened for the response may carry other calls later

    async def told(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to one question."""
        if method == "ping":
            return {}
        answerer = self.answers.get(method)
        if answerer is not None:
            return await awaited(answerer(params))
        if method not in QUESTIONS:
            raise RemoteError(f"Method not found: {method}", -32601)
        await self.calls.told_apart(params)
        return await self.calls.asked(method, params).ask(method, params)

    def heed(self, note: Reply) -> None:
        """Hand on a remark about a call, and drop a question that was taken back."""
        if note["method"] == "notifications/message":
            party = self.calls.told(note["params"])
            if party is not None:
                party.tell(note["params"])
        elif note["method"] == "notifications/cancelled":
            asked = self._open.get(note["params"].get("requestId"))
            if asked is not None:
                asked.cancel()
