"""The calls under way in a session, and which of them a question or a remark of the server belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, Protocol, cast

from msgspec import UNSET

from waypost.errors import RemoteError
from waypost.loops import maybe_await
from waypost.upstreams.replies import Reply
from waypost.upstreams.tasks import RELATED
from waypost.wire import messages
from waypost.wire.messages import Message, RequestId, decode

QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "elicitation/create": {"elicitation": {"form": {}, "url": {}}},
    "sampling/createMessage": {"sampling": {"tools": {}}},
    "roots/list": {"roots": {}},
}
"""What servers may ask, and what a client declares that can answer it."""
_NOTHING: Final[Mapping[str, Any]] = {}
_TOLD_WITHIN: Final = 5.0
"""Seconds for which a question about a task waits until it is known whose task that is."""
_NOT_KNOWN: Final = -32601
_UNCLEAR: Final = -32000


def declared(methods: Iterable[str]) -> dict[str, Any]:
    """What a client can do for a server, by what it has answers for."""
    return {name: options for method in methods for name, options in QUESTIONS.get(method, {}).items()}


class Party(Protocol):
    """Whoever made a call, as far as the server may ask and tell it something meanwhile."""

    @property
    def owner(self) -> object:
        """Equal for calls that the same person may hear of."""

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether its client said that it can."""

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to a question; a refusal is a `RemoteError`."""

    def tell(self, note: Mapping[str, Any]) -> None:
        """Hear a log message: the parameters of the notification."""


class Call:
    """One call under way; one that goes on as a task is known by its id, too."""

    __slots__ = ("party", "task")

    def __init__(self, party: Party | None, task: str | None = None) -> None:
        self.party = party
        self.task = task


HERE: Final[ContextVar[Call | None]] = ContextVar("call", default=None)
"""The call that is being sent, and for a link with a stream for each call, the one on whose stream something came."""


class Calls:
    """Calls of one session, the newest last."""

    __slots__ = ("_news", "_under_way")

    def __init__(self) -> None:
        self._under_way: dict[Call, None] = {}
        self._news = asyncio.Event()

    def begin(self, party: Party | None, task: str | None = None) -> Call:
        """A call begins, or goes on as a task of the server."""
        call = Call(party, task)
        self._under_way[call] = None
        self._news.set()
        HERE.set(call)
        return call

    def end(self, call: Call) -> None:
        """A call is over."""
        del self._under_way[call]
        HERE.set(None)

    async def told_apart(self, params: Mapping[str, Any]) -> None:
        """Wait for a task that a question names before its server has told whose call became that task."""
        task = _task_named(params)
        if task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_WITHIN):
                while self._of_task(task) is None and any(call.task is None for call in self._under_way):
                    self._news.clear()
                    await self._news.wait()

    def asked(self, method: str, params: Mapping[str, Any]) -> Party:
        """Whom a question is for; nobody is asked what may be meant for somebody else."""
        parties = self._parties(params)
        known = [party for party in parties if party is not None]
        if not known:
            raise RemoteError(f"Method not found: {method}", _NOT_KNOWN)
        if len(known) < len(parties) or any(party.owner != known[0].owner for party in known):
            raise RemoteError("Calls of different callers are under way, so nobody can tell who is asked.", _UNCLEAR)
        return next((party for party in reversed(known) if party.can_answer(method, params)), known[-1])

    def told(self, params: Mapping[str, Any] = _NOTHING) -> Party | None:
        """Whom a remark is for, if that is clear."""
        parties = self._parties(params)
        newest = parties[-1] if parties else None
        if newest is None or any(party is None or party.owner != newest.owner for party in parties):
            return None
        return newest

    def _parties(self, params: Mapping[str, Any]) -> list[Party | None]:
        """Who may be meant: the call whose task is named, or on whose stream it came, else all if no task is named."""
        task = _task_named(params)
        meant = None if task is None else self._of_task(task)
        if meant is None and (here := HERE.get()) is not None and here in self._under_way:
            meant = here
        if meant is not None or task is not None:
            return [] if meant is None else [meant.party]
        return [call.party for call in self._under_way]

    def _of_task(self, task: str) -> Call | None:
        return next((call for call in self._under_way if call.task == task), None)


def _task_named(params: Mapping[str, Any]) -> str | None:
    """The task that a message of the server belongs to, where it says so."""
    meta = params.get("_meta")
    related = meta.get(RELATED) if isinstance(meta, dict) else None
    task = related.get("taskId") if isinstance(related, dict) else None
    return task if isinstance(task, str) else None


def on_stream_of(call: Call | None, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Take what comes on the response stream of a call, so that it is known whose it is."""

    def taken(data: bytes) -> None:
        before = HERE.set(call)
        try:
            take(data)
        finally:
            HERE.reset(before)

    return taken


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
            return await maybe_await(answerer(params))
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
