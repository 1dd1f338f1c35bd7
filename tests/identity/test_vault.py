"""Credentials for upstreams, which only their owner can read."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.protocol.conftest import asynchronous
from waypost.errors import StoreDamaged
from waypost.identity.vault import Vault
from waypost.stores.directory import Secret
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

SECRET = b"s" * 32
TOKEN = {"token": "ghp_very_secret"}


def vault(store: Store, secret: bytes = SECRET) -> Vault:
    return Vault(Secret(Path(), secret), store)


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@asynchronous
async def test_a_credential_is_returned_for_its_owner_and_connection_only() -> None:
    kept = vault(Store(SqliteDatabase()))
    await kept.put("ada", "github", TOKEN)
    assert await kept.get("ada", "github") == TOKEN
    assert await kept.get("ada", "wiki") is None
    assert await kept.get("bob", "github") is None
    assert await kept.connections("ada") == ["github"]
    assert await kept.connections("bob") == []


@asynchronous
async def test_a_later_credential_replaces_an_earlier_one_and_can_be_deleted() -> None:
    kept = vault(Store(SqliteDatabase()))
    await asyncio.gather(*(kept.put("ada", "github", number) for number in range(10)))
    await kept.put("ada", "github", "last")
    assert await kept.get("ada", "github") == "last"
    assert await kept.forget("ada", "github")
    assert not await kept.forget("ada", "github")
    assert await kept.get("ada", "github") is None


@asynchronous
async def test_the_database_file_holds_no_credential_in_clear(tmp_path: Path) -> None:
    store = Store(SqliteDatabase(tmp_path / "store.db"))
    await vault(store).put("ada@example.com", "github", TOKEN)
    await store.close()
    written = everything_in(tmp_path)
    assert b"ghp_very_secret" not in written
    assert b"ada@example.com" not in written


@asynchronous
async def test_a_credential_that_was_moved_or_sealed_with_another_secret_is_refused(tmp_path: Path) -> None:
    store = Store(SqliteDatabase(tmp_path / "store.db"))
    kept = vault(store)
    await kept.put("ada", "github", TOKEN)
    await kept.put("ada", "wiki", "other")
    with pytest.raises(StoreDamaged, match="ada for github cannot be read"):
        await vault(store, b"t" * 32).get("ada", "github")
    with closing(apsw.Connection(str(tmp_path / "store.db"))) as file:
        file.execute("UPDATE state SET value = (SELECT value FROM state WHERE key = 'wiki') WHERE key = 'github'")
    with pytest.raises(StoreDamaged):
        await kept.get("ada", "github")
    await store.close()


@asynchronous
async def test_a_credential_of_an_earlier_version_is_read_and_encrypted_again() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    store = Store(SqliteDatabase())
    kept = vault(store)
    await kept.put("ada", "github", {"Authorization": "new"})
    [entry] = await store.state.page("credentials:" + hashlib.sha256(b"ada").hexdigest())
    old_key = hashlib.sha256(b"waypost credentials" + SECRET).digest()
    sealed = bytes(12) + AESGCM(old_key).encrypt(bytes(12), b'{"Authorization":"old"}', b'["ada","github"]')
    old = base64.b64encode(sealed).decode()
    await store.state.put(entry.scope, "github", old, entry.version)

    assert await kept.get("ada", "github") == {"Authorization": "old"}
    rewritten = await store.state.get(entry.scope, "github")
    assert rewritten is not None
    assert rewritten.value != old
    assert await kept.get("ada", "github") == {"Authorization": "old"}
    assert await store.state.get(entry.scope, "github") == rewritten
    await store.close()
