"""Opaque tokens: the authorization server is asked about each (RFC 7662)."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from waypost.policy.claims import Grants, InvalidToken, Terms, Verified, audiences
from waypost.policy.fetching import checked_url, fetch, new_session

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
    """Checks tokens by asking their issuer whether they are active, and meant for `audience`."""

    def __init__(
        self,
        issuer: str,
        audience: str | Iterable[str],
        introspection: Introspection,
        *,
        leeway: float = 30.0,
        required_scopes: Iterable[str] = (),
        grants: Grants | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._terms = Terms(
            issuer=issuer,
            audiences=audiences(audience),
            required_scopes=tuple(required_scopes),
            leeway=leeway,
            needs_expiry=False,
            grants=grants or Grants(),
        )
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
