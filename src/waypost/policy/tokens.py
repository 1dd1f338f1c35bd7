"""JSON Web Tokens as access tokens: signed by the issuer, meant for this server, valid now."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.errors import DefinitionError
from waypost.policy.claims import Grants, InvalidToken, Terms, Verified, audiences
from waypost.policy.jwks import ALGORITHMS
from waypost.policy.key_source import KeySource

if TYPE_CHECKING:
    from jwt import PyJWK

LONGEST: Final = 16 * 1024
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES: Final = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
_REMEMBER: Final = 60.0


class JwtVerifier:
    """Checks tokens against the public keys of their issuer.

    `audience` is what tokens for this server are issued for, its resource URI; `jwks` is the key set itself, its file
    or its URL.
    """

    def __init__(
        self,
        issuer: str,
        audience: str | Iterable[str],
        jwks: str | Path | Mapping[str, Any],
        *,
        algorithms: Iterable[str] = ALGORITHMS,
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
            grants=grants or Grants(),
        )
        self._algorithms = tuple(algorithms)
        unknown = sorted(set(self._algorithms) - set(ALGORITHMS))
        if unknown or not self._algorithms:
            raise DefinitionError(
                f"Tokens can be signed with {', '.join(ALGORITHMS)}; not with {unknown or 'nothing'}."
            )
        self._keys = KeySource(jwks, clock=clock)
        self._clock = clock

    async def verify(self, token: str) -> Verified:
        """Whose token this is."""
        if len(token) > LONGEST or not _SHAPE.fullmatch(token):
            raise InvalidToken("The token is not a signed JSON Web Token.")
        algorithm, kid = self._header(token)
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise InvalidToken("The token is signed with an unknown key.")
        return self._terms.accept(_claims(token, key, algorithm), self._clock(), _REMEMBER)

    async def close(self) -> None:
        """Nothing is kept open."""

    def _header(self, token: str) -> tuple[str, str | None]:
        """The algorithm and the key that a token claims to be signed with."""
        from jwt import PyJWTError, get_unverified_header

        try:
            header = get_unverified_header(token)
        except (PyJWTError, ValueError, RecursionError):
            raise InvalidToken("The token's header cannot be read.") from None
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise InvalidToken("The token's algorithm is not allowed.")
        if not isinstance(kid, str | None) or "crit" in header:
            raise InvalidToken("The token's header asks for something unknown.")
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise InvalidToken("The token is not an access token.")
        return algorithm, kid


def _claims(token: str, key: PyJWK, algorithm: str) -> dict[str, Any]:
    """What a token says, if its signature is good."""
    from jwt import PyJWS, PyJWTError

    try:
        payload = PyJWS().decode_complete(token, key, algorithms=[algorithm])["payload"]
    except (PyJWTError, ValueError, RecursionError):
        raise InvalidToken("The token's signature does not fit.") from None
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidToken("The token's claims cannot be read.") from None
