"""Signing in: sessions in the store, one-time links, and a limit on wrong keys.

A session is a random token in a cookie. The store has its SHA-256 with the SHA-256 of the key that opened it, so that
every replica accepts it, signing out ends it on all of them at once, and it ends with its key. A sealed cookie would
save one read per page, but could not be ended before its time. Only one replica knows a hub's own key: a session of
that key also names the replica, and the others accept it while that replica is alive. As the SHA-256 of a hub's own key
signs one-time links, its sessions have a digest of it that signs nothing.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from waypost.capabilities.principals import Principal
from waypost.errors import StaleVersion
from waypost.identity.authentication import Authentication
from waypost.identity.keys import (
    SIGN_IN_TOKEN_TTL_S,
    Key,
    derive_link_key,
    digest_for_session,
    read_sign_in_token,
)
from waypost.identity.sign_in import ATTEMPT_TTL_S, Attempt
from waypost.stores.records import Entry
from waypost.stores.store import Store

COOKIE: Final = "waypost_session"
ATTEMPT_COOKIE: Final = "waypost_sign_in"
SESSION_TTL_S: Final = 12 * 3600.0
MAX_SESSIONS: Final = 1000
"""How many sessions there are in all; the oldest one ends for a new one."""
MAX_WRONG_KEYS: Final = 10
WRONG_KEY_WINDOW_S: Final = 60.0
"""How many wrong keys an address may send within a window."""
_MAX_ADDRESSES: Final = 1000
_SCOPE: Final = "console.sessions"
USED_LINKS: Final = "console.used_links"
"""The scope of the one-time tokens that were used, by their SHA-256: when each can be forgotten."""
_TOKEN_CHARACTERS: Final = 43
MAX_LINK_CHARACTERS: Final = 200
"""More than the token of any one-time link has."""


class _Person(msgspec.Struct, frozen=True):
    """A person whom the authorization server signed in, with the rights of that moment."""

    id: str
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    scopes: tuple[str, ...]
    issuer: str


class _OwnKey(msgspec.Struct, frozen=True):
    """The replica whose own key opened a session, and the rights of that key, which no other replica knows."""

    replica: str
    id: str
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    scopes: tuple[str, ...]
    digest: str = ""
    """That of the key for sessions, which cannot sign a link; empty in records of versions that had none."""


class _Stored(msgspec.Struct, frozen=True):
    key: str
    """The SHA-256 of the key; empty for a hub's own key, and where the authorization server signed the person in."""
    expires: float
    person: _Person | None = None
    own: _OwnKey | None = None


class LinkRedemption(msgspec.Struct, frozen=True):
    """A one-time link that was opened at another replica, and the SHA-256 of the session that it is to open there.

    The session itself is not sent: a listener on the bus could use it.
    """

    link: Annotated[str, Meta(max_length=MAX_LINK_CHARACTERS)]
    session: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Session(msgspec.Struct, frozen=True):
    """A person who is signed in."""

    token: str
    principal: Principal

    @property
    def csrf(self) -> str:
        """What every form of the session has to send: derived, so that it needs no place of its own."""
        return hmac.digest(self.token.encode(), b"waypost csrf", "sha256").hex()

    def accepts(self, csrf: str) -> bool:
        """Whether a request came from a form of this session."""
        return hmac.compare_digest(csrf.encode(), self.csrf.encode())


