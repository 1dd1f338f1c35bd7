"""OAuth for a resource server: settings, challenges, the issuer's keys, JWT access tokens, and introspection."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from waypost.errors import DefinitionError, ToolError
from waypost.identity.claims import (
    DEFAULT_LEEWAY_S,
    Grants,
    InvalidToken,
    Terms,
    Verified,
    Verifier,
    VerifierUnavailable,
    audiences,
)
from waypost.settings import is_loopback

if TYPE_CHECKING:
    from joserfc.jwk import Key

    from waypost.outbound.egress import Egress


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
            task.exception()  # retrieved, or asyncio logs it where all callers were cancelled


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


def open_egress() -> Egress:
    """Connections to an authorization server, which may be in a private network: an operator chose its address."""
    from waypost.outbound.egress import Egress

    return Egress(allow_private=True)


async def fetch(
    egress: Egress,
    url: str,
    timeout_s: float,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The JSON object at `url`, which a form is posted to if there is one; redirects are not followed."""
    sent = {"Accept": "application/json", **(headers or {})}
    body = None
    if form is not None:
        body = urlencode(form).encode()
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    method = "GET" if form is None else "POST"
    try:
        # A redirect could take a token or the client's secret to another server.
        answer = await egress.request(method, url, sent, body, timeout_s, MAX_RESPONSE_BYTES, redirects=0)
    except ToolError as error:
        raise VerifierUnavailable(f"{_place(url)} cannot be read: {error}".removesuffix(".")) from None
    if answer.status != 200:
        raise VerifierUnavailable(f"{_place(url)} answered {answer.status}")
    return json_object(answer.body, _place(url))


def json_object(text: bytes, place: str) -> dict[str, Any]:
    """A JSON object from an authorization server or a file it came in."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise VerifierUnavailable(f"{place} does not hold a JSON object") from None


def _place(url: str) -> str:
    """The URL without its query, which may hold a secret."""
    return url.partition("?")[0]


_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_FITTING: Final[Mapping[tuple[Any, Any], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    # RFC 9864 names the curve, and deprecates `EdDSA`, which most issuers still write.
    ("OKP", "Ed25519"): ("Ed25519", "EdDSA"),
    ("OKP", "Ed448"): ("Ed448", "EdDSA"),
}
_KEY_VALUES: Final = ("kty", "crv", "x", "y", "n", "e")
ALGORITHMS: Final = (*_RSA, "ES256", "ES384", "ES512", "Ed25519", "Ed448", "EdDSA")
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
        self._ready: dict[int, Key | None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key with this id; a token that names none is checked with the only key that fits."""
        fitting = [
            number
            for number, key in enumerate(self._keys)
            if algorithm in _algorithms(key) and (kid is None or key.get("kid") == kid)
        ]
        if not fitting or (kid is None and len(fitting) > 1):
            return None
        if fitting[0] not in self._ready:
            self._ready[fitting[0]] = _load(self._keys[fitting[0]])
        return self._ready[fitting[0]]


def _algorithms(key: Any) -> tuple[str, ...]:
    """The algorithms that a key of a set may be used with."""
    # A key set that publishes its private part (`d`) has given the key away.
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


def _load(key: Jwk) -> Key | None:
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    try:
        if key["kty"] == "RSA" and int.from_bytes(_decode_base64(key["n"])).bit_length() < MIN_RSA_BITS:
            return None
        # Only the numbers of the key: what it may be used for was checked, and certificates with it do not matter.
        return JWKRegistry.import_key({name: key[name] for name in _KEY_VALUES if name in key})
    except (JoseError, ValueError, TypeError, KeyError):
        return None


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

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key to check a signature with; `VerifierUnavailable` when no keys can be had."""
        if self._source is None:
            return self._keys.find(kid, algorithm)
        if self._clock() - self._read_at >= self._fresh:
            await self._refresh()
        if self._clock() - self._read_at >= self._stale:
            raise VerifierUnavailable()
        found = self._keys.find(kid, algorithm)
        # The issuer may have changed its keys. `_refresh` limits how often made-up key ids have it asked.
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
        egress = open_egress()
        try:
            return _usable(await fetch(egress, self._source, self._timeout), "The key set")
        finally:
            await egress.close()


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
        header = _decode_part(token.partition(".")[0], "header")
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise InvalidToken("The token's algorithm is not allowed.")
        # RFC 7515: a token with an extension that is critical and not understood is refused. None is understood here.
        if not isinstance(kid, str | None) or "crit" in header:
            raise InvalidToken("The token's header asks for something unknown.")
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise InvalidToken("The token is not an access token.")
        return algorithm, kid


def _claims(token: str, key: Key, algorithm: str) -> dict[str, Any]:
    """What a token says, if its signature is good."""
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    signed, _, signature = token.rpartition(".")
    # The model is looked up by a name of our list that fits the key: the token cannot choose how its key is used.
    model = JWSRegistry.algorithms[algorithm]
    try:
        model.check_key(key)
        is_good = model.verify(signed.encode(), _decode_base64(signature), key)
    except (JoseError, ValueError):
        is_good = False
    if not is_good:
        raise InvalidToken("The token's signature does not fit.")
    return _decode_part(signed.partition(".")[2], "claims")


def _decode_part(part: str, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_decode_base64(part), type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidToken(f"The token's {what} cannot be read.") from None


def _decode_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


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
        # RFC 6749, section 2.3.1: both are form-encoded before they become Basic credentials.
        pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


class IntrospectionVerifier:
    """Checks tokens by asking their issuer whether they are active."""

    def __init__(self, terms: Terms, introspection: Introspection, *, clock: Callable[[], float]) -> None:
        self._terms = terms
        self._asked = introspection
        self._clock = clock
        self._egress: Egress | None = None

    async def verify(self, token: str) -> Verified:
        """Whose token this is."""
        if self._egress is None:
            self._egress = open_egress()
        claims = await fetch(
            self._egress,
            self._asked.endpoint,
            self._asked.timeout,
            form={"token": token, "token_type_hint": "access_token"},
            headers={"Authorization": self._asked.authorization()},
        )
        if claims.get("active") is not True:
            raise InvalidToken("The token is not active.")
        # RFC 7662 makes `iss` optional; the answer came from the issuer's own endpoint.
        claims.setdefault("iss", self._terms.issuer)
        return self._terms.accept(claims, self._clock(), self._asked.remember)

    async def close(self) -> None:
        """End the connections to the endpoint."""
        egress, self._egress = self._egress, None
        if egress is not None:
            await egress.close()


@dataclass(frozen=True, kw_only=True)
class ConsoleClient:
    """The client as which the console asks the issuer to sign people in."""

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()


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
    console: ConsoleClient | None = None

    def __post_init__(self) -> None:
        if (self.jwks is None) == (self.introspection is None):
            raise DefinitionError("OAuth needs either the issuer's keys (jwks) or its introspection endpoint.")
        for name, url in (("issuer", self.issuer), ("resource", self.resource)):
            if not _URL.fullmatch(url) or '"' in url or not urlsplit(url).hostname:
                raise DefinitionError(f"The OAuth {name} must be a URL.")
        if "#" in self.resource or "?" in self.resource:
            raise DefinitionError("The OAuth resource must be a URL without query and fragment.")
        console = () if self.console is None else self.console.scopes
        for scope in (*self.scopes, *self.required_scopes, *console):
            # Refresh tokens are a matter between the client and the issuer, so no resource asks for `offline_access`.
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
        # RFC 9728 appends the path of the resource; clients that find nothing there look at the root.
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
            # An issuer that is asked says itself whether a token is still active.
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
