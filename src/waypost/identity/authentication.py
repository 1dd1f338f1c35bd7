"""Authentication: a key or token becomes a principal; the section `auth`; sessions of revoked keys are closed."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from waypost import settings
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DefinitionError, WaypostError
from waypost.identity.claims import (
    Grants,
    InsufficientScope,
    InvalidToken,
    TokenCache,
    TrackedToken,
    TrackedTokens,
    Verified,
    VerifierUnavailable,
)
from waypost.identity.keys import HUB, PREFIX, Key, KeyChange, Keys, Watcher
from waypost.identity.oauth import MAX_TOKEN_CHARACTERS, ConsoleClient, Introspection, OAuthSettings, Shared, challenge
from waypost.loops import start_task

MISSING: Final = "Missing Authorization header"
INVALID: Final = "Invalid API key"
NOT_CONFIGURED: Final = "MCP API key not configured"
MALFORMED: Final = "Malformed Authorization header"
UNAVAILABLE: Final = "Authorization server unavailable"
INSUFFICIENT: Final = "Insufficient scope"

_log: Final = logging.getLogger(__name__)
_BEARER: Final = re.compile(rb"(?i:bearer) ([!-~]+)")
_WITH_TOKEN: Final = re.compile(rb"(?i:bearer)\s+\S", re.DOTALL)


class Unauthorized(WaypostError):
    """The request is refused."""

    def __init__(self, message: str | None = None, *, status: int = 401, challenge: str | None = "Bearer") -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge

    @property
    def body(self) -> dict[str, str]:
        """The body of the response."""
        return {"error": self.message}


class Authentication:
    """Accepts callers with a known key or a valid token, and anonymous ones where that is allowed.

    A key or token that is sent is always checked: a bad one is refused even where anonymous callers are accepted.
    `anonymous` is the principal of callers who send none, or `False`; by default they are accepted only where
    there are neither keys nor OAuth. With `lenient`, a key or token counts for nothing while there is nothing that it
    could be.
    """

    def __init__(
        self,
        keys: Keys | Iterable[Key] = (),
        oauth: OAuthSettings | None = None,
        anonymous: Principal | Literal[False] | None = None,
        *,
        lenient: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lenient = lenient
        self.keys = keys if isinstance(keys, Keys) else Keys(keys, clock=clock)
        self._written = tuple(self.keys)
        self.oauth = oauth
        self._own = Keys(clock=clock)
        if anonymous is None and not self.is_configured:
            anonymous = ANONYMOUS
        self._anonymous = copy(anonymous) if anonymous else None  # a copy: sessions are compared by identity
        self._verifier = None if oauth is None else oauth.verifier(clock)
        self._tokens = TokenCache(clock)
        asks = None if oauth is None else oauth.introspection
        self._tracked = None if asks is None else TrackedTokens(asks.remember, clock)
        """The tokens that the issuer may call inactive before they expire."""
        self._verifying: Shared[Verified] = Shared()
        self._catching_up: Shared[None] = Shared()
        asked = () if oauth is None else oauth.required_scopes or oauth.scopes
        self._challenge = challenge(oauth, asked)
        self._token_challenge = challenge(oauth, asked, error="invalid_token") if oauth else self._challenge
        self._form_challenge = challenge(oauth, asked, error="invalid_request") if oauth else self._challenge

    @property
    def allows_anonymous(self) -> bool:
        """Whether callers without a key or token are accepted."""
        return self._anonymous is not None

    @property
    def is_configured(self) -> bool:
        """Whether there are keys or OAuth."""
        return bool(self.keys) or self.oauth is not None

    @property
    def is_required(self) -> bool:
        """Whether the program or the configuration names keys or OAuth, or refuses anonymous callers."""
        return not self._lenient and (self.is_configured or not self.allows_anonymous)

    def admit(self, key: Key) -> None:
        """Accept a key of the hub itself, which does not count as configured."""
        self._own.add(key)

    def find_key(self, hashed: bytes) -> Principal | None:
        """The principal of the key with this SHA-256, while the key is accepted."""
        return self.keys.find(hashed) or self._own.find(hashed)

    @property
    def own_keys(self) -> list[Key]:
        """The keys of the hub itself, for programs on its machine."""
        return list(self._own)

    def exchange(self, other: Authentication) -> bool:
        """Accept the callers of another configuration from now on, besides keys that were created at run time.

        OAuth stays as it is; where the other configuration has a different one, anonymous callers that were refused
        stay refused. Returns False where a change has to wait for the next start.
        """
        is_same = self.oauth == other.oauth
        self.keys.exchange(self._written, other._written)
        self._written, self._lenient = other._written, other._lenient
        if is_same or self._anonymous is not None:
            self._set_anonymous(other._anonymous)
        return is_same

    def watch(self, report: Watcher | None) -> None:
        """Report callers that are refused from now on, or get other rights."""
        self.keys.on_change = report

    def report_expired(self) -> None:
        """Report the keys and tokens that expired since the last call."""
        self.keys.lapse()
        # The principal stays: its client comes back with a fresh token, and finds its sessions and tasks.
        self._report([KeyChange(principal, principal, True) for principal in self._tokens.pop_expired()])

    def find_due_tokens(self) -> list[TrackedToken]:
        """The tokens in use that the issuer has to be asked about again: none without introspection."""
        due = [] if self._tracked is None else self._tracked.find_due()
        for tracked in due:
            # The cache has no use for it any more, and would keep its principal in use.
            self._tokens.discard(tracked.hashed)
        return due

    async def recheck(self, tracked: TrackedToken) -> bool:
        """Ask the issuer about a token again, and end what is open for it as a new request would be refused.

        Returns False if the issuer could not be asked; that is a refusal, too.
        """
        try:
            await self._verified(tracked.token)
        except Unauthorized as error:
            self.refuse_tokens([tracked])
            return error.status != 503
        return True

    def refuse_tokens(self, refused: Sequence[TrackedToken]) -> None:
        """End what is open for tokens; the next request with one of them has it verified."""
        assert self._tracked is not None
        for tracked in refused:
            self._tokens.discard(tracked.hashed)
        self._report([change for tracked in refused for change in self._tracked.end(tracked)])

    def _report(self, changes: Sequence[KeyChange]) -> None:
        if changes and self.keys.on_change is not None:
            self.keys.on_change(changes)

    def _set_anonymous(self, anonymous: Principal | None) -> None:
        """Accept anonymous callers with other rights, or not at all."""
        before, report = self._anonymous, self.keys.on_change
        if before == anonymous:
            return
        self._anonymous = anonymous
        if before is not None and report is not None:
            report([KeyChange(before, anonymous, anonymous is None)])

    def known(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """The caller, if nothing has to be waited for to find out; else `authenticate` decides."""
        given = headers.get(b"authorization")
        if given is None:
            return self._anonymous
        catch_up = self.keys.catch_up
        return None if catch_up is not None and catch_up.is_due else self._find(given)

    def _find(self, given: bytes) -> Principal | None:
        found = _BEARER.fullmatch(given) if len(given) <= MAX_TOKEN_CHARACTERS else None
        # Found by its hash: comparing keys themselves would take the longer the more of a key is right.
        return None if found is None else self._remembered(sha256(found[1]).digest())

    async def authenticate(self, headers: Mapping[bytes, bytes]) -> Principal:
        """The caller, or `Unauthorized` with what to answer."""
        principal = self.known(headers)
        given, catch_up = headers.get(b"authorization"), self.keys.catch_up
        if principal is None and given is not None and catch_up is not None and catch_up.is_due:
            # Requests that arrive together read the keys once.
            await self._catching_up("keys", catch_up.read)
            principal = self._find(given)
        if principal is not None:
            return principal
        if self._anonymous is not None and self._ignores(headers[b"authorization"]):
            return self._anonymous
        token = self._presented(headers.get(b"authorization"))
        # A key of a hub, even a revoked or expired one, is never shown to an authorization server.
        if self._verifier is None or token.startswith(PREFIX) or self.keys.has(token):
            raise Unauthorized(INVALID, challenge=self._token_challenge)
        return await self._verified(token)

    def insufficient_scope(self, scopes: Iterable[str]) -> str:
        """The challenge of a 403: all scopes that the operation needs."""
        return challenge(self.oauth, scopes, error="insufficient_scope")

    def metadata(self) -> dict[str, Any] | None:
        """The protected resource metadata (RFC 9728), if there is OAuth."""
        return None if self.oauth is None else self.oauth.metadata()

    @property
    def metadata_paths(self) -> tuple[str, ...]:
        """The paths of `metadata`, which need no key."""
        return () if self.oauth is None else self.oauth.metadata_paths

    async def close(self) -> None:
        """End the connections to the authorization server."""
        if self._verifier is not None:
            await self._verifier.close()

    def _remembered(self, hashed: bytes) -> Principal | None:
        return self.keys.find(hashed) or self._own.find(hashed) or self._tokens.get(hashed)

    def _ignores(self, given: bytes) -> bool:
        """Whether a token is ignored; a key of a hub never is, because it may have been revoked."""
        return self._lenient and not self.is_configured and PREFIX.encode() not in given

    def _presented(self, given: bytes | None) -> str:
        """The token of a header whose caller is not known yet."""
        if not self.is_configured and not self.allows_anonymous:
            raise Unauthorized(NOT_CONFIGURED, challenge=self._challenge)
        if given is None or not _WITH_TOKEN.match(given):
            raise Unauthorized(MISSING, challenge=self._challenge)
        if len(given) > MAX_TOKEN_CHARACTERS:
            raise Unauthorized(INVALID, challenge=self._token_challenge)
        found = _BEARER.fullmatch(given)
        if found is None:
            raise Unauthorized(MALFORMED, status=400, challenge=self._form_challenge)
        return found[1].decode("ascii")

    async def _verified(self, token: str) -> Principal:
        assert self._verifier is not None
        verifier = self._verifier
        hashed = sha256(token.encode()).digest()
        try:
            # A client that sends many requests at once has its token verified once.
            verified = await self._verifying(hashed, lambda: verifier.verify(token))
        except InsufficientScope:
            assert self.oauth is not None
            needed = self.insufficient_scope(self.oauth.required_scopes)
            raise Unauthorized(INSUFFICIENT, status=403, challenge=needed) from None
        except InvalidToken as error:
            _log.debug("A token was refused: %s", error)
            # What is wrong with the token is only in the log.
            raise Unauthorized(INVALID, challenge=self._token_challenge) from None
        except VerifierUnavailable as error:
            _log.warning("A token was not checked: %s", error)
            # Without a challenge: it would have clients throw away a token that may be valid.
            raise Unauthorized(UNAVAILABLE, status=503, challenge=None) from None
        if self._tracked is not None:
            verified, changes = self._tracked.accept(hashed, token, verified)
            self._report(changes)
            if excess := self._tracked.evict():
                self.refuse_tokens(excess)
        return self._tokens.put(hashed, verified)


def authentication(auth: settings.Auth) -> Authentication:
    """Who may use the hub, as the section says."""
    oauth = None if auth.oauth is None else _oauth(auth.oauth)
    return Authentication([_key(key) for key in auth.keys], oauth, _anonymous(auth.anonymous))


def problems(auth: settings.Auth) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with the section, each with its key."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    keys = Keys()
    for place, key in enumerate(auth.keys):
        try:
            keys.add(_key(key))
        except DefinitionError as error:
            found.append((("keys", place), error.message))
        if key.id == HUB:
            found.append((("keys", place, "id"), f"The id {HUB} belongs to the hub itself; choose another."))
    if auth.oauth is not None:
        try:
            _oauth(auth.oauth).verifier()
        except DefinitionError as error:
            found.append((("oauth",), error.message))
    return found


def _key(key: settings.AuthKey) -> Key:
    try:
        expires = None if key.expires is None else datetime.fromisoformat(key.expires.upper())
    except ValueError:
        raise DefinitionError(f"The expiry of key {key.id!r} is not a valid time: {key.expires}.") from None
    return Key(key.id, key.hash, tuple(key.roles), tuple(key.permissions), tuple(key.scopes), expires)


def _oauth(oauth: settings.OAuth) -> OAuthSettings:
    asked, claims, console = oauth.introspection, oauth.claims, oauth.console
    return OAuthSettings(
        issuer=oauth.issuer,
        resource=oauth.resource,
        jwks=oauth.jwks if oauth.jwks is None or "://" in oauth.jwks else Path(oauth.jwks),
        introspection=None
        if asked is None
        else Introspection(
            endpoint=asked.endpoint,
            client_id=asked.client_id,
            client_secret=asked.client_secret,
            remember=asked.remember_ms / 1000,
            timeout=asked.timeout_ms / 1000,
        ),
        scopes=tuple(oauth.scopes),
        required_scopes=tuple(oauth.required_scopes),
        audiences=tuple(oauth.audiences),
        grants=Grants(id_claim=claims.id, roles_claim=claims.roles, permissions_claim=claims.permissions),
        console=None
        if console is None
        else ConsoleClient(
            client_id=console.client_id, client_secret=console.client_secret, scopes=tuple(console.scopes)
        ),
    )


def _anonymous(given: settings.Anonymous | bool | None) -> Principal | Literal[False] | None:
    if given is None or given is False:
        return given
    if given is True:
        return ANONYMOUS
    return Principal("anonymous", tuple(given.roles), tuple(given.permissions), tuple(given.scopes))


MAX_CONCURRENT_RECHECKS: Final = 16


class RecheckQueue:
    """Checks tokens again, a few at a time, on the loop that it is created on.

    `check` returns False if the issuer could not be asked, and ends what is open for a token that is refused. `refuse`
    ends it without a question.
    """

    def __init__(
        self, check: Callable[[TrackedToken], Awaitable[bool]], refuse: Callable[[Sequence[TrackedToken]], None]
    ) -> None:
        self._check = check
        self._refuse = refuse
        self._waiting: deque[TrackedToken] = deque()
        self._queued: set[bytes] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._failures = 0
        """How many checks in a row failed, because the issuer could not be asked."""

    def add(self, due: Sequence[TrackedToken], in_use: Container[int]) -> None:
        """Check those of the tokens again that something is open for: whose principal's `id()` is in use."""
        if not self._workers:
            self._failures = 0
        for tracked in due:
            if tracked.hashed not in self._queued and any(id(one) in in_use for one in tracked.principals):
                self._queued.add(tracked.hashed)
                self._waiting.append(tracked)
        for _ in range(min(len(self._waiting), MAX_CONCURRENT_RECHECKS - len(self._workers))):
            start_task(self._work(), self._workers)

    async def stop(self) -> None:
        """Stop checking."""
        self._waiting.clear()
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)

    async def _work(self) -> None:
        while self._waiting:
            # Each question takes its whole time at an issuer that does not answer: the tokens that still wait would be
            # accepted for minutes.
            if self._failures >= MAX_CONCURRENT_RECHECKS:
                refused = tuple(self._waiting)
                self._waiting.clear()
                self._queued.difference_update(one.hashed for one in refused)
                _log.warning("%s tokens in use are refused: the authorization server cannot be asked", len(refused))
                self._refuse(refused)
                return
            tracked = self._waiting.popleft()
            try:
                self._failures = 0 if await self._check(tracked) else self._failures + 1
            finally:
                self._queued.discard(tracked.hashed)


