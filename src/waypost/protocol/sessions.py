"""Sessions of clients that initialise: what the hub knows about each, when it forgets, and how one comes back."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import Busy, InvalidRequest, StaleVersion, StoreError, StoreUnavailable
from waypost.protocol.exchange import SILENT
from waypost.protocol.responses import REFUSED
from waypost.protocol.session import LegacySession, SessionHost
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.policy.keys import KeyChange

_log: Final = logging.getLogger(__name__)
_PATIENCE: Final = 1.0
_REMEMBERED: Final = 1000
_FOR_GOOD: Final = ("closed", "disconnected", "revoked")
"""The reasons to end after which a session cannot come back."""


class Sessions:
    """All sessions by id; idle ones end, and come back when their client does."""

    def __init__(
        self,
        host: SessionHost,
        *,
        idle: float,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._idle = idle
        self._limit = limit
        self._clock = clock
        self._sessions: dict[str, LegacySession] = {}
        self._recovering: dict[str, asyncio.Lock] = {}
        self._leaving: set[str] = set()
        self._left: deque[Principal] = deque(maxlen=_REMEMBERED)
        self.on_subscriptions: Callable[[], None] | None = None
        """Called when a session goes, or comes back, that hears of resources."""

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
        attached: Callable[[bytes], None] | None = None,
    ) -> LegacySession:
        """Open a session, or one that lives and ends with a connection; `Busy` when there are too many."""
        self.check_not_revoked(principal)
        session = self._open(secrets.token_urlsafe(24), version, client_info, client_capabilities, principal)
        if attached is not None:
            session.attach(attached)
        if not self._host.offers("logging"):
            session.log_level = SILENT
        try:
            await self._host.call_hook(session, "init", client_info)
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
        if self._host.store.database.is_shared and not await self._is_current(session):
            return None
        session.seen = self._clock()
        session.principal = principal
        return session

    def get(self, session_id: str) -> LegacySession | None:
        """The live session with that id."""
        return self._sessions.get(session_id)

    def close(self, session: LegacySession, reason: str) -> asyncio.Task[StoreError | None] | None:
        """End a session; unless it expired or the hub stops, it cannot come back once what is returned is done."""
        if not self._forget(session):
            return None
        self._host.background(self._terminate(session, reason))
        if reason not in _FOR_GOOD or session.is_attached:
            return None
        self._leaving.add(session.id)
        return self._host.background(self._delete(session.id))

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """End the sessions of who is let in no more; who has another key, or other rights, goes on with those."""
        self._left.extend(change.was for change in changes.values() if change.ended)
        for session in self:
            if session.is_attached:
                continue
            change = changes.get(id(session.principal))
            now = session.principal if change is None else change.now
            if now is None:
                self.close(session, "revoked")
            else:
                session.principal = now
                session.apply_key_changes(changes)

    def check_not_revoked(self, principal: Principal) -> None:
        """Refuse who was let in when the request began and is no more, before anything opens that lasts."""
        if self._has_left(principal):
            raise InvalidRequest(REFUSED.message)

    def _has_left(self, principal: Principal) -> bool:
        return any(gone is principal for gone in self._left)

    def release(self) -> None:
        """Let everybody go who waits for news."""
        for session in self:
            session.release()

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
        """Remember a session; while the store cannot be used, it lives on here all the same."""
        if session.is_attached:
            return
        async with session.saving:
            try:
                await self._save_merged(session)
            except StoreUnavailable as error:
                _log.warning("a session is not kept: %s", error.message)

    async def _save_merged(self, session: LegacySession) -> None:
        while True:
            saved = set(session.unsaved)
            try:
                record = await self._host.store.sessions.save(session.record())
            except StaleVersion:
                stored = await self._host.store.sessions.load(session.id)
                if stored is None:
                    return
                level, subscriptions = session.log_level, set(session.subscriptions)
                session.restore(stored)
                session.log_level, session.subscriptions = level, subscriptions
            else:
                session.revision = record.revision
                session.unsaved -= saved
                return

    async def _is_current(self, session: LegacySession) -> bool:
        """Whether a session still exists on a store that other hubs use too; what they changed is taken over."""
        try:
            async with asyncio.timeout(_PATIENCE):
                if await self._host.store.sessions.revision(session.id) == session.revision:
                    return True
                async with session.saving:
                    stored = await self._host.store.sessions.load(session.id)
        except (StoreUnavailable, TimeoutError):
            return True  # it lives on here, as long as nobody can say otherwise
        if stored is None and session.revision > 0:
            self.close(session, "closed")
            return False
        if stored is not None and stored.revision > session.revision:
            session.restore(stored)
        return True

    def _forget(self, session: LegacySession) -> bool:
        if self._sessions.get(session.id) is not session:
            return False
        del self._sessions[session.id]
        session.end()
        if session.subscriptions and self.on_subscriptions is not None:
            self.on_subscriptions()
        return True

    async def _delete(self, session_id: str) -> StoreError | None:
        try:
            await self._host.store.sessions.delete(session_id)
        except StoreError as error:
            _log.warning("a session was not forgotten: %s", error.message)
            return error
        finally:
            self._leaving.discard(session_id)
        return None

    async def _terminate(self, session: LegacySession, reason: str) -> None:
        with suppress(Exception):  # logged where it was raised; the session is over all the same
            await self._host.call_hook(session, "terminate", reason)

    async def _recover(self, session_id: str, principal: Principal) -> LegacySession | None:
        async with self._recovering.setdefault(session_id, asyncio.Lock()):
            try:
                return self._sessions.get(session_id) or await self._bring_back(session_id, principal)
            finally:
                self._recovering.pop(session_id, None)

    async def _bring_back(self, session_id: str, principal: Principal) -> LegacySession | None:
        record = await self._host.store.sessions.load(session_id)
        if record is None or record.principal != principal.id or self._has_left(principal):
            return None
        info = msgspec.convert(record.client_info, Implementation)
        session = self._open(session_id, record.version, info, record.client_capabilities, principal)
        session.restore(record)
        if session.subscriptions and self.on_subscriptions is not None:
            self.on_subscriptions()
        try:
            told = await self._host.call_hook(session, "session_expired", session_id)
            session.client_info = info if told is None else _renamed(record.client_info, told)
        except Exception:  # logged where it was raised
            self._forget(session)
            return None
        if told is not None:
            await session.save()
        return session


def _renamed(known: Mapping[str, Any], told: Any) -> Implementation:
    try:
        return msgspec.convert({**known, **msgspec.to_builtins(told)}, Implementation)
    except (TypeError, msgspec.ValidationError) as error:
        _log.error("the hook session_expired returned neither None nor a client's info: %s", error)
        raise
