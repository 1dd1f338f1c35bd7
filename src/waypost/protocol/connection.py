"""A connection that carries all messages of one client in both directions: standard streams and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import UNSET

from waypost.errors import ProtocolError
from waypost.loops import running_loop
from waypost.protocol import legacy, modern
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange, RunningRequests, cancel
from waypost.protocol.legacy import Batch
from waypost.protocol.session import LegacySession
from waypost.wire import messages
from waypost.wire.messages import Message
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

_CANCEL_TIMEOUT_S: Final = 1.0
_LISTEN: Final = "subscriptions/listen"


class Connection:
    """Receives messages, runs their requests concurrently, and writes responses and notifications."""

    def __init__(self, engine: Engine, write: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._max_depth = engine.settings.limits.json_depth
        self._write = write
        self._session: LegacySession | None = None
        self._modern_requests = RunningRequests()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listening: set[asyncio.Task[Any]] = set()
        self._waiting: list[bytes] | None = None

    def receive(self, data: bytes) -> None:
        """Take one message; its response, if it has one, is written when it is ready."""
        if self._waiting is not None:
            self._waiting.append(data)
            return
        try:
            if data.lstrip()[:1] == b"[":
                self._receive_batch(data)
                return
            message = messages.parse(data, self._max_depth)
        except ProtocolError as error:
            self._write(legacy.error_response(error, messages.find_id(data), LATEST_LEGACY).payload)
            return
        if message.method is UNSET or message.id is UNSET:
            self._receive_one_way(message)
        elif modern.is_modern_request(message):
            exchange = Exchange(message.id, V2026_07_28, self)  # type: ignore[arg-type]  # requests have one
            # Entered before its task runs: the next line of the client's input may cancel it.
            if self._modern_requests.setdefault(exchange.request_id, exchange) is not exchange:
                self._modern_requests.enter_again(exchange)
            task = self._spawn(self._answer_modern(message, exchange))
            if message.method == _LISTEN:
                self._listening.add(task)
                task.add_done_callback(self._listening.discard)
        elif message.method == "initialize":
            self._waiting = []
            self._spawn(self._initialize(message))
        elif self._session is None:
            self._write(legacy.answer_without_session(message).payload)
        else:
            exchange = legacy.make_exchange(self._session, message, self)
            running = self._session.running
            if running.setdefault(exchange.request_id, exchange) is not exchange:
                running.enter_again(exchange)
            self._spawn(self._answer_legacy(self._session, message, exchange))

    async def finish(self, within: float) -> None:
        """Wait so many seconds for running requests; listen streams end only with the connection."""
        until = running_loop().time() + within
        while (running := self._tasks - self._listening) and (left := until - running_loop().time()) > 0:
            await asyncio.wait(running, timeout=left)

    async def close(self) -> bool:
        """Cancel all requests of this client, and end its session; false if a request ignores its cancellation."""
        running = set(self._tasks)
        for task in running:
            task.cancel()
        if running:
            _, running = await asyncio.wait(running, timeout=_CANCEL_TIMEOUT_S)
        self._modern_requests.take_all()
        if self._session is not None:
            self._engine.sessions.close(self._session, "disconnected")
        return not running

    async def send(self, message: bytes) -> None:
        """The outlet of every request: all share the connection."""
        self._write(message)

    async def close_early(self) -> None:
        """Nothing to close: the connection stays."""

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _initialize(self, message: Message) -> None:
        """Open the session; messages that arrive meanwhile belong to it, and wait."""
        if self._session is not None:
            self._engine.sessions.close(self._session, "closed")
        self._session, outcome = await legacy.initialize(self._engine, message, attached=self._write)
        self._write(outcome.payload)
        waiting, self._waiting = self._waiting or [], None
        for late in waiting:
            self.receive(late)

    async def _answer_legacy(self, session: LegacySession, message: Message, exchange: Exchange) -> None:
        outcome = await legacy.answer(self._engine, session, message, exchange)
        if outcome is not None:
            self._write(outcome.payload)

    async def _answer_modern(self, message: Message, exchange: Exchange) -> None:
        try:
            outcome = await modern.answer(self._engine, message, exchange)
            if outcome is not None:
                self._write(outcome.payload)
        finally:
            if self._modern_requests.get(exchange.request_id) is exchange:
                del self._modern_requests[exchange.request_id]
            else:
                self._modern_requests.leave_displaced(exchange)

    def _receive_one_way(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            cancel(self._modern_requests, message)
        if self._session is not None:
            legacy.receive(self._engine, self._session, message, self)

    def _receive_batch(self, data: bytes) -> None:
        batch = legacy.read_batch(self._session, messages.parse_batch(data, self._max_depth), self._max_depth)
        for message in batch.one_way:
            self._receive_one_way(message)
        if batch.wants_answer and self._session is not None:
            self._spawn(self._answer_batch(self._session, batch))

    async def _answer_batch(self, session: LegacySession, batch: Batch) -> None:
        payload = await legacy.answer_batch(self._engine, session, batch, self)
        if payload:
            self._write(payload)
