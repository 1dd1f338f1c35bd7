"""Static keys: 256 random bits each, of which the hub keeps only the hash."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Final, NamedTuple, Protocol

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DefinitionError
from waypost.stores.directory import derive_key

PREFIX: Final = "wp_"
HUB: Final = "hub"
"""The id of the key that a hub leaves for programs on its machine."""
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


def new_key() -> str:
    """A fresh key; show it once and keep its `digest`."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    """What a configuration holds in place of the key."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


SIGN_IN_TOKEN_TTL_S: Final = 600.0
_SIGN_IN_TOKEN: Final = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{22})\.([0-9a-f]{64})")


def make_sign_in_token(key: str, now: float) -> str:
    """A token that signs its bearer in to the console once, within ten minutes, as the principal of a hub's own key.

    The program that serves the hub and programs that read the key from `hub.json` make it without asking the hub.
    """
    body = f"{int(now + SIGN_IN_TOKEN_TTL_S)}.{secrets.token_urlsafe(16)}"
    return f"{body}.{_sign_token(body, derive_link_key(sha256(key.encode()).digest()))}"


def read_sign_in_token(token: str, link_key: bytes, now: float) -> bool:
    """Whether a token that has not expired was signed with this key."""
    found = _SIGN_IN_TOKEN.fullmatch(token)
    if found is None or not now < int(found[1]) <= now + SIGN_IN_TOKEN_TTL_S + 1:
        return False
    return compare_digest(found[3], _sign_token(f"{found[1]}.{found[2]}", link_key))


def derive_link_key(hashed: bytes) -> bytes:
    """What signs the one-time links of the key with this SHA-256: of the hash, as the hub does not keep the key."""
    return derive_key(hashed, "sign-in links")


def digest_for_session(hashed: bytes) -> str:
    """What the sessions of a hub's own key have in place of its SHA-256, which could sign links."""
    return derive_key(hashed, "console sessions").hex()


def _sign_token(body: str, link_key: bytes) -> str:
    return hmac_digest(link_key, body.encode(), "sha256").hex()


class Key(msgspec.Struct, frozen=True):
    """What is known of a key: whose it is, its hash, what it allows and until when."""

    id: str
    hash: str
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    expires: datetime | None = None

    def __post_init__(self) -> None:
        if not self.id or self.id == ANONYMOUS.id:
            raise DefinitionError(f"A key cannot have the id {self.id!r}.")
        if not _HASH.fullmatch(self.hash):
            raise DefinitionError(f"The hash of key {self.id!r} must be 'sha256:' and 64 hexadecimal digits.")
        if self.expires is not None and self.expires.tzinfo is None:
            raise DefinitionError(f"The expiry of key {self.id!r} needs a time zone.")


class KeyChange(NamedTuple):
    """A caller is refused from now on, or has other rights; principals are compared by identity."""

    was: Principal
    now: Principal | None
    """The principal that replaces it: with the same key, or with another one of the same id."""
    ended: bool
    """Whether its key or token is refused from now on."""


Watcher = Callable[[Sequence[KeyChange]], None]


class _Entry(NamedTuple):
    digest: bytes
    key: Key
    principal: Principal
    expires: float


class CatchUp(Protocol):
    """Reads the keys that other replicas changed."""

    @property
    def is_due(self) -> bool:
        """Whether changes are not announced at the moment, so that they have to be read before a key counts."""

    async def read(self) -> None:
        """Read them; a store that does not answer leaves the keys as they were."""


class Keys:
    """Finds whose key was presented; several keys may share an id while one replaces the other."""

    def __init__(self, keys: Iterable[Key] = (), *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[bytes, _Entry] = {}
        self._soonest = float("inf")
        """When the next key expires that was not reported yet."""
        self.on_change: Watcher | None = None
        self.catch_up: CatchUp | None = None
        """Reads what other replicas changed, where a change there may not be known here at once."""
        for key in keys:
            self.add(key)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter([entry.key for entry in self._entries.values()])

    def add(self, key: Key) -> None:
        """Accept one more key from now on."""
        hashed = bytes.fromhex(key.hash.removeprefix("sha256:"))
        if hashed in self._entries:
            raise DefinitionError(f"The keys {self._entries[hashed].key.id!r} and {key.id!r} have the same hash.")
        principal = Principal(key.id, tuple(key.roles), tuple(key.permissions), tuple(key.scopes))
        expires = float("inf") if key.expires is None else key.expires.timestamp()
        self._entries[hashed] = _Entry(hashed, key, principal, expires)
        self._soonest = min(self._soonest, expires)

    def revoke(self, key_id: str) -> int:
        """Refuse all keys with this id from now on; how many there were."""
        stay = {hashed: entry for hashed, entry in self._entries.items() if entry.key.id != key_id}
        gone = len(self._entries) - len(stay)
        self._have(stay)
        return gone

    def drop(self, hashed: str) -> None:
        """Refuse one key from now on, by its hash."""
        gone = bytes.fromhex(hashed.removeprefix("sha256:"))
        self._have({hashed: entry for hashed, entry in self._entries.items() if hashed != gone})

    def exchange(self, old: Iterable[Key], new: Iterable[Key]) -> None:
        """Refuse some keys and accept others in one step; those that are in neither stay."""
        gone = {key.hash for key in old}
        stay = {hashed: entry for hashed, entry in self._entries.items() if entry.key.hash not in gone}
        others = {hashed: self._same(entry) for hashed, entry in Keys(new)._entries.items()}
        self._have({**stay, **others})

    def lapse(self) -> None:
        """Report the keys that expired since the last call."""
        now = self._clock()
        if now < self._soonest:
            return
        over = [entry for entry in self._entries.values() if self._soonest <= entry.expires <= now]
        self._soonest = min((one.expires for one in self._entries.values() if one.expires > now), default=float("inf"))
        self._report(over)

    def _same(self, entry: _Entry) -> _Entry:
        """The entry that there is already for the same key with the same rights."""
        known = self._entries.get(entry.digest)
        return entry if known is None or known.key != entry.key else known

    def _have(self, entries: dict[bytes, _Entry]) -> None:
        """Accept exactly these from now on."""
        # One assignment: a request finds all of the old keys or all of the new ones.
        before, self._entries = self._entries, entries
        self._soonest = min((self._soonest, *(entry.expires for entry in entries.values())))
        self._report([entry for hashed, entry in before.items() if entries.get(hashed) is not entry])

    def _report(self, old: Sequence[_Entry]) -> None:
        """Report entries that changed."""
        if not old or self.on_change is None:
            return
        now = self._clock()
        good = [entry for entry in self._entries.values() if entry.expires > now]
        by_hash = {entry.digest: entry.principal for entry in good}
        by_id = {entry.key.id: entry.principal for entry in good}
        self.on_change(
            [
                KeyChange(
                    entry.principal, by_hash.get(entry.digest, by_id.get(entry.key.id)), entry.digest not in by_hash
                )
                for entry in old
            ]
        )

    def principal(self, key: str) -> Principal | None:
        """The principal of a key; `None` if it is unknown, revoked or expired."""
        return self.find(sha256(key.encode()).digest())

    def has(self, key: str) -> bool:
        """Whether this is one of the keys, expired or not."""
        return sha256(key.encode()).digest() in self._entries

    def find(self, hashed: bytes) -> Principal | None:
        """Whose key has this SHA-256."""
        # By the digest: how long the lookup takes says nothing about a key, whose digest cannot be guessed bit by bit.
        entry = self._entries.get(hashed)
        if entry is None or not compare_digest(entry.digest, hashed) or entry.expires <= self._clock():
            return None
        return entry.principal