EXPIRY_CHECK_INTERVAL_S: Final = 1.0


class RevocationWatcher:
    """Reports keys that are revoked, from any thread, and keys and tokens that expire or become inactive.

    `find_in_use` returns the `id()` of each principal that something is open for; only the tokens of those are checked
    again. It is not called without introspection, nor before what is remembered of a token ends.
    """

    def __init__(
        self, auth: Authentication, report: Watcher, find_in_use: Callable[[], Container[int]] = frozenset
    ) -> None:
        self._auth = auth
        self._report = report
        self._find_in_use = find_in_use
        self._rechecks = RecheckQueue(auth.recheck, auth.refuse_tokens)
        self._loop = asyncio.get_running_loop()
        self._looking = self._loop.create_task(self._check_expiry())
        auth.watch(self._changed)

    @property
    def is_here(self) -> bool:
        """Whether the running loop is the one that gets the reports."""
        return self._loop is asyncio.get_running_loop()

    async def stop(self) -> None:
        """Stop reporting."""
        self._auth.watch(None)
        if self.is_here:  # else it ended with its loop
            self._looking.cancel()
            await asyncio.wait({self._looking})
            await self._rechecks.stop()

    def _changed(self, changes: Sequence[KeyChange]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nothing is open there
            self._loop.call_soon_threadsafe(self._report, changes)

    async def _check_expiry(self) -> None:
        """Check for expired keys and tokens every second: a timer would not notice that the clock is set."""
        while True:
            await asyncio.sleep(EXPIRY_CHECK_INTERVAL_S)
            self._auth.report_expired()
            if due := self._auth.find_due_tokens():
                self._rechecks.add(due, self._find_in_use())
