"""OAuth for a resource server: settings, metadata, challenges, and introspection of opaque tokens."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlsplit

from waypost.errors import DefinitionError
from waypost.identity.claims import DEFAULT_LEEWAY_S, Grants, InvalidToken, Terms, Verified, Verifier, audiences
from waypost.identity.tokens import ALGORITHMS, JwtVerifier, checked_url, fetch, new_session

if TYPE_CHECKING:
    import aiohttp


@dataclass(frozen=True, kw_only=True)
class Introspection:
    """Where to ask about tokens, as which client, and for how many seconds an answer is remembered."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    remember: float = 10.0
    timeout: float = 5.0

    def __post_init__(self) -> None:
        checked_url(self.endpoint, "introspection endpoint")

    def authorization(self) -> str:
        """The header with which this server names itself to the endpoint."""
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


class IntrospectionVerifier:
    """Checks tokens by asking their issuer whether they are active."""

    def __init__(self, terms: Terms, introspection: Introspection, *, clock: Callable[[], float] = time.time) -> None:
        self._terms = terms
        self._asked = introspection
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def verify(self, token: str) -> Verified:
        """Whose token this is."""
        if self._session is None:
            self._session = new_session(self._asked.timeout)
        claims = await fetch(
            self._session,
            self._asked.endpoint,
            form={"token": token, "token_type_hint": "access_token"},
            headers={"Authorization": self._asked.authorization()},
        )
        if claims.get("active") is not True:
            raise InvalidToken("The token is not active.")
        claims.setdefault("iss", self._terms.issuer)
        return self._terms.accept(claims, self._clock(), self._asked.remember)

    async def close(self) -> None:
        """End the connections to the endpoint."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_URL: Final = re.compile(r"https?://[!-~]+")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")


@dataclass(frozen=True, kw_only=True)
class OAuthSettings:
    """Whose tokens this server accepts.

    `resource` is the URL of its MCP endpoint as clients see it, and the audience of its tokens; `audiences` are further
    ones. Tokens are checked with the issuer's public keys (`jwks`: a URL, a file, or the set itself) or by asking the
    issuer (`introspection`). `scopes` are those to advertise to clients, `required_scopes` those that every token must
    have.
    """

    issuer: str
    resource: str
    jwks: str | Path | Mapping[str, Any] | None = None
    introspection: Introspection | None = None
    scopes: tuple[str, ...] = ()
    required_scopes: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
    leeway: float = DEFAULT_LEEWAY_S
    grants: Grants = field(default_factory=Grants)

    def __post_init__(self) -> None:
        if (self.jwks is None) == (self.introspection is None):
            raise DefinitionError("OAuth needs either the issuer's keys (jwks) or its introspection endpoint.")
        for name, url in (("issuer", self.issuer), ("resource", self.resource)):
            if not _URL.fullmatch(url) or '"' in url or not urlsplit(url).hostname:
                raise DefinitionError(f"The OAuth {name} must be a URL.")
        if "#" in self.resource or "?" in self.resource:
            raise DefinitionError("The OAuth resource must be a URL without query and fragment.")
        for scope in (*self.scopes, *self.required_scopes):
            if not _SCOPE.fullmatch(scope) or scope == "offline_access":
                raise DefinitionError(f"There can be no scope {scope!r} here.")

    @property
    def canonical(self) -> str:
        """The resource as it is published: without a final slash."""
        return self.resource.rstrip("/")

    @property
    def metadata_url(self) -> str:
        """Where a client reads about this resource."""
        parts = urlsplit(self.canonical)
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"

    @property
    def metadata_paths(self) -> tuple[str, ...]:
        """The paths that answer with `metadata`."""
        return tuple(dict.fromkeys((WELL_KNOWN, WELL_KNOWN + urlsplit(self.canonical).path)))

    def metadata(self) -> dict[str, Any]:
        """The document a client finds its authorization server with."""
        scopes = list(dict.fromkeys((*self.required_scopes, *self.scopes)))
        return {
            "resource": self.canonical,
            "authorization_servers": [self.issuer],
            **({"scopes_supported": scopes} if scopes else {}),
            "bearer_methods_supported": ["header"],
        }

    def verifier(self, clock: Callable[[], float] = time.time) -> Verifier:
        """What checks the tokens."""
        terms = Terms(
            issuer=self.issuer,
            audiences=audiences({self.resource, self.canonical, *self.audiences}),
            required_scopes=self.required_scopes,
            leeway=self.leeway,
            needs_expiry=self.introspection is None,
            grants=self.grants,
        )
        if self.introspection is not None:
            return IntrospectionVerifier(terms, self.introspection, clock=clock)
        assert self.jwks is not None
        return JwtVerifier(terms, self.jwks, algorithms=self.algorithms, clock=clock)


def challenge(settings: OAuthSettings | None, scopes: Iterable[str] = (), error: str | None = None) -> str:
    """The value of `WWW-Authenticate`."""
    wanted = " ".join(scope for scope in scopes if _SCOPE.fullmatch(scope))
    parameters = {
        "error": error,
        "resource_metadata": settings and settings.metadata_url,
        "scope": wanted or None,
    }
    said = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value is not None)
    return f"Bearer {said}" if said else "Bearer"
