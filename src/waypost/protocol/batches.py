"""Batches, which 2025-03-26 has: several messages at once, each taken or refused by itself."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET

from waypost.capabilities.principals import Principal
from waypost.errors import InvalidRequest, ProtocolError
from waypost.protocol import legacy
from waypost.protocol.answers import Outcome
from waypost.protocol.engine import Engine
from waypost.protocol.failures import STOPPING
from waypost.protocol.session import LegacySession
from waypost.protocol.streams import Outlet
from waypost.wire import messages
from waypost.wire.messages import Message
from waypost.wire.versions import V2025_03_26


class Batch(msgspec.Struct):
    """What came at once: requests, messages that want no answer, and the responses to what is neither."""

    requests: list[Message]
    notices: list[Message]
    refusals: list[bytes]
    answers: list[asyncio.Task[Outcome | None]] = []

    @property
    def wants_answer(self) -> bool:
        """Whether there is anything to say to it."""
        return bool(self.requests or self.refusals)


def read(session: LegacySession | None, data: bytes) -> Batch:
    """The batch in `data`; a version without batches, and what is none, is a `ProtocolError`."""
    if session is None or session.version != V2025_03_26:
        raise InvalidRequest("Batches are part of version 2025-03-26 only; send one message at a time.")
    batch = Batch([], [], [])
    for part in messages.parse_batch(data):
        try:
            message = messages.parse(part)
        except ProtocolError as error:
            batch.refusals.append(legacy.failed(error, messages.readable_id(part), session.version).payload)
            continue
        is_request = message.method is not UNSET and message.id is not UNSET
        (batch.requests if is_request else batch.notices).append(message)
    return batch


async def answer(
    engine: Engine, session: LegacySession, batch: Batch, outlet: Outlet, principal: Principal | None = None
) -> bytes:
    """The responses to a batch as one array; empty if there is none because its requests were cancelled."""
    loop = asyncio.get_running_loop()
    exchanges = [legacy.exchange_for(session, message, outlet) for message in batch.requests]
    for exchange in exchanges:
        exchange.principal = principal or session.principal
    pairs = zip(batch.requests, exchanges, strict=True)
    batch.answers = [loop.create_task(legacy.answer(engine, session, *pair)) for pair in pairs]
    return _array(batch, await asyncio.gather(*batch.answers))


def stopped(batch: Batch) -> bytes:
    """The responses to a batch whose answer was cancelled: to what did not end, that the hub stops."""
    pairs = zip(batch.requests, batch.answers, strict=True)
    return _array(
        batch,
        [
            STOPPING.outcome(message.id) if answer.cancelled() else answer.result()  # type: ignore[arg-type]  # requests have one
            for message, answer in pairs
        ],
    )


def _array(batch: Batch, outcomes: list[Outcome | None]) -> bytes:
    told = [*batch.refusals, *(outcome.payload for outcome in outcomes if outcome is not None)]
    return b"[" + b",".join(told) + b"]" if told else b""
