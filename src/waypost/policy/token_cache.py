"""Tokens that were good a moment ago."""

from __future__ import annotations

from collections.abc import Callable

from waypost.capabilities.principals import Principal
from waypost.policy.claims import Verified


class TokenCache:
    """Remembers whose token it was by the token's hash, as long as the verifier allows; the oldest gives way."""

    __slots__ = ("_clock", "_known", "_limit")

    def __init__(self, clock: Callable[[], float], limit: int = 4096) -> None:
        self._clock = clock
        self._limit = limit
        self._known: dict[bytes, Verified] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, hashed: bytes) -> Principal | None:
        """Whose token has this hash, if that may still be remembered."""
        found = self._known.get(hashed)
        if found is None:
            return None
        if found.until <= self._clock():
            del self._known[hashed]
            return None
        return found.principal

    def put(self, hashed: bytes, verified: Verified) -> None:
        """Remember a good token."""
        if verified.until <= self._clock():
            return
        self._known.pop(hashed, None)
        if len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        self._known[hashed] = verified
