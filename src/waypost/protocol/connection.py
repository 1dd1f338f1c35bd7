"""A connection that carries one client both ways, line by line: standard streams and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import UNSET

from waypost.errors import InvalidParams, ProtocolError
from waypost.loops import running_loop
from waypost.protocol import legacy, modern
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.legacy import Batch
from waypost.protocol.responses import Response
from waypost.protocol.session import LegacySession
from waypost.wire import messages, params
from waypost.wire.messages import Message, RequestId
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

_GRACE: Final = 1.0
_LISTEN: Final = "subscriptions/listen"


class Connection:
    """Takes messages in, runs their requests side by side, and writes what comes back."""

    def __init__(self, engine: Engine, write: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._write = write
        self._session: LegacySession | None = None
        self._modern: dict[RequestId, Exchange] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listening: set[asyncio.Task[Any]] = set()
        self._opening: list[bytes] | None = None

    def receive(self, data: bytes) -> None:
        """Take one message; the answer, if there is one, is written when it is ready."""
        if self._opening is not None:
            self._opening.append(data)
            return
        try:
            if data.lstrip()[:1] == b"[":
                self._receive_batch(data)
            else:
                self._dispatch(messages.parse(data))
        except ProtocolError as error:
            self._write(legacy.failed(error, messages.readable_id(data), LATEST_LEGACY).payload)

    async def finish(self, within: float) -> None:
        """Let what runs be answered, in so many seconds; those who listen wait for no answer."""
        until = running_loop().time() + within
        while (running := self._tasks - self._listening) and (left := until - running_loop().time()) > 0:
            await asyncio.wait(running, timeout=left)

    async def close(self) -> bool:
        """Stop everything that runs for this client; tells whether it did stop."""
        stubborn = set(self._tasks)
        for task in stubborn:
            task.cancel()
        if stubborn:
            _, stubborn = await asyncio.wait(stubborn, timeout=_GRACE)
        self._modern.clear()
        if self._session is not None:
            self._engine.sessions.close(self._session, "disconnected")
        return not stubborn

    async def send(self, message: bytes) -> None:
        """The outlet of every request: all share the connection."""
        self._write(message)

    async def close_early(self) -> None:
        """Nothing to close: the connection stays."""

    def _dispatch(self, message: Message) -> None:
        if message.method is UNSET or message.id is UNSET:
            self._take(message)
        elif modern.is_modern_request(message):
            exchange = Exchange(message.id, V2026_07_28, self)  # type: ignore[arg-type]  # requests have one
            self._modern[exchange.request_id] = exchange
            task = self._spawn(self._answer_modern(message, exchange))
            if message.method == _LISTEN:
                self._listening.add(task)
                task.add_done_callback(self._listening.discard)
        elif message.method == "initialize":
            self._opening = []
            self._spawn(self._initialize(message))
        elif self._session is None:
            self._spawn(self._answer_outside(message))
        else:
            exchange = legacy.exchange_for(self._session, message, self)
            self._session.running[exchange.request_id] = exchange
            self._spawn(self._answer_legacy(self._session, message, exchange))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _initialize(self, message: Message) -> None:
        """Open the session; what arrives meanwhile waits, because it belongs to it."""
        if self._session is not None:
            self._engine.sessions.close(self._session, "closed")
        self._session, outcome = await legacy.initialize(self._engine, message, attached=self._write)
        self._write(outcome.payload)
        waiting, self._opening = self._opening or [], None
        for late in waiting:
            self.receive(late)

    async def _answer_legacy(self, session: LegacySession, message: Message, exchange: Exchange) -> None:
        self._finish(await legacy.answer(self._engine, session, message, exchange))

    async def _answer_modern(self, message: Message, exchange: Exchange) -> None:
        try:
            self._finish(await modern.answer(self._engine, message, exchange))
        finally:
            if self._modern.get(exchange.request_id) is exchange:
                del self._modern[exchange.request_id]

    async def _answer_outside(self, message: Message) -> None:
        self._finish(await legacy.answer_outside(message))

    def _finish(self, outcome: Response | None) -> None:
        if outcome is not None:
            self._write(outcome.payload)

    def _take(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            self._cancel_modern(message)
        if self._session is not None:
            legacy.receive(self._engine, self._session, message, self)

    def _cancel_modern(self, message: Message) -> None:
        try:
            given = params.read(message.params, params.Cancelled)
        except InvalidParams:
            return
        exchange = None if given.request_id is UNSET else self._modern.get(given.request_id)
        if exchange is not None:
            exchange.cancel()

    def _receive_batch(self, data: bytes) -> None:
        batch = legacy.read_batch(self._session, data)
        for message in batch.notices:
            self._take(message)
        if batch.wants_answer and self._session is not None:
            self._spawn(self._answer_batch(self._session, batch))

    async def _answer_batch(self, session: LegacySession, batch: Batch) -> None:
        payload = await legacy.answer_batch(self._engine, session, batch, self)
        if payload:
            self._write(payload)