class Sessions:
    """All sessions of the console; `replica` is this one, `others` returns those that are alive beside it."""

    def __init__(
        self, store: Store, auth: Authentication, replica: str = "", others: Callable[[], Container[str]] = tuple
    ) -> None:
        self._state = store.state
        self._now: Callable[[], float] = store.now
        self._auth = auth
        self._replica = replica
        self._others = others

    async def open(self, key_hash: bytes) -> Session | None:
        """Begin a session with a key; `None` where the key is not accepted."""
        principal = self._auth.find_key(key_hash)
        if principal is None:
            return None
        session = Session(new_token(), principal)
        await self._write(digest_token(session.token), self._describe_key(key_hash))
        return session

    async def redeem_for(self, asked: LinkRedemption) -> bool:
        """Open a session for another replica with a link of this one's own key; false where it is not valid."""
        key_hash = await self.redeem(asked.link)
        if key_hash is None:
            return False
        await self._write(asked.session, self._describe_key(key_hash))
        return True

    async def open_for(self, principal: Principal) -> Session:
        """Begin a session for a person whom the authorization server signed in."""
        oauth = self._auth.oauth
        assert oauth is not None
        rights = (principal.roles, principal.permissions, principal.scopes)
        session = Session(new_token(), principal)
        await self._write(digest_token(session.token), _Stored("", 0, _Person(principal.id, *rights, oauth.issuer)))
        return session

    async def _write(self, digest: str, stored: _Stored) -> None:
        await self._make_room()
        stored = msgspec.structs.replace(stored, expires=self._now() + SESSION_TTL_S)
        await self._state.put(_SCOPE, digest, msgspec.to_builtins(stored))

    def _describe_key(self, key_hash: bytes) -> _Stored:
        """What the store keeps of the key that opens a session."""
        for key in self._auth.own_keys:
            if _hash_of(key) == key_hash:
                rights = (key.roles, key.permissions, key.scopes)
                return _Stored("", 0, own=_OwnKey(self._replica, key.id, *rights, digest_for_session(key_hash)))
        return _Stored(key_hash.hex(), 0)

    async def find(self, headers: Mapping[bytes, bytes]) -> Session | None:
        """The session of a request, while it lasts and its key is accepted."""
        token = read_cookie(headers)
        return None if token is None else await self.find_token(token)

    async def find_token(self, token: str) -> Session | None:
        """The session with a token, while it lasts and its key is accepted."""
        found = await self._state.get(_SCOPE, digest_token(token))
        if found is None:
            return None
        stored = msgspec.convert(found.value, _Stored)
        if stored.expires <= self._now():
            await self._remove(found)
            return None
        principal = self._find_principal(stored)
        if principal is None:
            # It stays in the store: a replica with another configuration, or the one whose own key it is, accepts it.
            return None
        await self._adopt(found, stored)
        return Session(token, principal)

    async def _adopt(self, entry: Entry, stored: _Stored) -> None:
        """Name this replica in a session of its own key if the one that opened it is gone.

        Processes of one `waypost serve` share the key, and each of them is a replica.
        """
        own = stored.own
        if own is None or own.replica == self._replica or own.replica in self._others():
            return
        named = msgspec.structs.replace(stored, own=msgspec.structs.replace(own, replica=self._replica))
        with suppress(StaleVersion):  # another process that shares the key was faster
            await self._state.put(entry.scope, entry.key, msgspec.to_builtins(named), entry.version)

    def _find_principal(self, stored: _Stored) -> Principal | None:
        person, oauth, own = stored.person, self._auth.oauth, stored.own
        if person is None:
            # Looked up for each request, so that revoking a key ends its sessions.
            if own is None:
                return self._auth.find_key(bytes.fromhex(stored.key))
            hashes = map(_hash_of, self._auth.own_keys)
            mine = next((one for one in hashes if digest_for_session(one) == own.digest), None)
            if mine is not None:
                return self._auth.find_key(mine)
            is_alive = own.replica in self._others()
            return Principal(own.id, own.roles, own.permissions, own.scopes) if is_alive else None
        # A hub that was started with another server, or without one, does not know the person any longer.
        if oauth is None or oauth.console is None or oauth.issuer != person.issuer:
            return None
        return Principal(person.id, person.roles, person.permissions, person.scopes)

    async def end(self, session: Session) -> None:
        """End a session on all replicas."""
        found = await self._state.get(_SCOPE, digest_token(session.token))
        if found is not None:
            await self._remove(found)

    async def redeem(self, token: str) -> bytes | None:
        """The SHA-256 of the hub's own key that made a one-time token, once in all processes that share the key."""
        now = self._now()
        for key in self._auth.own_keys:
            hashed = _hash_of(key)
            if read_sign_in_token(token, derive_link_key(hashed), now):
                return hashed if await self._use_link(token, now) else None
        return None

    async def _use_link(self, token: str, now: float) -> bool:
        """Remember a valid one-time token until it expires; returns whether it was not used before."""
        for entry in await self._state.page(USED_LINKS):
            if entry.value <= now:
                await self._remove(entry)
        try:
            # Of several that redeem it at the same time, one creates the entry. A token that is valid now expires at
            # most a second after the time that new ones have.
            await self._state.put(USED_LINKS, digest_token(token), now + SIGN_IN_TOKEN_TTL_S + 1)
        except StaleVersion:
            return False
        return True

    async def _make_room(self) -> None:
        entries = await self._state.page(_SCOPE, limit=2 * MAX_SESSIONS)
        ages = sorted((msgspec.convert(entry.value, _Stored).expires, entry) for entry in entries)
        now, surplus = self._now(), len(ages) - MAX_SESSIONS + 1
        for place, (expires, entry) in enumerate(ages):
            if expires <= now or place < surplus:
                await self._remove(entry)

    async def _remove(self, entry: Entry) -> None:
        try:
            await self._state.remove(entry.scope, entry.key, entry.version)
        except StaleVersion:
            return  # another request, or another replica, removed it


