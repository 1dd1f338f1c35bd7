"""A connection that carries one client both ways, line by line: standard streams and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import UNSET

from waypost.errors import InvalidParams, InvalidRequest, ProtocolError
from waypost.protocol import legacy, modern
from waypost.protocol.answers import Outcome
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.sessions import LegacySession
from waypost.wire import messages, params
from waypost.wire.messages import Message, RequestId
from waypost.wire.versions import LATEST_LEGACY, V2025_03_26, V2026_07_28


class Connection:
    """Takes messages in, runs their requests side by side, and writes what comes back."""

    def __init__(self, engine: Engine, write: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._write = write
        self._session: LegacySession | None = None
        self._modern: dict[RequestId, Exchange] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def receive(self, data: bytes) -> None:
        """Take one message; the answer, if there is one, is written when it is ready."""
        try:
            if data.lstrip()[:1] == b"[":
                self._receive_batch(data)
            else:
                self._dispatch(messages.parse(data))
        except ProtocolError as error:
            self._write(legacy.failed(error, messages.readable_id(data), LATEST_LEGACY).payload)

    async def close(self) -> None:
        """Stop everything that runs for this client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            self._engine.sessions.close(self._session)

    async def send(self, message: bytes) -> None:
        """The outlet of every request: all share the connection."""
        self._write(message)

    async def close_early(self) -> None:
        """Nothing to close: the connection stays."""

    def _dispatch(self, message: Message) -> None:
        if message.method is UNSET:
            return
        if message.id is UNSET:
            self._notify(message)
        elif modern.is_modern_request(message):
            self._spawn(self._answer_modern(message))
        elif message.method == "initialize":
            self._initialize(message)
        elif self._session is None:
            self._spawn(self._answer_outside(message))
        else:
            self._spawn(self._answer_legacy(self._session, message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _initialize(self, message: Message) -> None:
        if self._session is not None:
            self._engine.sessions.close(self._session)
        self._session, outcome = legacy.initialize(self._engine, message, self._write)
        self._write(outcome.payload)

    async def _answer_legacy(self, session: LegacySession, message: Message) -> None:
        self._finish(await legacy.answer(self._engine, session, message, legacy.exchange_for(session, message, self)))

    async def _answer_modern(self, message: Message) -> None:
        exchange = Exchange(message.id, V2026_07_28, self)  # type: ignore[arg-type]  # requests have one
        self._modern[exchange.request_id] = exchange
        try:
            self._finish(await modern.answer(self._engine, message, exchange))
        finally:
            if self._modern.get(exchange.request_id) is exchange:
                del self._modern[exchange.request_id]

    async def _answer_outside(self, message: Message) -> None:
        self._finish(await legacy.answer_outside(message))

    def _finish(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._write(outcome.payload)

    def _notify(self, message: Message) -> None:
        if message.method == "notifications/cancelled":
            self._cancel_modern(message)
        if self._session is not None:
            legacy.notify(self._session, message)

    def _cancel_modern(self, message: Message) -> None:
        try:
            given = params.read(message.params, params.Cancelled)
        except InvalidParams:
            return
        exchange = None if given.request_id is UNSET else self._modern.get(given.request_id)
        if exchange is not None:
            exchange.cancel()

    def _receive_batch(self, data: bytes) -> None:
        if self._session is None or self._session.version != V2025_03_26:
            raise InvalidRequest("Batches are part of version 2025-03-26 only; send one message at a time.")
        session = self._session
        requests = []
        for part in messages.parse_batch(data):
            message = messages.parse(part)
            if message.id is UNSET or message.method is UNSET:
                self._dispatch(message)
            else:
                requests.append(message)
        if requests:
            self._spawn(self._answer_batch(session, requests))

    async def _answer_batch(self, session: LegacySession, requests: list[Message]) -> None:
        payload = await legacy.answer_batch(self._engine, session, requests, self)
        if payload:
            self._write(payload)
