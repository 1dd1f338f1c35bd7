"""JWT access tokens: the key set of the issuer, fetched and kept, and the verification of signatures and claims."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from waypost.errors import DefinitionError
from waypost.identity.claims import InvalidToken, Terms, Verified, VerifierUnavailable
from waypost.settings import is_loopback

if TYPE_CHECKING:
    import aiohttp
    from jwt import PyJWK


T = TypeVar("T")


class Shared(Generic[T]):
    """Runs one coroutine for all that ask for the same key at the same time; a cancelled caller does not cancel it."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T]] = {}

    async def __call__(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to `ask`, or to the same question that is under way already."""
        loop = asyncio.get_running_loop()
        task = self._running.get(key)
        if task is None or task.get_loop() is not loop:
            task = self._running[key] = loop.create_task(ask())
            task.add_done_callback(lambda done: self._settle(key, done))
        return await asyncio.shield(task)

    def _settle(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # all who waited may have been cancelled


MAX_RESPONSE_BYTES: Final = 256 * 1024


def checked_url(url: str, what: str) -> str:
    """The URL, if tokens and keys may travel to and from it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        parts.port  # noqa: B018  # out of range is a ValueError
    except ValueError:
        raise DefinitionError(f"The {what} is not a URL.") from None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None or parts.fragment:
        raise DefinitionError(f"The {what} must be an https URL without user or fragment.")
    if parts.scheme == "http" and not is_loopback(host):
        raise DefinitionError(f"The {what} must be an https URL; plain http is for loopback only.")
    return url


def is_url(text: str) -> bool:
    """Whether it is an address on the web rather than a file's."""
    return text.lower().startswith(("http://", "https://"))


def new_session(timeout: float) -> aiohttp.ClientSession:
    """Connections that keep no cookies and give up after `timeout` seconds."""
    import aiohttp

    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=timeout),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    )


