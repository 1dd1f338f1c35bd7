"""Credentials of users for upstream servers, encrypted at rest, each for its owner alone."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion, StoreDamaged
from waypost.stores.directory import Secret
from waypost.stores.store import Store

_NONCE: Final = 12
_SCOPE: Final = "credentials:"


class Vault:
    """The credentials of each principal for each connection."""

    def __init__(self, secret: Secret, store: Store) -> None:
        self._secret = secret
        self._store = store

    async def put(self, principal: str, connection: str, credential: Any) -> None:
        """Keep a credential, in place of the one before."""
        sealed = self._sealed(credential, principal, connection)
        while True:
            found = await self._store.state.get(_scope(principal), connection)
            try:
                await self._store.state.put(_scope(principal), connection, sealed, found.version if found else 0)
            except StaleVersion:
                continue
            return

    async def get(self, principal: str, connection: str) -> Any:
        """The credential, or nothing."""
        found = await self._store.state.get(_scope(principal), connection)
        return None if found is None else self._opened(found.value, principal, connection)

    async def forget(self, principal: str, connection: str) -> bool:
        """Remove a credential; whether there was one."""
        while True:
            found = await self._store.state.get(_scope(principal), connection)
            if found is None:
                return False
            try:
                await self._store.state.remove(_scope(principal), connection, found.version)
            except StaleVersion:
                continue
            return True

    async def connections(self, principal: str) -> list[str]:
        """The connections for which a principal has a credential."""
        return [entry.key for entry in await self._store.state.page(_scope(principal))]

    def _key(self) -> bytes:
        return hashlib.sha256(b"waypost credentials" + self._secret.read()).digest()

    def _sealed(self, credential: Any, principal: str, connection: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        plain = msgspec.json.encode(credential)
        sealed = AESGCM(self._key()).encrypt(nonce, plain, _binding(principal, connection))
        return base64.b64encode(nonce + sealed).decode()

    def _opened(self, sealed: Any, principal: str, connection: str) -> Any:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            raw = base64.b64decode(sealed, validate=True)
            plain = AESGCM(self._key()).decrypt(raw[:_NONCE], raw[_NONCE:], _binding(principal, connection))
        except (InvalidTag, ValueError, TypeError):
            raise StoreDamaged(
                f"The credential of {principal} for {connection} cannot be read: it or the hub's secret was changed."
            ) from None
        return msgspec.json.decode(plain)


def _scope(principal: str) -> str:
    """Long names do not fit a key, so each stands for itself by its hash."""
    return _SCOPE + hashlib.sha256(principal.encode()).hexdigest()


def _binding(principal: str, connection: str) -> bytes:
    return msgspec.json.encode([principal, connection])
