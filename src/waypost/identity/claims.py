"""Claims of access tokens: what of them becomes roles, permissions and scopes, and the tokens that were verified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from weakref import ref

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import DefinitionError, WaypostError
from waypost.identity.keys import KeyChange

DEFAULT_LEEWAY_S: Final = 30.0
"""How far the clocks of an issuer and of this server may differ."""
_MAX_TIME: Final = 253_402_300_799
"""The end of the year 9999."""
_MAX_SUBJECT_CHARACTERS: Final = 255


class InvalidToken(WaypostError):
    """The token is not valid here."""


class InsufficientScope(InvalidToken):
    """The token lacks a scope that every request needs."""


class VerifierUnavailable(WaypostError):
    """Tokens cannot be checked at the moment."""


class Verified(msgspec.Struct, frozen=True):
    """Whose token it is, until when (in Unix time) that may be remembered, and when it is refused."""

    principal: Principal
    until: float
    ends: float


class Verifier(Protocol):
    """Returns whose token it is, or raises `InvalidToken` or `VerifierUnavailable`."""

    async def verify(self, token: str) -> Verified: ...
    async def close(self) -> None: ...


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """What the holder of a valid token gets.

    Every holder gets `roles` and `permissions`; `roles_claim` and `permissions_claim` name claims that add to them, by
    their name or as a dotted path. `id_claim` names the one that identifies the holder; the issuer must never give its
    value to another. `implied` maps a scope to the narrower ones it includes.
    """

    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    roles_claim: str | None = None
    permissions_claim: str | None = None
    id_claim: str = "sub"
    implied: Mapping[str, Iterable[str]] = {}

    def scopes(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """All scopes of a token, with those that they include."""
        found: dict[str, None] = {}
        waiting = [*_words(claims.get("scope")), *_words(claims.get("scp"))]
        # The list grows while it is walked: a scope may imply one that implies others.
        for scope in waiting:
            if scope not in found:
                found[scope] = None
                waiting.extend(self.implied.get(scope, ()))
        return tuple(found)

    def principal(self, issuer: str, claims: dict[str, Any]) -> Principal:
        """The holder of a token; one without an id is `InvalidToken`."""
        subject = _claim(claims, self.id_claim)
        if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT_CHARACTERS:
            raise InvalidToken("The token names no subject.")
        client = next((claims[name] for name in ("client_id", "azp", "cid") if isinstance(claims.get(name), str)), None)
        return Principal(
            # Two issuers may give one subject to different people.
            f"{issuer}|{subject}",
            roles=(*self.roles, *_words(_claim(claims, self.roles_claim))),
            permissions=(*self.permissions, *_words(_claim(claims, self.permissions_claim))),
            scopes=self.scopes(claims),
            claims=claims if client is None else {**claims, "client_id": client},
        )


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must say to be accepted by this server."""

    issuer: str
    audiences: frozenset[str]
    required_scopes: tuple[str, ...] = ()
    leeway: float = DEFAULT_LEEWAY_S
    needs_expiry: bool = True
    grants: Grants = Grants()

    def __post_init__(self) -> None:
        if not self.issuer:
            raise DefinitionError("OAuth needs an issuer.")
        if not self.audiences or "" in self.audiences:
            raise DefinitionError("OAuth needs the audience of this server's tokens.")

    def accept(self, claims: dict[str, Any], now: float, remember: float) -> Verified:
        """The holder of a token with these claims, to remember for so many seconds but never past its expiry.

        What does not fit is `InvalidToken`.
        """
        if claims.get("iss") != self.issuer:
            raise InvalidToken("The token is from another issuer.")
        # A string in `aud` is one audience, unlike a scope, which is words.
        if self.audiences.isdisjoint(_words(claims.get("aud"), separator=None)):
            raise InvalidToken("The token is for another audience.")
        expires = self._check_times(claims, now)
        principal = self.grants.principal(self.issuer, claims)
        if not set(self.required_scopes) <= set(principal.scopes):
            raise InsufficientScope()
        return Verified(principal, min(now + remember, expires), expires + self.leeway)

    def _check_times(self, claims: Mapping[str, Any], now: float) -> float:
        expires = _instant(claims, "exp")
        if expires is None and self.needs_expiry:
            raise InvalidToken("The token never expires.")
        expires = _MAX_TIME if expires is None else expires
        if expires + self.leeway <= now:
            raise InvalidToken("The token has expired.")
        for name in ("nbf", "iat"):
            begins = _instant(claims, name)
            if begins is not None and begins > now + self.leeway:
                raise InvalidToken("The token is not valid yet.")
        return expires


def audiences(given: str | Iterable[str]) -> frozenset[str]:
    """The audiences to accept; a host is the same resource with and without its final slash."""
    names = {given} if isinstance(given, str) else set(given)
    return frozenset(
        names
        | {name + "/" for name in names if _is_host(name) and not name.endswith("/")}
        | {name[:-1] for name in names if _is_host(name) and name.endswith("/")}
    )


def _is_host(name: str) -> bool:
    parts = urlsplit(name)
    return parts.scheme in ("http", "https") and parts.path in ("", "/") and not parts.query


