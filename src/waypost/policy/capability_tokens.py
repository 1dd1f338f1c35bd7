"""Capability tokens: what one execution may do, passed on to what it calls, and only ever narrowed.

A token is its permissions and caveats as JSON, and an HMAC over them. To narrow one is to add a caveat and to sign that
with the old signature as the key, so that no caveat can be removed. To check one is to sign all its parts in order,
from the root key on. An unknown caveat denies.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from waypost.errors import WaypostError

_INFO: Final = b"waypost capability tokens"
MIN_SECRET_BYTES: Final = 32
MAX_TOKEN_CHARACTERS: Final = 8192
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class TokenRefused(WaypostError):
    """invalid capability token"""


class Rights(msgspec.Struct, frozen=True):
    """What a token grants now."""

    permissions: frozenset[str]
    run: str = ""

    def require(self, permission: str) -> None:
        """Refuse what is not granted."""
        if permission not in self.permissions:
            raise TokenRefused(f"token does not grant {permission}")


class CapabilityTokens:
    """Mints, narrows and checks tokens under one secret."""

    def __init__(self, secret: bytes | None = None, *, clock: Callable[[], float] = time.time) -> None:
        if secret is not None and len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"The secret of capability tokens takes at least {MIN_SECRET_BYTES} bytes.")
        self._root = _derived(secret or secrets.token_bytes(32))
        self._clock = clock

    def mint(
        self,
        permissions: Iterable[str],
        *,
        depth: int | None = None,
        expires_at: float | None = None,
        audience: str | None = None,
        run: str | None = None,
    ) -> str:
        """A token for one execution."""
        caveats = _caveats(depth=depth, expires_at=expires_at, audience=audience, run=run)
        parts = [["permissions", sorted(permissions)], *caveats]
        return self._sealed([secrets.token_hex(8), *parts])

    def narrow(
        self,
        token: str,
        permissions: Iterable[str] | None = None,
        *,
        depth: int | None = None,
        expires_at: float | None = None,
        audience: str | None = None,
        run: str | None = None,
    ) -> str:
        """The token with less: the permissions it shares with these, and further caveats."""
        parts, signature = self._opened(token)
        added = [] if permissions is None else [["permissions", sorted(permissions)]]
        added += _caveats(depth=depth, expires_at=expires_at, audience=audience, run=run)
        for part in added:
            signature = _signed(signature, part)
        return _written([*parts, *added], signature)

    def check(self, token: str, *, depth: int, audience: str) -> Rights:
        """What a token grants at a depth and for an audience; `TokenRefused` says why it grants nothing."""
        parts, _ = self._opened(token)
        granted: frozenset[str] | None = None
        run = ""
        for kind, value in parts[1:]:
            if kind == "permissions":
                named = frozenset(value)
                granted = named if granted is None else granted & named
            elif kind == "expires_at":
                if self._clock() >= value:
                    raise TokenRefused("capability token expired")
            elif kind == "depth":
                if depth > value:
                    raise TokenRefused("token max depth exceeded")
            elif kind == "audience":
                if audience != value:
                    raise TokenRefused("token is for another audience")
            elif kind == "run":
                if run not in ("", value):
                    raise TokenRefused("token belongs to another run")
                run = value
            else:
                raise TokenRefused(f"unknown caveat {kind}")
        return Rights(granted or frozenset(), run)

    def _sealed(self, parts: list[Any]) -> str:
        signature = self._root
        for part in parts:
            signature = _signed(signature, part)
        return _written(parts, signature)

    def _opened(self, token: str) -> tuple[list[Any], bytes]:
        """The parts of a token and its signature, which is right."""
        try:
            if len(token) > MAX_TOKEN_CHARACTERS:
                raise TokenRefused
            body, _, given = token.partition(".")
            parts = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            claimed = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
            if not _is_token(parts) or _written(parts, claimed) != token:
                raise TokenRefused
        except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
            raise TokenRefused from None
        signature = self._root
        for part in parts:
            signature = _signed(signature, part)
        if not hmac.compare_digest(signature, claimed):
            raise TokenRefused
        return parts, signature


def _derived(secret: bytes) -> bytes:
    """A key for nothing but these tokens: HKDF (RFC 5869) with SHA-256, whose first block is all that is needed."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), _INFO + b"\x01", "sha256")


def _is_token(parts: Any) -> bool:
    return (
        isinstance(parts, list)
        and len(parts) > 1
        and isinstance(parts[0], str)
        and all(isinstance(part, list) and len(part) == 2 and isinstance(part[0], str) for part in parts[1:])
        and all(
            isinstance(value, list) and all(isinstance(one, str) for one in value)
            for kind, value in parts[1:]
            if kind == "permissions"
        )
        and all(
            isinstance(value, int | float) and not isinstance(value, bool)
            for kind, value in parts[1:]
            if kind in ("depth", "expires_at")
        )
    )


def _caveats(**given: Any) -> list[list[Any]]:
    return [[kind, value] for kind, value in given.items() if value is not None]


def _signed(key: bytes, part: Any) -> bytes:
    return hmac.digest(key, _encode(part), "sha256")


def _written(parts: list[Any], signature: bytes) -> str:
    body = base64.urlsafe_b64encode(_encode(parts)).rstrip(b"=")
    return f"{body.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
