"""Sessions of clients that initialise: what the hub knows about each, when it forgets, and how one comes back."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import Busy
from waypost.protocol.session import LegacySession, SessionHost
from waypost.stores.sessions import SessionStore
from waypost.wire.definitions import Implementation


class Sessions:
    """All sessions by id; idle ones end, and come back when their client does."""

    def __init__(
        self,
        host: SessionHost,
        store: SessionStore,
        *,
        idle: float,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._store = store
        self._idle = idle
        self._limit = limit
        self._clock = clock
        self._sessions: dict[str, LegacySession] = {}
        self._recovering: dict[str, asyncio.Lock] = {}
        self._leaving: set[str] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LegacySession]:
        return iter(tuple(self._sessions.values()))

    async def create(
        self,
        version: str,
        client_info: Implementation,
        client_capabilities: Mapping[str, Any],
        principal: Principal = ANONYMOUS,
    ) -> LegacySession:
        """Open a session; `Busy` when there are too many."""
        session = self._open(secrets.token_urlsafe(24), version, client_info, client_capabilities, principal)
        try:
            await self._host.tell(session, "init", client_info)
            await session.save()
        except BaseException:
            self._forget(session)
            raise
        return session

    async def find(self, session_id: str, principal: Principal = ANONYMOUS) -> LegacySession | None:
        """The session with that id, which is active now; one that ended comes back, somebody else's does not exist."""
        session = self._sessions.get(session_id)
        if session is None and session_id not in self._leaving:
            session = await self._recover(session_id, principal)
        if session is None or session.principal.id != principal.id:
            return None
        session.seen = self._clock()
        return session

    def get(self, session_id: str) -> LegacySession | None:
        """The live session with that id."""
        return self._sessions.get(session_id)

    def close(self, session: LegacySession, reason: str) -> None:
        """End a session; unless it expired or the hub stops, it cannot come back."""
        if not self._forget(session):
            return
        if reason in ("closed", "disconnected"):
            self._leaving.add(session.id)
            self._host.background(self._delete(session.id))
        self._host.background(self._terminate(session, reason))

    def release(self) -> None:
        """End everything that runs for anybody."""
        for session in self:
            session.end()

    def sweep(self) -> None:
        """End the sessions that have been idle for too long."""
        now = self._clock()
        for session in self:
            if session.is_busy:
                session.seen = now
            elif now - session.seen > self._idle:
                self.close(session, "expired")

    def _open(
        self,
        session_id: str,
        version: str,
        client_info: Implementation,
        client_capabilities: Mapping[str, Any],
        principal: Principal,
    ) -> LegacySession:
        if len(self._sessions) >= self._limit:
            self.sweep()
        if len(self._sessions) >= self._limit:
            raise Busy(f"{self._limit} sessions are open already (maxSessions); try again later.")
        session = LegacySession(
            session_id, version, client_info, client_capabilities, principal, self._host, self._save
        )
        session.seen = self._clock()
        self._sessions[session_id] = session
        return session

    async def _save(self, session: LegacySession) -> None:
        await self._store.save(session.record())

    def _forget(self, session: LegacySession) -> bool:
        if self._sessions.get(session.id) is not session:
            return False
        del self._sessions[session.id]
        session.end()
        return True

    async def _delete(self, session_id: str) -> None:
        try:
            await self._store.delete(session_id)
        finally:
            self._leaving.discard(session_id)

    async def _terminate(self, session: LegacySession, reason: str) -> None:
        with suppress(Exception):  # logged where it was raised; the session is over all the same
            await self._host.tell(session, "terminate", reason)

    async def _recover(self, session_id: str, principal: Principal) -> LegacySession | None:
        async with self._recovering.setdefault(session_id, asyncio.Lock()):
            try:
                return self._sessions.get(session_id) or await self._bring_back(session_id, principal)
            finally:
                self._recovering.pop(session_id, None)

    async def _bring_back(self, session_id: str, principal: Principal) -> LegacySession | None:
        record = await self._store.load(session_id)
        if record is None or record.principal != principal.id:
            return None
        info = msgspec.convert(record.client_info, Implementation)
        session = self._open(session_id, record.version, info, record.client_capabilities, principal)
        session.restore(record)
        try:
            told = await self._host.tell(session, "session_expired", session_id)
        except Exception:
            self._forget(session)
            return None
        if told is not None:
            session.client_info = msgspec.convert({**record.client_info, **told}, Implementation)
            await session.save()
        return session
