"""Requests and log messages of a server during calls: which call they belong to, and how they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from msgspec import UNSET

from waypost.errors import RemoteError
from waypost.loops import maybe_await
from waypost.wire import messages
from waypost.wire.messages import Message, RequestId, decode

if TYPE_CHECKING:
    from waypost.upstreams.jsonrpc import Reply

SERVER_REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "elicitation/create": {"elicitation": {"form": {}, "url": {}}},
    "sampling/createMessage": {"sampling": {"tools": {}}},
    "roots/list": {"roots": {}},
}
"""What servers may request, and the capability that a client declares for it."""
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
_TASK_OWNER_TIMEOUT_S: Final = 5.0
_METHOD_NOT_FOUND: Final = -32601
_AMBIGUOUS: Final = -32000

Answerer = Callable[[dict[str, Any]], Any]
"""Answers a request of the server: its parameters in, the result out, awaitable or not."""


def declare_capabilities(methods: Iterable[str]) -> dict[str, Any]:
    """The capabilities of a client that answers these methods."""
    return {name: options for method in methods for name, options in SERVER_REQUESTS.get(method, {}).items()}


class Downstream(Protocol):
    """The client behind a call, which the server may ask and notify meanwhile."""

    @property
    def owner(self) -> object:
        """Equal for calls whose messages the same client may see."""

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client declared the capability for it."""

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The client's answer; a refusal is a `RemoteError`."""

    def log(self, params: Mapping[str, Any]) -> None:
        """Pass on a log message: the parameters of the notification."""


@dataclass(eq=False, slots=True)
class Call:
    """One call in flight; one that became a task also has the task's id."""

    downstream: Downstream | None
    task_id: str | None = None


CURRENT_CALL: Final[ContextVar[Call | None]] = ContextVar("call", default=None)
"""The call that is being sent, or whose response stream a message arrived on."""


def run_as_call(call: Call | None, receive: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """`receive`, with `call` as the current one: what arrives on the response stream of a call belongs to it."""

    def received(data: bytes) -> None:
        before = CURRENT_CALL.set(call)
        try:
            receive(data)
        finally:
            CURRENT_CALL.reset(before)

    return received


class ServerRequests:
    """Answers the requests of one server, and passes on its log messages.

    Callers share one session, and a request of the server does not say which call it is about. It is found
    by the task that the request names, by the response stream on which it arrived, or because all calls in flight are
    of one client. Otherwise the request is refused: one client must never be asked what was meant for another.
    """

    def __init__(self, answers: Mapping[str, Answerer] | None) -> None:
        self.answers = dict(answers or {})
        self._open: dict[RequestId, asyncio.Task[Any] | None] = {}
        self._calls: dict[Call, None] = {}
        self._call_started = asyncio.Event()

    def start_call(self, downstream: Downstream | None, task_id: str | None = None) -> Call:
        """A call is sent, or goes on as a task of the server."""
        call = Call(downstream, task_id)
        self._calls[call] = None
        self._call_started.set()
        CURRENT_CALL.set(call)
        return call

    def end_call(self, call: Call) -> None:
        """A call is over."""
        del self._calls[call]
        CURRENT_CALL.set(None)

    async def respond(self, message: Message) -> bytes:
        """The response to a request of the server."""
        request_id, method = cast("RequestId", message.id), cast("str", message.method)
        self._open[request_id] = asyncio.current_task()
        try:
            answer = await self.answer(method, {} if message.params is UNSET else decode(message.params))
            return messages.result(request_id, messages.encode(answer))
        except RemoteError as error:
            return messages.error(request_id, error.code, error.message, error.data)
        finally:
            del self._open[request_id]
            CURRENT_CALL.set(None)  # a connection that is opened for the response may carry other calls later

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        """The result of one request."""
        if method == "ping":
            return {}
        answerer = self.answers.get(method)
        if answerer is not None:
            return await maybe_await(answerer(params))
        if method not in SERVER_REQUESTS:
            raise RemoteError(f"Method not found: {method}", _METHOD_NOT_FOUND)
        await self.wait_for_task_owner(params)
        return await self.find_recipient(method, params).ask(method, params)

    def on_notification(self, note: Reply) -> None:
        """Pass on a log message, and cancel a request that the server took back."""
        if note["method"] == "notifications/message":
            downstream = self.find_log_recipient(note["params"])
            if downstream is not None:
                downstream.log(note["params"])
        elif note["method"] == "notifications/cancelled":
            answering = self._open.get(note["params"].get("requestId"))
            if answering is not None:
                answering.cancel()

    def find_recipient(self, method: str, params: Mapping[str, Any]) -> Downstream:
        """The client to ask; a `RemoteError` if there is none, or more than one."""
        candidates = self._find_candidates(params)
        known = [one for one in candidates if one is not None]
        if not known:
            raise RemoteError(f"Method not found: {method}", _METHOD_NOT_FOUND)
        if len(known) < len(candidates) or any(one.owner != known[0].owner for one in known):
            raise RemoteError("Calls of different clients are in flight, so this could be for any of them.", _AMBIGUOUS)
        return next((one for one in reversed(known) if one.can_answer(method, params)), known[-1])

    def find_log_recipient(self, params: Mapping[str, Any]) -> Downstream | None:
        """The client that a log message is for, if that is clear."""
        candidates = self._find_candidates(params)
        newest = candidates[-1] if candidates else None
        if newest is None or any(one is None or one.owner != newest.owner for one in candidates):
            return None
        return newest

    async def wait_for_task_owner(self, params: Mapping[str, Any]) -> None:
        """Wait for the task that a request names: it may arrive before the response that says whose task it is."""
        task_id = _related_task(params)
        if task_id is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_TASK_OWNER_TIMEOUT_S):
                while self._find_task(task_id) is None and any(call.task_id is None for call in self._calls):
                    self._call_started.clear()
                    await self._call_started.wait()

    def _find_candidates(self, params: Mapping[str, Any]) -> list[Downstream | None]:
        """The clients of the calls that a message may belong to."""
        task_id = _related_task(params)
        call = None if task_id is None else self._find_task(task_id)
        if call is None and (current := CURRENT_CALL.get()) is not None and current in self._calls:
            call = current
        if call is not None or task_id is not None:
            return [] if call is None else [call.downstream]
        return [call.downstream for call in self._calls]

    def _find_task(self, task_id: str) -> Call | None:
        return next((call for call in self._calls if call.task_id == task_id), None)


def _related_task(params: Mapping[str, Any]) -> str | None:
    """The task that a message names."""
    meta = params.get("_meta")
    related = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
    task_id = related.get("taskId") if isinstance(related, dict) else None
    return task_id if isinstance(task_id, str) else None
