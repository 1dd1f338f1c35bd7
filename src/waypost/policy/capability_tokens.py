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
from typing import Annotated, Any, Final

import msgspec

from waypost.errors import WaypostError
from waypost.stores.directory import derive_key

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
    """Mints, narrows and checks tokens under one secret, by default one that ends with the process."""

    def __init__(self, secret: bytes | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._root = derive_key(secret or secrets.token_bytes(32), "capability tokens")
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
        parts = _caveats(permissions, depth=depth, expires_at=expires_at, audience=audience, run=run)
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
        added = _caveats(permissions, depth=depth, expires_at=expires_at, audience=audience, run=run)
        return _written([*parts, *added], _signed(signature, added))

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
                # A caveat that is not understood may forbid this call, so it forbids all.
                raise TokenRefused(f"unknown caveat {kind}")
        return Rights(granted or frozenset(), run)

    def _sealed(self, parts: list[Any]) -> str:
        return _written(parts, _signed(self._root, parts))

    def _opened(self, token: str) -> tuple[list[Any], bytes]:
        """The parts of a token and its signature, which is right."""
        try:
            if len(token) > MAX_TOKEN_CHARACTERS:
                raise TokenRefused
            body, _, given = token.partition(".")
            parts = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            claimed = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
            _check_parts(parts)
            # Only the canonical form: base64 and JSON have several spellings of the same parts.
            if _written(parts, claimed) != token:
                raise TokenRefused
        except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
            raise TokenRefused from None
        signature = _signed(self._root, parts)
        if not hmac.compare_digest(signature, claimed):
            raise TokenRefused
        return parts, signature


_VALUES: Final[dict[str, Any]] = {"permissions": list[str], "depth": float, "expires_at": float}
"""The types of the values of caveats that are compared or counted."""


def _check_parts(parts: Any) -> None:
    """Raise `ValidationError` for parts that are not those of a token."""
    nonce, *caveats = msgspec.convert(parts, Annotated[list[Any], msgspec.Meta(min_length=2)])
    msgspec.convert(nonce, str)
    for kind, value in msgspec.convert(caveats, list[tuple[str, Any]]):
        msgspec.convert(value, _VALUES.get(kind, Any))


def _caveats(permissions: Iterable[str] | None, **given: Any) -> list[list[Any]]:
    granted = [] if permissions is None else [["permissions", sorted(permissions)]]
    return [*granted, *([kind, value] for kind, value in given.items() if value is not None)]


def _signed(signature: bytes, parts: Iterable[Any]) -> bytes:
    """The signature after further parts: each is signed with the one before it as the key."""
    for part in parts:
        signature = hmac.digest(signature, _encode(part), "sha256")
    return signature


def _written(parts: list[Any], signature: bytes) -> str:
    body = base64.urlsafe_b64encode(_encode(parts)).rstrip(b"=")
    return f"{body.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