async def fetch(
    session: aiohttp.ClientSession,
    url: str,
    *,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The JSON object at `url`, which a form is posted to if there is one."""
    import aiohttp

    method = "GET" if form is None else "POST"
    try:
        async with session.request(method, url, data=form, headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise VerifierUnavailable(f"{_place(url)} answered {response.status}")
            body = await _read(response, url)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise VerifierUnavailable(f"{_place(url)} cannot be reached: {type(error).__name__}") from None
    return json_object(body, _place(url))


def json_object(text: bytes, place: str) -> dict[str, Any]:
    """A JSON object from an authorization server or a file it came in."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise VerifierUnavailable(f"{place} does not hold a JSON object") from None


async def _read(response: aiohttp.ClientResponse, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise VerifierUnavailable(f"{_place(url)} answered more than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


def _place(url: str) -> str:
    """The URL without its query, which may hold a secret."""
    return url.partition("?")[0]


_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_FITTING: Final[Mapping[tuple[Any, Any], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
ALGORITHMS: Final = (*_RSA, "ES256", "ES384", "ES512", "EdDSA")
"""All signatures that a public key can check; there is no way to add a shared secret or none."""

MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2048

Jwk: TypeAlias = dict[str, Any]


class KeySet:
    """The public signing keys of one issuer, by their `kid`; anything else in the set is left aside."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        listed = document.get("keys")
        keys = listed[:MAX_KEYS] if isinstance(listed, list) else []
        self._keys: list[Jwk] = [key for key in keys if _algorithms(key)]
        self._ready: dict[tuple[int, str], PyJWK | None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key with this id; a token that names none is checked with the only key that fits."""
        fitting = [
            number
            for number, key in enumerate(self._keys)
            if algorithm in _algorithms(key) and (kid is None or key.get("kid") == kid)
        ]
        if not fitting or (kid is None and len(fitting) > 1):
            return None
        place = fitting[0], algorithm
        if place not in self._ready:
            self._ready[place] = _load(self._keys[fitting[0]], algorithm)
        return self._ready[place]


def _algorithms(key: Any) -> tuple[str, ...]:
    """The algorithms that a key of a set may be used with."""
    if not isinstance(key, dict) or "d" in key or key.get("use", "sig") != "sig":
        return ()
    operations = key.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return ()
    kind, curve = key.get("kty"), key.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return ()
    fitting = _FITTING.get((kind, curve), ())
    return fitting if "alg" not in key else tuple(name for name in fitting if name == key["alg"])


def _load(key: Jwk, algorithm: str) -> PyJWK | None:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from jwt import PyJWK, PyJWTError

    try:
        loaded = PyJWK(key, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    too_small = isinstance(loaded.key, RSAPublicKey) and loaded.key.key_size < MIN_RSA_BITS
    return None if too_small else loaded


_log: Final = logging.getLogger(__name__)
_NEVER: Final = float("-inf")


class KeySource:
    """The key set of an issuer: given as it is, in a file, or at a URL.

    A file or URL is read again when it is older than `fresh` seconds or a token names a key that is not in it, but not
    more often than every `retry` seconds. When that fails, what was read before stays good for `stale` seconds.
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any],
        *,
        fresh: float = 600.0,
        retry: float = 10.0,
        stale: float = 86_400.0,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fresh = fresh
        self._retry = retry
        self._stale = stale
        self._timeout = timeout
        self._clock = clock
        self._keys = KeySet({})
        self._read_at = self._tried_at = _NEVER
        self._shared: Shared[None] = Shared()
        self._source: str | Path | None = None
        if isinstance(source, Mapping):
            self._keys = _now(lambda: _usable(source, "The key set"))
        elif isinstance(source, str) and is_url(source):
            self._source = checked_url(source, "address of the key set")
        else:
            path = self._source = Path(source)
            self._keys = _now(lambda: _from_file(path))
            self._read_at = self._tried_at = clock()

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key to check a signature with; `VerifierUnavailable` when no keys can be had."""
        if self._source is None:
            return self._keys.find(kid, algorithm)
        if self._clock() - self._read_at >= self._fresh:
            await self._refresh()
        if self._clock() - self._read_at >= self._stale:
            raise VerifierUnavailable()
        found = self._keys.find(kid, algorithm)
        if found is None and await self._refresh():
            found = self._keys.find(kid, algorithm)
        return found

    async def _refresh(self) -> bool:
        """Read the keys again, unless that was tried a moment ago."""
        if self._clock() - self._tried_at < self._retry:
            return False
        await self._shared(None, self._read)
        return True

    async def _read(self) -> None:
        try:
            self._keys = await self._load()
            self._read_at = self._clock()
        except VerifierUnavailable as error:
            _log.warning("The key set was not read: %s", error)
        finally:
            self._tried_at = self._clock()

    async def _load(self) -> KeySet:
        if isinstance(self._source, Path):
            return await asyncio.to_thread(_from_file, self._source)
        assert self._source is not None
        async with new_session(self._timeout) as session:
            return _usable(await fetch(session, self._source), "The key set")


def _from_file(path: Path) -> KeySet:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_RESPONSE_BYTES + 1)
    except OSError as error:
        raise VerifierUnavailable(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > MAX_RESPONSE_BYTES:
        raise VerifierUnavailable(f"{path} is over {MAX_RESPONSE_BYTES} bytes")
    return _usable(json_object(text, str(path)), str(path))


def _now(load: Callable[[], KeySet]) -> KeySet:
    """Load keys at the start; raises `DefinitionError` where they cannot be used."""
    try:
        return load()
    except VerifierUnavailable as error:
        raise DefinitionError(f"{error}.") from None


def _usable(document: Mapping[str, Any], place: str) -> KeySet:
    keys = KeySet(document)
    if not len(keys):
        raise VerifierUnavailable(f"{place} holds no public signing key")
    return keys


MAX_TOKEN_CHARACTERS: Final = 16 * 1024
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES: Final = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})
CACHE_S: Final = 60.0


class JwtVerifier:
    """Checks tokens against the public keys of their issuer; `jwks` is the key set itself, its file or its URL."""

    def __init__(
        self,
        terms: Terms,
        jwks: str | Path | Mapping[str, Any],
        *,
        algorithms: Iterable[str] = ALGORITHMS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._terms = terms
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
        if len(token) > MAX_TOKEN_CHARACTERS or not _SHAPE.fullmatch(token):
            raise InvalidToken("The token is not a signed JSON Web Token.")
        algorithm, kid = self._header(token)
        key = await self._keys.find(kid, algorithm)
        if key is None:
            raise InvalidToken("The token is signed with an unknown key.")
        return self._terms.accept(_claims(token, key, algorithm), self._clock(), CACHE_S)

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