def _instant(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _MAX_TIME:
        raise InvalidToken(f"The token's {name} is not a time.")
    return float(value)


def _words(value: Any, separator: str | None = " ") -> tuple[str, ...]:
    """A claim that is a list of strings, or one string that holds them."""
    if isinstance(value, str):
        return (value,) if separator is None else tuple(filter(None, value.split(separator)))
    if isinstance(value, list):
        return tuple(word for word in value if isinstance(word, str))
    return ()


def _claim(claims: Any, name: str | None) -> Any:
    if name is None or name in claims:
        return claims.get(name)
    for part in name.split("."):
        claims = claims.get(part) if isinstance(claims, dict) else None
    return claims


class TokenCache:
    """Caches the principals of verified tokens by hash, as long as the verifier allows; the oldest is dropped first.

    What is open for a token has to end with it, also when it is no longer remembered here. So every principal that was
    handed out is tracked until its token ends, by a weak reference: one that nothing is open for costs nothing.
    """

    __slots__ = ("_clock", "_ends", "_known", "_limit")

    def __init__(self, clock: Callable[[], float], limit: int = 4096) -> None:
        self._clock = clock
        self._limit = limit
        self._known: dict[bytes, Verified] = {}
        self._ends: dict[int, tuple[ref[Principal], float]] = {}
        """When the tokens of principals end, by the identity of the principal."""

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

    def put(self, hashed: bytes, verified: Verified) -> Principal:
        """Remember a good token; returns its principal."""
        principal = verified.principal
        key, ends = id(principal), self._ends
        ends[key] = (ref(principal, lambda _: ends.pop(key, None)), verified.ends)
        if verified.until <= self._clock():
            return principal
        self._known.pop(hashed, None)
        if len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        self._known[hashed] = verified
        return principal

    def discard(self, hashed: bytes) -> None:
        """Remember the token with this hash no longer."""
        self._known.pop(hashed, None)

    def pop_expired(self) -> list[Principal]:
        """The principals whose tokens ended since the last call."""
        now = self._clock()
        # A copy: the garbage collector may remove entries at any moment.
        expired = [key for key, (_, ends) in self._ends.copy().items() if ends <= now]
        found = [self._ends.pop(key)[0]() for key in expired]
        return [principal for principal in found if principal is not None]


MAX_TRACKED_TOKENS: Final = 20_000
"""More than may have a session or a stream open by default (`server.maxSessions`, `limits.maxStreams`)."""
MIN_RECHECK_INTERVAL_S: Final = 1.0
_EVICTED_AT_ONCE: Final = 100


class TrackedToken:
    """A token that was accepted, when it was checked last, and the principals that were handed out for it."""

    __slots__ = ("_principals", "checked_at", "hashed", "token")

    def __init__(self, hashed: bytes, token: str) -> None:
        self.hashed = hashed
        self.token = token
        self.checked_at = 0.0
        self._principals: list[ref[Principal]] = []

    @property
    def principals(self) -> list[Principal]:
        """The principals that are still in use, the newest last; more than one where its rights were changed."""
        return [found for one in self._principals if (found := one()) is not None]

    def add(self, principal: Principal) -> None:
        """Add the principal with its rights from now on."""
        self._principals = [ref(one) for one in (*self.principals, principal)]


class TrackedTokens:
    """Tracks accepted tokens while their principals are in use, the one that was checked longest ago first.

    The token itself is held, because the issuer can be asked about nothing else. Principals are held by weak
    references, so a token is forgotten some time after the last session and call that uses it.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float], limit: int = MAX_TRACKED_TOKENS) -> None:
        self._interval_s = max(interval_s, MIN_RECHECK_INTERVAL_S)
        self._clock = clock
        self._limit = limit
        self._tracked: dict[bytes, TrackedToken] = {}

    def __len__(self) -> int:
        return len(self._tracked)

    def accept(self, hashed: bytes, token: str, verified: Verified) -> tuple[Verified, list[KeyChange]]:
        """Track a token that was just verified; returns what to remember of it, and what changes for what is open.

        While its rights stay the same, a token keeps its principal: what is open is found by the principal's identity.
        """
        tracked = self._tracked.pop(hashed, None) or TrackedToken(hashed, token)
        # Behind all others: `find_due` and `evict` begin with the one that was checked longest ago.
        self._tracked[hashed] = tracked
        tracked.checked_at = self._clock()
        known = tracked.principals
        if known and known[-1] == verified.principal:
            return msgspec.structs.replace(verified, principal=known[-1]), []
        tracked.add(verified.principal)
        return verified, [_replace(one, verified.principal) for one in known]

    def find_due(self) -> list[TrackedToken]:
        """The tokens in use whose last check is no longer remembered."""
        latest, due = self._clock() - self._interval_s, []
        for tracked in tuple(self._tracked.values()):
            if tracked.checked_at > latest:
                break
            if tracked.principals:
                due.append(tracked)
            else:
                del self._tracked[tracked.hashed]
        return due

    def end(self, tracked: TrackedToken) -> list[KeyChange]:
        """Forget a token that is refused from now on; returns the end of what is open for it."""
        if self._tracked.get(tracked.hashed) is tracked:
            del self._tracked[tracked.hashed]
        # The principal stays: its client comes back with a fresh token, and finds its sessions and tasks.
        return [KeyChange(principal, principal, True) for principal in tracked.principals]

    def evict(self) -> list[TrackedToken]:
        """The tokens that are too many, those first that were checked longest ago: nothing is open for most of them."""
        excess = len(self._tracked) - self._limit
        # Many at once: each time, all sessions are searched for what is open.
        return list(self._tracked.values())[: excess + _EVICTED_AT_ONCE] if excess > 0 else []


def _replace(was: Principal, now: Principal) -> KeyChange:
    # What belongs to one principal never goes on as another, whatever the issuer says about a token later.
    return KeyChange(was, now, False) if was.id == now.id else KeyChange(was, was, True)