class WrongKeys:
    """Counts wrong keys by the address that sent them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}

    def is_blocked(self, address: str) -> bool:
        """Whether an address has to wait."""
        since, count = self._counts.get(address, (0.0, 0))
        return count >= MAX_WRONG_KEYS and self._clock() - since < WRONG_KEY_WINDOW_S

    def count(self, address: str) -> None:
        """Count a wrong key."""
        now = self._clock()
        since, count = self._counts.pop(address, (now, 0))
        if now - since >= WRONG_KEY_WINDOW_S:
            since, count = now, 0
        # Bounded, because the other side chooses its addresses.
        if len(self._counts) >= _MAX_ADDRESSES:
            del self._counts[next(iter(self._counts))]
        self._counts[address] = (since, count + 1)


def read_cookie(headers: Mapping[bytes, bytes]) -> str | None:
    """The token in the cookie of a request."""
    found = _find_cookie(headers, COOKIE)
    return found if found is not None and len(found) == _TOKEN_CHARACTERS else None


def _find_cookie(headers: Mapping[bytes, bytes], name: str) -> str | None:
    """The value of a cookie.

    Two different cookies of one name mean that another application of this host has set one for a path of the console,
    so that a person would act in a session of its choice: such a request has none.
    """
    pairs = (part.strip().partition("=") for part in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    found = {value for key, _, value in pairs if key == name}
    return found.pop() if len(found) == 1 else None


def read_attempt(headers: Mapping[bytes, bytes]) -> Attempt | None:
    """The sign-in at the authorization server that a browser has begun."""
    found = _find_cookie(headers, ATTEMPT_COOKIE)
    return None if found is None else Attempt.decode(found)


def write_attempt(attempt: Attempt | None, prefix: str, *, is_secure: bool) -> tuple[bytes, bytes]:
    """The header that sets the cookie of a sign-in that has begun, or removes it.

    It is Lax, because the authorization server sends the browser back: a Strict one would not be sent with that.
    """
    value, age = ("", 0) if attempt is None else (attempt.encode(), int(ATTEMPT_TTL_S))
    secure = "; Secure" if is_secure else ""
    text = f"{ATTEMPT_COOKIE}={value}; Path={prefix}/console/sign-in; Max-Age={age}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", text.encode()


def write_cookie(token: str, prefix: str, *, is_secure: bool) -> tuple[bytes, bytes]:
    """The header that sets the cookie, or removes it where the token is empty."""
    age = int(SESSION_TTL_S) if token else 0
    secure: Literal["; Secure", ""] = "; Secure" if is_secure else ""
    text = f"{COOKIE}={token}; Path={prefix}/console; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode()


def hash_key(key: str) -> bytes:
    """The SHA-256 by which a key is known."""
    return sha256(key.encode()).digest()


def new_token() -> str:
    """The token of a new session."""
    return secrets.token_urlsafe(32)


def digest_token(token: str) -> str:
    """The SHA-256 by which the store has a session or a used link."""
    return sha256(token.encode()).hexdigest()


def _hash_of(key: Key) -> bytes:
    return bytes.fromhex(key.hash.removeprefix("sha256:"))
