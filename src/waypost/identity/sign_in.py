"""Signing people in at the authorization server: OpenID Connect with the authorization code and PKCE.

The hub sends the browser to the server with a state, a nonce and the digest of a verifier, which the browser keeps in a
cookie. It comes back with a code, which the hub exchanges for an ID token. The state binds the answer to the browser,
the verifier binds the code to this attempt, and the nonce binds the token to it.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import DefinitionError, WaypostError
from waypost.identity.claims import InvalidToken, Terms, VerifierUnavailable
from waypost.identity.oauth import ConsoleClient, JwtVerifier, OAuthSettings, checked_url, fetch, open_egress

ATTEMPT_TTL_S: Final = 600.0
"""How long a person may take at the authorization server."""
_TIMEOUT_S: Final = 10.0
_FRESH_S: Final = 600.0
_DISCOVERY: Final = "/.well-known/openid-configuration"
_SECRET_CHARACTERS: Final = 43


class SignInFailed(WaypostError):
    """The authorization server did not sign the person in."""


class Attempt(msgspec.Struct, frozen=True):
    """What the browser keeps while the person is at the authorization server."""

    state: str
    nonce: str
    verifier: str
    next: str

    def encode(self) -> str:
        """As the value of a cookie."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Attempt | None:
        """What `encode` made; `None` for anything else."""
        try:
            found = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.MsgspecError):
            return None
        secret = (found.state, found.nonce, found.verifier)
        return found if all(len(one) == _SECRET_CHARACTERS for one in secret) else None


class Endpoints(msgspec.Struct, frozen=True):
    """What the discovery document of an authorization server names."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class ProviderSignIn:
    """Signs people in at one authorization server."""

    def __init__(self, oauth: OAuthSettings, client: ConsoleClient, clock: Callable[[], float] = time.time) -> None:
        self._oauth = oauth
        self._client = client
        self._clock = clock
        self._known: tuple[float, Endpoints, JwtVerifier] | None = None
        """The endpoints, the keys of the issuer, and until when both hold."""

    @property
    def name(self) -> str:
        """What people call the server: its host."""
        return urlsplit(self._oauth.issuer).netloc

    @property
    def redirect_uri(self) -> str:
        """Where the server sends the browser back to, beside the MCP endpoint; it has to be registered there."""
        return f"{self._oauth.canonical.removesuffix('/mcp')}/console/sign-in/callback"

    async def begin(self, target: str) -> tuple[str, Attempt]:
        """The address to send the browser to, and what it keeps meanwhile; `SignInFailed` without a server."""
        endpoints, _ = await self._discover()
        attempt = Attempt(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(32), target)
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self._client.scopes))),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": _challenge(attempt.verifier),
            "code_challenge_method": "S256",
        }
        mark = "&" if "?" in endpoints.authorization_endpoint else "?"
        return f"{endpoints.authorization_endpoint}{mark}{urlencode(asked)}", attempt

    async def finish(self, attempt: Attempt | None, answer: Mapping[str, str]) -> Principal:
        """The person that the server signed in; `SignInFailed` for anything that is not in order."""
        if attempt is None or not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise SignInFailed("This sign-in was not begun in this browser, or took too long; begin again.")
        # RFC 9207: where the server names itself, an answer that was obtained from another one is noticed.
        if answer.get("iss", self._oauth.issuer) != self._oauth.issuer:
            raise SignInFailed("The answer is from another authorization server; begin again.")
        if "error" in answer:
            raise SignInFailed(f"The authorization server refused: {_printable(answer['error'])}.")
        if not answer.get("code"):
            raise SignInFailed("The authorization server sent no code; begin again.")
        endpoints, verifier = await self._discover()
        token = (await self._exchange(endpoints, answer["code"], attempt.verifier)).get("id_token")
        if not isinstance(token, str):
            raise SignInFailed("The authorization server sent no ID token; does it support OpenID Connect?")
        try:
            principal = (await verifier.verify(token)).principal
        except InvalidToken as error:
            raise SignInFailed(f"The ID token is not valid: {error.message}") from None
        except VerifierUnavailable:
            raise SignInFailed("The keys of the authorization server cannot be read; try again.") from None
        self._check_claims(principal.claims or {}, attempt)
        return principal

    def _check_claims(self, claims: Mapping[str, Any], attempt: Attempt) -> None:
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), attempt.nonce.encode()):
            raise SignInFailed("The ID token belongs to another sign-in; begin again.")
        audience = claims.get("aud")
        # OpenID Connect Core, 3.1.3.7: of a token with several audiences, `azp` names the client it was issued to.
        is_shared = isinstance(audience, list) and len(audience) > 1
        if (is_shared or "azp" in claims) and claims.get("azp") != self._client.client_id:
            raise SignInFailed("The ID token is for another client.")

    async def _exchange(self, endpoints: Endpoints, code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": verifier,
        }
        headers = {}
        if self._client.client_secret is None:
            form["client_id"] = self._client.client_id
        else:
            pair = f"{quote_plus(self._client.client_id)}:{quote_plus(self._client.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return await self._fetch(endpoints.token_endpoint, "did not accept the code", form, headers)

    async def _discover(self) -> tuple[Endpoints, JwtVerifier]:
        if self._known is not None and self._known[0] > self._clock():
            return self._known[1:]
        place = self._oauth.issuer.rstrip("/") + _DISCOVERY
        document = await self._fetch(place, "cannot be reached")
        try:
            found = msgspec.convert(document, Endpoints)
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                checked_url(getattr(found, name), name)
        except (msgspec.ValidationError, DefinitionError) as error:
            raise SignInFailed(f"The discovery document of {self.name} cannot be used: {error}") from None
        if found.issuer != self._oauth.issuer:
            raise SignInFailed(f"The discovery document of {self.name} names another issuer.")
        terms = Terms(
            issuer=self._oauth.issuer,
            audiences=frozenset({self._client.client_id}),
            leeway=self._oauth.leeway,
            grants=self._oauth.grants,
        )
        verifier = JwtVerifier(terms, self._oauth.jwks or found.jwks_uri, clock=self._clock)
        self._known = (self._clock() + _FRESH_S, found, verifier)
        return found, verifier

    async def _fetch(
        self,
        url: str,
        problem: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        egress = open_egress()
        try:
            return await fetch(egress, url, _TIMEOUT_S, form, headers)
        except VerifierUnavailable:
            raise SignInFailed(f"The authorization server {self.name} {problem}; try again.") from None
        finally:
            await egress.close()


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


def _printable(text: str) -> str:
    return "".join(one for one in text[:80] if one.isprintable())
