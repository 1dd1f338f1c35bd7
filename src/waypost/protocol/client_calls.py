"""Requests to a client with a session: sent on its stream, answered by a message that names their id."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost.capabilities.asking import Question
from waypost.errors import NoAnswer, RemoteError
from waypost.execution.tracing import span
from waypost.wire import downgrade, messages
from waypost.wire.messages import Message, decode
from waypost.wire.versions import V2025_11_25, at_least

Sender = Callable[[bytes], Awaitable[None]]

GONE: Final = "The session ended before the client answered."


class ClientCalls:
    """The requests one session waits for; no other session's answers ever get here."""

    __slots__ = ("_ids", "_life", "_waiting")

    def __init__(self) -> None:
        self._life = secrets.token_hex(4)
        self._ids = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def next_id(self) -> str:
        """An id that no other request of this session has, nor had one before the session went and came back."""
        return f"hub-{self._life}-{next(self._ids)}"

    async def ask(self, question: Question, version: str, send: Sender, request_id: str | None = None) -> Any:
        """Send a question and wait for its answer; too late or given up, the client is told not to bother."""
        number = request_id or self.next_id()
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        is_sent = False
        try:
            with span(f"ask {question.method}", {"rpc.system": "mcp", "rpc.method": question.method}):
                async with asyncio.timeout(question.within):
                    await send(messages.request(number, question.method, _params(question, version)))
                    is_sent = True
                    return await future
        except TimeoutError:
            if is_sent:
                await send(_cancelled(number, "timeout"))
            raise NoAnswer(f"The client did not answer {question.method} within {question.within:g} s.") from None
        except asyncio.CancelledError:
            if is_sent:
                await send(_cancelled(number, "the call ended"))
            raise
        finally:
            self._waiting.pop(number, None)

    def settle(self, message: Message) -> None:
        """Take an answer; one that nobody waits for is dropped."""
        future = self._waiting.get(message.id) if isinstance(message.id, str) else None
        if future is None or future.done():
            return
        try:
            if message.error is UNSET:
                future.set_result(decode(message.result))  # type: ignore[arg-type]  # an answer has either
                return
            error = decode(message.error)
        except msgspec.MsgspecError as broken:
            error = {"message": f"The client's answer is malformed: {broken}."}
        told = error if isinstance(error, dict) else {}
        code = told.get("code")
        future.set_exception(
            RemoteError(str(told.get("message", "")), code if isinstance(code, int) else 0, told.get("data"))
        )

    def give_up(self) -> None:
        """Stop waiting for everything: nobody is there any more who could answer."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NoAnswer(GONE))


def _params(question: Question, version: str) -> dict[str, Any]:
    """The parameters as the version knows them: older ones have no modes, and a page to open has an id."""
    if question.method == "sampling/createMessage":
        return {**question.params, "messages": downgrade.sampling(question.params.get("messages") or (), version)}
    if question.method != "elicitation/create":
        return question.params
    if not at_least(version, V2025_11_25):
        return {name: value for name, value in question.params.items() if name != "mode"}
    if question.params.get("mode") == "url":
        return {"elicitationId": secrets.token_urlsafe(16), **question.params}
    return question.params


def _cancelled(request_id: str, reason: str) -> bytes:
    return messages.notification("notifications/cancelled", {"requestId": request_id, "reason": reason})
