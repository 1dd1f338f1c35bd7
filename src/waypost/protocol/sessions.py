"""All sessions of a server: opened, found, expired, recovered from the store."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import Busy, InvalidParams, InvalidRequest, StaleVersion, StoreError, StoreUnavailable
from waypost.loops import KeyLocks
from waypost.protocol.relay import SESSION_CHANGED, Liveness
from waypost.protocol.responses import KEY_REVOKED
from waypost.protocol.session import DEFAULT_LOG_LEVEL, HUB_STOPPED, HubStopped, LegacySession, SessionHost
from waypost.protocol.streams import Recorder, SessionStreams, StreamMemory
from waypost.settings import Limits
from waypost.wire.definitions import Implementation
from waypost.wire.messages import encode

if TYPE_CHECKING:
    from waypost.identity.keys import KeyChange

_log: Final = logging.getLogger(__name__)
# Each request of a session waits for this where replicas share the store: a slow store must not hold them all up.
_STORE_TIMEOUT_S: Final = 1.0
_SWEEP_PAUSE_S: Final = 1.0
"""How often all sessions are looked at for idle ones while there are too many."""
_MAX_REVOKED: Final = 1000
_FINAL_REASONS: Final = ("closed", "disconnected", "revoked")
"""The reasons to end a session after which it cannot be recovered."""


class Sessions:
    """Sessions by id; idle ones end, and are recovered from the store when their client comes back."""

    def __init__(
        self,
        host: SessionHost,
        liveness: Liveness,
        *,
        idle: float,
        limit: int,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self.liveness = liveness
        self._idle = idle
        self._limit = limit
        self._limits = limits
        self._clock = clock
        self._sessions: dict[str, LegacySession] = {}
        self._held: Counter[str] = Counter()
        """How many sessions each principal has."""
        self._last_sweep = float("-inf")
        self._recovering = KeyLocks()
        self._recorder = Recorder(host, idle, limits)
        self.stream_memory = StreamMemory(limits)
        self._deleting: set[str] = set()
        # A request that began before its key was revoked must not open a session after it.
        self._revoked: deque[Principal] = deque(maxlen=_MAX_REVOKED)
        self.on_subscriptions: Callable[[LegacySession, Collection[str]], None] | None = None
        """Called with the subscriptions that a session has from now on, when it ends or is recovered."""

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
        log_level: int = DEFAULT_LOG_LEVEL,
    ) -> LegacySession:
        """Open a session, attached to a connection where one is given; `Busy` when there are too many."""
        self.check_not_revoked(principal)
        # Both are kept as long as the session, thousands of which may be open.
        size = len(encode((client_info, client_capabilities)))
        if size > self._limits.max_client_bytes:
            limit = self._limits.max_client_bytes
            raise InvalidParams(
                f"clientInfo and capabilities have {size} bytes; the limit is {limit} (maxClientBytes)."
            )
        session = self._open(secrets.token_urlsafe(24), version, client_info, client_capabilities, principal)
        if attached is not None:
            session.attach(attached)
        session.log_level = log_level
        try:
            await self._host.call_hook(session, "init", client_info)
            await session.save()
        except BaseException:
            self._forget(session)
            raise
        return session

    async def find(self, session_id: str, principal: Principal = ANONYMOUS) -> LegacySession | None:
        """The session with that id, recovered if need be; `None` for one that is unknown or another principal's."""
        # An unknown id is looked for in the store; so is another principal's, or the time would tell the two apart.
        session = self._get_own(session_id, principal) or await self._recover(session_id, principal)
        if session is None:
            return None
        if self._host.store.database.is_shared and not await self._is_current(session):
            return None
        session.last_seen = self._clock()
        session.principal = principal
        return session

    def _get_own(self, session_id: str, principal: Principal) -> LegacySession | None:
        session = self._sessions.get(session_id)
        return session if session is not None and session.principal.id == principal.id else None

    def now(self) -> float:
        """The time by the clock of `last_seen`."""
        return self._clock()

    def get(self, session_id: str) -> LegacySession | None:
        """The live session with that id."""
        return self._sessions.get(session_id)

    def close(self, session: LegacySession, reason: str) -> asyncio.Task[StoreError | None] | None:
        """End a session; where it must not be recovered, the task that deletes it is returned."""
        if not self._forget(session, is_revoked=reason == "revoked"):
            return None
        self._host.background(self._call_terminate_hook(session, reason))
        if reason not in _FINAL_REASONS or session.is_attached:
            return None
        self._deleting.add(session.id)
        return self._host.background(self._delete(session.id))

    def apply_key_changes(self, changes: Mapping[int, KeyChange]) -> None:
        """End the sessions of revoked keys; principals with another key, or other rights, continue with those."""
        self._revoked.extend(change.was for change in changes.values() if change.ended)
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
        """Refuse a principal whose key was revoked since its request began, before anything is opened that lasts."""
        if self._is_revoked(principal):
            raise InvalidRequest(KEY_REVOKED.message)

    def _is_revoked(self, principal: Principal) -> bool:
        # By identity: the principal may have come back with another key, and has the same id then.
        return any(gone is principal for gone in self._revoked)

    def release(self) -> None:
        """End all general streams and questions, because the hub stops."""
        for session in self:
            session.release(HubStopped(HUB_STOPPED))

    def sweep(self) -> None:
        """End the sessions that were idle for too long."""
        now = self._last_sweep = self._clock()
        for session in self:
            if session.is_busy:
                session.last_seen = now
            elif now - session.last_seen > self._idle:
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
            self._make_room(principal)
        record = self._recorder.for_session(session_id)
        streams = SessionStreams(session_id, principal.id, record, self.stream_memory, self.liveness)
        session = LegacySession(
            session_id, version, client_info, client_capabilities, principal, self._host, self._save, streams
        )
        session.last_seen = self._clock()
        self._sessions[session_id] = session
        self._held[principal.id] += 1
        return session

    def _make_room(self, principal: Principal) -> None:
        """End sessions of the principal that has most, for one that has less than its share; `Busy` for any other.

        They are those that were used least recently, and come back when their client does and there is room. Several
        end at once, because finding them takes a look at all sessions.
        """
        if self._clock() - self._last_sweep >= _SWEEP_PAUSE_S:
            self.sweep()
            if len(self._sessions) < self._limit:
                return
        # One principal with many sessions must not keep all others out.
        share = max(1, self._limit // len({*self._held, principal.id}))
        largest, held = self._held.most_common(1)[0]
        ended: list[LegacySession] = []
        if self._held[principal.id] < share and largest != principal.id:
            own = (session for session in self if session.principal.id == largest and not session.is_attached)
            ended = sorted(own, key=lambda session: (session.is_busy, session.last_seen))
        if not ended:
            raise Busy(f"{self._limit} sessions are open already (maxSessions); try again later.")
        for session in ended[: max(1, min(held - share, self._limit // 100))]:
            self.close(session, "expired")

    async def _save(self, session: LegacySession) -> None:
        """Write a session to the store; while that cannot be used, the session lives on here all the same."""
        if session.is_attached:
            return
        async with session.saved.lock:
            try:
                await self._save_merged(session)
            except StoreUnavailable as error:
                _log.warning("a session was not stored: %s", error)

    async def _save_merged(self, session: LegacySession) -> None:
        # Rows are fenced by their revision. Where another replica wrote first, its values are taken over, and what was
        # changed here wins.
        while True:
            # A copy, because values that are put during the write stay unsaved.
            saved = set(session.saved.unsaved_keys)
            try:
                record = await self._host.store.sessions.save(session.record())
            except StaleVersion:
                stored = await self._host.store.sessions.load(session.id)
                # Another replica ended the session; written again, it would come back.
                if stored is None:
                    return
                session.restore(stored)
            else:
                session.saved.note(record)
                session.saved.unsaved_keys -= saved
                if record.revision > 1:  # no other replica knows a new session
                    self._announce(session.id)
                return

    def _announce(self, session_id: str) -> None:
        if self.liveness.relay is not None:
            self.liveness.relay.announce(SESSION_CHANGED, session_id)

    async def refresh(self, session_id: str) -> None:
        """Take over what another replica changed in a session that is open here, or end it where that one did."""
        session = self._sessions.get(session_id)
        if session is not None and not session.is_attached:
            await self._is_current(session)

    async def _is_current(self, session: LegacySession) -> bool:
        """Whether a session still exists in a store that other replicas use too; their changes are taken over."""
        if not self._host.store.database.is_responding:
            return True  # it lives on here while the store cannot say otherwise
        try:
            async with asyncio.timeout(_STORE_TIMEOUT_S):
                if await self._host.store.sessions.revision(session.id) == session.saved.revision:
                    return True
                # Under the lock: a write of this process that is under way would look like one of another replica.
                async with session.saved.lock:
                    stored = await self._host.store.sessions.load(session.id)
        except (StoreUnavailable, TimeoutError):
            return True
        # Without a revision it was never stored, and that it is not there says nothing.
        if stored is None and session.saved.revision > 0:
            self.close(session, "closed")
            return False
        if stored is not None and stored.revision > session.saved.revision:
            before = session.subscriptions
            session.restore(stored)
            if session.subscriptions != before and self.on_subscriptions is not None:
                self.on_subscriptions(session, session.subscriptions)
        return True

    def _forget(self, session: LegacySession, *, is_revoked: bool = False) -> bool:
        # Compared by identity: a session of the same id may have been recovered meanwhile.
        if self._sessions.get(session.id) is not session:
            return False
        del self._sessions[session.id]
        self._held[session.principal.id] -= 1
        if not self._held[session.principal.id]:
            del self._held[session.principal.id]
        session.end(is_revoked=is_revoked)
        if self.liveness.relay is not None:
            self.liveness.relay.streams.forget(session.id)
        if session.subscriptions and self.on_subscriptions is not None:
            self.on_subscriptions(session, ())
        return True

    async def _delete(self, session_id: str) -> StoreError | None:
        try:
            await self._host.store.sessions.delete(session_id)
            self._recorder.forget(session_id)
            self._announce(session_id)
        except StoreError as error:
            _log.warning("a session was not deleted from the store: %s", error)
            return error
        finally:
            self._deleting.discard(session_id)
        return None

    async def _call_terminate_hook(self, session: LegacySession, reason: str) -> None:
        with suppress(Exception):  # logged where it was raised; the session has ended all the same
            await self._host.call_hook(session, "terminate", reason)

    async def _recover(self, session_id: str, principal: Principal) -> LegacySession | None:
        # Requests that arrive together must recover the session once.
        async with self._recovering[session_id]:
            return self._get_own(session_id, principal) or await self._load(session_id, principal)

    async def _load(self, session_id: str, principal: Principal) -> LegacySession | None:
        record = await self._host.store.sessions.load(session_id)
        if record is None or record.principal != principal.id or self._is_revoked(principal):
            return None
        # Its row is still there for a moment, and would bring back a session that has ended.
        if session_id in self._deleting:
            return None
        info = msgspec.convert(record.client_info, Implementation)
        session = self._open(session_id, record.version, info, record.client_capabilities, principal)
        session.restore(record)
        if session.subscriptions and self.on_subscriptions is not None:
            self.on_subscriptions(session, session.subscriptions)
        try:
            changed = await self._host.call_hook(session, "session_expired", session_id)
            session.client_info = info if changed is None else _merge_info(record.client_info, changed)
        except Exception:  # logged where it was raised
            self._forget(session)
            return None
        if changed is not None:
            await session.save()
        return session


def _merge_info(known: Mapping[str, Any], changed: Any) -> Implementation:
    try:
        return msgspec.convert({**known, **msgspec.to_builtins(changed)}, Implementation)
    except (TypeError, msgspec.ValidationError) as error:
        _log.error("the hook session_expired returned neither None nor a client's info: %s", error)
        raise
