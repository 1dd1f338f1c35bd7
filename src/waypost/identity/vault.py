"""Credentials of users for upstream servers, encrypted at rest, each for its owner alone."""

from __future__ import annotations

import base64
import hashlib
import os
from contextlib import suppress
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion, StoreDamaged
from waypost.stores.directory import Secret, derive_key
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
                # The last credential counts: where another was stored meanwhile, the next round replaces it.
                await self._store.state.put(_scope(principal), connection, sealed, found.version if found else 0)
            except StaleVersion:
                continue
            return

    async def get(self, principal: str, connection: str) -> Any:
        """The credential, or nothing."""
        found = await self._store.state.get(_scope(principal), connection)
        if found is None:
            return None
        credential, is_current = self._opened(found.value, principal, connection)
        if not is_current:
            with suppress(StaleVersion):  # another call has written it since
                sealed = self._sealed(credential, principal, connection)
                await self._store.state.put(_scope(principal), connection, sealed, found.version)
        return credential

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

    def _keys(self) -> tuple[bytes, bytes]:
        """The key, and the one that credentials were sealed with before keys were derived by HKDF."""
        secret = self._secret.read()
        return derive_key(secret, "credentials"), hashlib.sha256(b"waypost credentials" + secret).digest()

    def _sealed(self, credential: Any, principal: str, connection: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        plain = msgspec.json.encode(credential)
        sealed = AESGCM(self._keys()[0]).encrypt(nonce, plain, _binding(principal, connection))
        return base64.b64encode(nonce + sealed).decode()

    def _opened(self, sealed: Any, principal: str, connection: str) -> tuple[Any, bool]:
        """A credential, and whether it is sealed with the current key."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, old_key = self._keys()
        with suppress(ValueError, TypeError):
            raw = base64.b64decode(sealed, validate=True)
            for one in (key, old_key):
                with suppress(InvalidTag):
                    plain = AESGCM(one).decrypt(raw[:_NONCE], raw[_NONCE:], _binding(principal, connection))
                    return msgspec.json.decode(plain), one is key
        raise StoreDamaged(
            f"The credential of {principal} for {connection} cannot be read: it or the hub's secret was changed."
        )


def _scope(principal: str) -> str:
    """Long names do not fit a key, so each stands for itself by its hash."""
    return _SCOPE + hashlib.sha256(principal.encode()).hexdigest()


def _binding(principal: str, connection: str) -> bytes:
    # Authenticated with the credential: a row that is copied to another principal or connection cannot be opened.
    return msgspec.json.encode([principal, connection])
