"""Keys of the configuration and of the store; a key is shown once, when it is created."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from waypost.api.routing import Listing, ManagedHub
from waypost.errors import DefinitionError, InvalidParams, StoreError
from waypost.identity.key_ring import KeyEntry
from waypost.identity.keys import HUB, Key

# `$` alone would accept a line break at the end.
KeyId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:+-]{0,127}$(?!\n)", description="The id of the principal that uses the key"
    ),
]
Name = Annotated[str, Meta(min_length=1, max_length=128)]


class NewKey(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A key to create."""

    id: KeyId
    roles: tuple[Name, ...] = ()
    permissions: tuple[Name, ...] = ()
    scopes: tuple[Name, ...] = ()
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None


class CreatedKey(msgspec.Struct, frozen=True):
    """A new key; the hub cannot show it again."""

    id: str
    key: str


class KnownKey(msgspec.Struct, frozen=True, rename="camel"):
    """A key without its secret."""

    id: str
    source: Literal["configuration", "store"]
    status: Literal["good", "expired", "revoked"]
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class KnownKeys(Listing, frozen=True):
    """All keys, by id."""

    keys: list[KnownKey]


class Revoked(msgspec.Struct, frozen=True):
    """A key that was revoked."""

    id: str
    status: Literal["revoked"] = "revoked"


async def list_keys(hub: ManagedHub) -> KnownKeys:
    """List all keys, without the keys themselves."""
    entries = await hub.keys.entries()
    configured = [
        KnownKey(
            key.id, "configuration", _status(key.expires), key.roles, key.permissions, key.scopes, None, key.expires
        )
        for key in _configured_keys(hub, entries)
    ]
    return KnownKeys(sorted([*configured, *map(_from_store, entries)], key=lambda key: key.id))


async def create_key(hub: ManagedHub, body: NewKey) -> CreatedKey:
    """Create a key."""
    if body.expires_at is not None and body.expires_at.timestamp() <= time.time():
        raise InvalidParams("expiresAt is in the past.")
    if body.id == HUB:
        raise StoreError(f"The id {HUB} belongs to the hub itself; choose another.")
    if any(key.id == body.id for key in _configured_keys(hub, await hub.keys.entries())):
        raise StoreError(f"There is a key for {body.id} in the configuration already; choose another id.")
    expires = None if body.expires_at is None else body.expires_at.timestamp()
    try:
        key = await hub.keys.create(
            body.id, roles=body.roles, permissions=body.permissions, scopes=body.scopes, expires_at=expires
        )
    except DefinitionError as error:
        raise InvalidParams(error.message) from None
    return CreatedKey(body.id, key)


async def revoke_key(hub: ManagedHub, id: str) -> Revoked:
    """Revoke a key."""
    entries = await hub.keys.entries()
    if all(entry.id != id for entry in entries) and any(key.id == id for key in _configured_keys(hub, entries)):
        raise StoreError(f"The key of {id} is in the configuration; remove it there.")
    await hub.keys.revoke(id)
    return Revoked(id)


def _configured_keys(hub: ManagedHub, entries: list[KeyEntry]) -> list[Key]:
    """The keys of the configuration."""
    stored = {entry.hash for entry in entries}
    return [key for key in hub.authentication.keys if key.hash not in stored]


def _from_store(entry: KeyEntry) -> KnownKey:
    created, expires, revoked = map(_to_datetime, (entry.created_at, entry.expires_at, entry.revoked_at))
    status = _status(expires) if revoked is None else "revoked"
    rights = (entry.roles, entry.permissions, entry.scopes)
    return KnownKey(entry.id, "store", status, *rights, created, expires, revoked)


def _status(expires: datetime | None) -> Literal["good", "expired"]:
    return "expired" if expires is not None and expires <= datetime.now(UTC) else "good"


def _to_datetime(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


_DATES: Final = (datetime(2029, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))
NEW: Final = NewKey("ci", ("agent",), ("deploy",), (), _DATES[1])
_KNOWN: Final = KnownKey("ci", "store", "good", ("agent",), ("deploy",), (), *_DATES)
LIST: Final = KnownKeys([_KNOWN])
CREATED: Final = CreatedKey("ci", "wp_shown-only-now")
REVOKED: Final = Revoked("ci")
