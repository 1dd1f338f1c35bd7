"""Requests and their answers, over any link that carries messages."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

from msgspec import UNSET, Raw

from waypost.capabilities.capability import HeaderParameter
from waypost.errors import ProtocolError, RemoteError
from waypost.loops import running_loop
from waypost.upstreams.replies import Reply
from waypost.upstreams.server_requests import Answerer, Questions, declared
from waypost.upstreams.transport import Begin, Link, Sending, repeated
from waypost.version import __version__
from waypost.wire import messages
from waypost.wire.messages import Message, RequestId, decode
from waypost.wire.params import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from waypost.wire.versions import V2026_07_28, is_modern

NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods that are about one thing, and the parameter that names it."""
_ABOUT: Final = {**NAMED, "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
_WAIT: Final = 30.0
_MOST_SERVED: Final = 100
_PARTING: Final = 1.0
"""Seconds that the end of a conversation waits for what a server should still hear."""
_NOTHING: Final[Mapping[str, Any]] = {}

Listener = Callable[[Reply], None]
_Shaped = TypeVar("_Shaped")
Shape = Callable[[dict[str, Any]], _Shaped]
"""Makes of the result that came what whoever waits for it wants."""


class Unanswered(RemoteError):
    """Everything that answers a request has come back, and no answer is among it."""

    def __init__(self) -> None:
        super().__init__("The server ended its response without an answer.", -32000)


class Conversation:
    """Sends requests to one server and tells whoever waits what came back."""

    def __init__(
        self,
        link: Link,
        *,
        version: str = V2026_07_28,
        capabilities: dict[str, Any] | None = None,
        name: str = "waypost",
        log_level: str | None = None,
        patience: float = _WAIT,
        answers: Mapping[str, Answerer] | None = None,
        session_capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.version = version
        self._questions = Questions(answers)
        self.calls = self._questions.calls
        """Those under way, as far as it matters whom the server asks."""
        self.capabilities = {**declared(self._questions.answers), **(capabilities or {})}
        self._session_capabilities = session_capabilities or {}
        self.log_level = log_level
        self.server_info: Reply = Reply()
        self.server_capabilities: Reply = Reply()
        self._info = {"name": name, "version": __version__}
        self._link = link
        self._begin: Begin | None = getattr(link, "begin", None)
        self._patience = patience
        self._ids = itertools.count(1)
        self._waiting: dict[RequestId, tuple[asyncio.Future[Any], Shape[Any]]] = {}
        self._listeners: list[Listener] = [self._questions.heed]
        self._headers: dict[str, tuple[HeaderParameter, ...]] = {}
        self._sending: dict[RequestId, Sending] = {}
        self._tasked: set[str] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._parting: set[asyncio.Task[None]] = set()
        self.before_closing: set[Callable[[], None]] = set()
        """What is still to be begun before the link is closed."""

    async def close(self) -> None:
        """Stop waiting for anything and close the link."""
        await part(self)
        sending = [*self._sending.values(), *self._serving]
        self._sending.clear()
        for one in sending:
            one.cancel()
        await asyncio.gather(*(one for one in sending if isinstance(one, asyncio.Task)), return_exceptions=True)
        for future, _ in self._waiting.values():
            future.cancel()
        await self._link.close()

    def listen_to(self, listener: Listener) -> Callable[[], None]:
        """Have every notification handed to `listener`, until what is given back is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def send_request(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> asyncio.Future[Reply]:
        """Send a request without waiting; the future is its result."""
        return self._begin_request(request_id, method, params, meta, Reply.of)

    def _begin_request(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any] | None,
        meta: dict[str, Any] | None,
        shape: Shape[_Shaped],
    ) -> asyncio.Future[_Shaped]:
        """Send a request without waiting; the future is what `shape` makes of its result."""
        future: asyncio.Future[_Shaped] = running_loop().create_future()
        self._waiting[request_id] = future, shape
        body = dict(params or {})
        if is_modern(self.version):
            body["_meta"] = {**self._envelope(), **(meta or _NOTHING)}
        elif meta:
            body["_meta"] = meta
        about = body.get(_ABOUT.get(method, ""))
        data = messages.request(request_id, method, body or None)
        named = self._headers.get(about or "") if method == "tools/call" else None
        extra = repeated(named, body.get("arguments")) if named else _NOTHING
        if self._begin is None:
            task = running_loop().create_task(self._deliver(data, method, about, request_id, extra))
            self._sending[request_id] = task
            task.add_done_callback(lambda _: self._sending.pop(request_id, None))
            return future
        ended = partial(self._ended, request_id)
        try:
            self._sending[request_id] = self._begin(data, self.version, method, about, extra, ended)
        except Exception as error:
            future.set_exception(error)
        return future

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a one-way message."""
        await self._link.send(messages.notification(method, params), self.version, None, None)

    async def cancel(self, request_id: RequestId, reason: str | None = None) -> None:
        """Tell the server that an answer is no longer needed."""
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            waiting[0].cancel()
        sending = self._sending.pop(request_id, None)
        if sending is not None:
            sending.cancel()
        if not (self._link.round_trips and is_modern(self.version)):
            await self.notify("notifications/cancelled", {"requestId": request_id, "reason": reason or "cancelled"})

    async def _answer(self, request_id: RequestId, future: Awaitable[_Shaped]) -> _Shaped:
        try:
            if self._patience == math.inf:
                return await future
            async with asyncio.timeout(self._patience):
                return await future
        except TimeoutError:
            await self.cancel(request_id, "timeout")
            raise RemoteError(f"The server did not answer within {self._patience:g} s.", -32001) from None
        except asyncio.CancelledError:
            if request_id in self._waiting:
                # Whoever is cancelled does not wait for a server that hangs.
                self._beside(lambda: self.cancel(request_id))
            raise
        finally:
            self._waiting.pop(request_id, None)

    async def _deliver(
        self, data: bytes, method: str, about: str | None, request_id: RequestId, extra: Mapping[str, str]
    ) -> None:
        try:
            await self._link.send(data, self.version, method, about, extra)
        except Exception as error:
            self._give_up(request_id, error)
        else:
            if self._link.round_trips:
                self._ended(request_id, None)

    def _ended(self, request_id: RequestId, problem: Exception | None) -> None:
        """Everything that answers a request has come back; there may be no answer among it."""
        self._sending.pop(request_id, None)
        if request_id in self._waiting:
            self._give_up(request_id, problem or Unanswered())

    def _give_up(self, request_id: RequestId, problem: Exception) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is not None and not waiting[0].done():
            waiting[0].set_exception(problem)

    def _envelope(self) -> dict[str, Any]:
        envelope = {PROTOCOL_VERSION: self.version, CLIENT_CAPABILITIES: self.capabilities, CLIENT_INFO: self._info}
        return envelope if self.log_level is None else {**envelope, LOG_LEVEL: self.log_level}

    def _receive(self, data: bytes) -> None:
        try:
            message = messages.parse(data)
        except ProtocolError:
            return
        if message.method is not UNSET and message.id is not UNSET:
            if len(self._serving) < _MOST_SERVED:
                self._beside(lambda: self._reply(message))
        elif message.method is not UNSET:
            note = Reply.of(
                {"method": message.method, "params": {} if message.params is UNSET else decode(message.params)}
            )
            for listener in tuple(self._listeners):
                listener(note)
        else:
            self._settle(message)

    def _beside(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[None]:
        """Do something that nobody waits for."""

        async def quietly() -> None:
            with suppress(RemoteError, OSError):
                await work()

        task = asyncio.get_running_loop().create_task(quietly())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return task

    async def _reply(self, message: Message) -> None:
        await self._link.send(await self._questions.reply(message), self.version, None, None)

    def _settle(self, message: Message) -> None:
        waiting = self._waiting.pop(message.id, None) if isinstance(message.id, (int, str)) else None
        if waiting is None or waiting[0].done():
            return
        future, shape = waiting
        said = decode(cast("Raw", message.result if message.error is UNSET else message.error))
        if not isinstance(said, dict):
            future.set_exception(RemoteError("The server's answer is not MCP.", -32603))
        elif message.error is not UNSET:
            future.set_exception(RemoteError(str(said.get("message", "")), said.get("code", 0), said.get("data")))
        else:
            future.set_result(shape(said))


def has_round_trips(client: Conversation) -> bool:
    """Whether each request is on its way alone, so that one may fail and the next one reach the server."""
    return client._link.round_trips


def abandon(client: Conversation, error: Exception) -> None:
    """Let everything that waits for a server fail, because no answer can come any more."""
    for future, _ in client._waiting.values():
        if not future.done():
            future.set_exception(error)


def see_off(client: Conversation, work: Callable[[], Awaitable[Any]]) -> None:
    """Do something that nobody waits for, but that the end of a conversation is not to cut off."""
    task = client._beside(work)
    client._parting.add(task)
    task.add_done_callback(client._parting.discard)


async def part(client: Conversation) -> None:
    """Let a server hear what is still to be said, for a moment."""
    for leave in tuple(client.before_closing):
        leave()
    if client._parting:
        await asyncio.wait(client._parting, timeout=_PARTING)
