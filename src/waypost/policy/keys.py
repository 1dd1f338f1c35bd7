"""Static keys: 256 random bits each, of which the hub keeps only the hash."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Final, NamedTuple

import msgspec

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DefinitionError

PREFIX: Final = "wp_"
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


def new_key() -> str:
    """A fresh key; show it once and keep its `digest`."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    """What a configuration holds in place of the key."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


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


class _Entry(NamedTuple):
    digest: bytes
    key: Key
    principal: Principal
    expires: float


class Keys:
    """Finds whose key was presented; several keys may share an id while one replaces the other."""

    def __init__(self, keys: Iterable[Key] = (), *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[bytes, _Entry] = {}
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

    def revoke(self, key_id: str) -> int:
        """Refuse all keys with this id from now on; how many there were."""
        gone = [hashed for hashed, entry in self._entries.items() if entry.key.id == key_id]
        for hashed in gone:
            del self._entries[hashed]
        return len(gone)

    def drop(self, hashed: str) -> None:
        """Refuse one key from now on, by its hash."""
        self._entries.pop(bytes.fromhex(hashed.removeprefix("sha256:")), None)

    def exchange(self, old: Iterable[Key], new: Iterable[Key]) -> None:
        """Refuse some keys and accept others in one step; those that are in neither stay."""
        gone = {key.hash for key in old}
        stay = {hashed: entry for hashed, entry in self._entries.items() if entry.key.hash not in gone}
        self._entries = {**stay, **Keys(new)._entries}

    def principal(self, key: str) -> Principal | None:
        """Whose key this is; nobody's when it is unknown, revoked or expired."""
        return self.find(sha256(key.encode()).digest())

    def find(self, hashed: bytes) -> Principal | None:
        """Whose key has this SHA-256."""
        entry = self._entries.get(hashed)
        if entry is None or not compare_digest(entry.digest, hashed) or entry.expires <= self._clock():
            return None
        return entry.principal
