"""The one way the hub fetches URLs for others: checked addresses, checked redirects, bounded in size and time."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDictProxy
from yarl import URL

from waypost.errors import ToolError
from waypost.upstreams.http1 import why_not
from waypost.version import __version__

LONGEST_URL: Final = 8192

_NEVER: Final = re.compile(r"[\x00-\x20\x7f\\]")
_NAME: Final = re.compile(r"(?=.{1,253}\.?\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

# `is_global` differs between Python versions for these, so they are named here.
_CLOSED_V4: Final = tuple(ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24"))
_OPEN_V6: Final = ip_network("2000::/3")
_CLOSED_V6: Final = tuple(ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
_NAT64: Final = ip_network("64:ff9b::/96")


class EgressFailed(ToolError):
    """The server did not answer properly."""


class EgressRefused(ToolError):
    """The hub does not fetch that."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the open internet; tunnels that hide another address do not."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not any(address in net for net in _CLOSED_V4)
    if address.scope_id is not None:
        return False
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    return address in _OPEN_V6 and not any(address in net for net in _CLOSED_V6)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for in live networks: mapped, or behind NAT64."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def checked_url(text: str, allow_private: bool) -> URL:
    """The URL, if its spelling is plain and its host is not a private address; names are looked up later."""
    url = _parsed(text)
    if url.scheme not in ("http", "https"):
        raise EgressRefused("Only http and https URLs are fetched.")
    if "@" in urlsplit(text).netloc:
        raise EgressRefused("A URL with a user name or password is not fetched.")
    host = url.raw_host or ""
    literal = _literal(host)
    if not allow_private and (_is_localhost(host) if literal is None else not is_public(literal)):
        raise EgressRefused(f"{host} is a private address, which is not fetched.")
    return url


def checked_addresses(host: str, found: list[str], allow_private: bool) -> list[str]:
    """What a name resolved to, if nothing of it is private."""
    if not allow_private and not all(is_public(ip_address(text)) for text in found):
        raise EgressRefused(f"{host} resolves to a private address, which is not fetched.")
    return found


def _parsed(text: str) -> URL:
    if len(text) > LONGEST_URL:
        raise EgressRefused(f"A URL of more than {LONGEST_URL} characters is not fetched.")
    if _NEVER.search(text):
        raise EgressRefused("A URL with spaces, control characters or backslashes is not fetched.")
    try:
        return URL(text)
    except ValueError:
        raise EgressRefused("That is not a URL.") from None


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address a host spells out, or nothing if it is a name; spellings that readers disagree on are refused."""
    if ":" in host:
        return _address(host)
    if not _NAME.fullmatch(host):
        raise EgressRefused("The host of the URL is not a name or an address.")
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return _address(host)
    return None


def _address(host: str) -> IPv4Address | IPv6Address:
    try:
        # A zone ("%eth0") means something on this machine only.
        return ip_address(host if "%" not in host else "")
    except ValueError:
        raise EgressRefused(f"{host} is not the usual spelling of an address.") from None


def _is_localhost(host: str) -> bool:
    name = host.rstrip(".")
    return name == "localhost" or name.endswith(".localhost")


WITHIN: Final = 30.0
MOST_BYTES: Final = 10 * 1024 * 1024
REDIRECTS: Final = 5
_CONNECTIONS: Final = 100

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""All addresses of a name, as text."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_BAD_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OURS: Final = frozenset(
    (
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"),
        *("expect", "accept-encoding", "proxy-authorization", "proxy-connection"),
    )
)
# Anything else a caller sets may be a key for the first origin only.
_FOR_ANY_ORIGIN: Final = frozenset({"accept", "accept-language", "user-agent", "content-type", "content-language"})
_ABOUT_BODIES: Final = frozenset({"content-type", "content-language"})
_MOVED: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True)
class Fetched:
    """A whole answer, decompressed; `url` is where it came from in the end."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    url: str


@dataclass(frozen=True)
class _Request:
    method: str
    url: URL
    headers: dict[str, str]
    body: bytes | None
    most_bytes: int


class Egress:
    """A pool of connections to places that callers name."""

    def __init__(
        self,
        allow_private: bool = False,
        *,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.allow_private = allow_private
        self._lookup = lookup or resolved
        self._tls = tls
        self._http: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        within: float = WITHIN,
        most_bytes: int = MOST_BYTES,
        redirects: int = REDIRECTS,
    ) -> Fetched:
        """Fetch a URL `within` seconds in all, following redirects; any status is an answer."""
        asked = _Request(
            _checked_method(method), checked_url(url, self.allow_private), _checked_headers(headers), body, most_bytes
        )
        try:
            async with asyncio.timeout(within):
                return await self._follow(asked, redirects)
        except TimeoutError:
            raise EgressFailed(f"{asked.url.host} did not answer within {within:g} s.") from None

    async def close(self) -> None:
        """End all connections; a later request opens new ones."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _follow(self, asked: _Request, redirects: int) -> Fetched:
        for _ in range(redirects + 1):
            answer = await self._fetch(asked)
            if isinstance(answer, Fetched):
                return answer
            asked = _next(asked, answer.status, checked_url(_target(asked.url, answer.to), self.allow_private))
        raise EgressRefused(f"More than {redirects} redirects are not followed.")

    async def _fetch(self, asked: _Request) -> Fetched | _Moved:
        try:
            async with self._session().request(
                asked.method, asked.url, headers=asked.headers, data=asked.body, allow_redirects=False
            ) as response:
                to = response.headers.get("Location")
                if response.status in _MOVED and to:
                    return _Moved(response.status, to)
                body = await _read(response, asked.most_bytes)
                return Fetched(response.status, response.headers, body, str(asked.url))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise EgressFailed(f"{asked.url.host} cannot be reached: {_reason(error)}.") from None

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(
                resolver=_CheckedResolver(self._lookup, self.allow_private),
                use_dns_cache=False,
                ssl=self._tls or True,
                limit=_CONNECTIONS,
            )
            self._http = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"waypost/{__version__}", "Accept-Encoding": "gzip"},
                # aiohttp bounds what it unpacks only in recent versions.
                auto_decompress=False,
                trust_env=False,
            )
        return self._http


class _CheckedResolver(AbstractResolver):
    """Looks a name up once per connection and hands out only what was checked."""

    def __init__(self, lookup: Lookup, allow_private: bool) -> None:
        self._lookup = lookup
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = checked_addresses(host, await self._lookup(host, port), self._allow_private)
        return [_numeric(host, address, port) for address in found]

    async def close(self) -> None:
        """Nothing to release."""


async def resolved(host: str, port: int) -> list[str]:
    """Every address the system knows for a name."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


def _numeric(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)


@dataclass(frozen=True)
class _Moved:
    status: int
    to: str


def _next(asked: _Request, status: int, url: URL) -> _Request:
    """The request that a redirect asks for."""
    if asked.url.scheme == "https" and url.scheme != "https":
        raise EgressRefused("A redirect from https to http is not followed.")
    if url.origin() != asked.url.origin():
        asked = replace(asked, headers=_only(asked.headers, lambda name: name in _FOR_ANY_ORIGIN))
    if (status == 303 and asked.method != "HEAD") or (status in (301, 302) and asked.method == "POST"):
        headers = _only(asked.headers, lambda name: name not in _ABOUT_BODIES)
        asked = replace(asked, method="GET", body=None, headers=headers)
    return replace(asked, url=url)


def _target(url: URL, location: str) -> str:
    try:
        return urljoin(str(url), location.strip().replace(" ", "%20"))
    except ValueError:
        raise EgressRefused("A redirect to something that is not a URL is not followed.") from None


def _only(headers: dict[str, str], wanted: Callable[[str], bool]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if wanted(name.lower())}


def _checked_method(method: str) -> str:
    known = method.upper()
    if known not in _METHODS:
        raise EgressRefused(f"The method is one of {', '.join(sorted(_METHODS))}.")
    return known


def _checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (headers or {}).items():
        if not _TOKEN.fullmatch(name):
            raise EgressRefused("The name of a header is malformed.")
        if name.lower() in _OURS:
            raise EgressRefused(f"The header {name} cannot be set.")
        if _BAD_VALUE.search(value):
            raise EgressRefused(f"The header {name} holds a line break or control character.")
    return dict(headers or {})


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    too_much = EgressRefused(f"{response.url.host} answers with more than {most} bytes, which is not fetched.")
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise EgressFailed(f"{response.url.host} answers in an encoding that was not asked for.")
    if response.method != "HEAD" and (response.content_length or 0) > most:
        raise too_much
    unpack = _Unpacking() if "gzip" in encoding else None
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk if unpack is None else unpack.feed(chunk, most + 1 - len(body))
        if len(body) > most:
            raise too_much
    if unpack is not None and not unpack.finished:
        raise EgressFailed(f"{response.url.host} broke off in the middle of its answer.")
    return bytes(body)


class _Unpacking:
    """Unpacks gzip, never more at once than it is told."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._fed = False

    @property
    def finished(self) -> bool:
        """Whether nothing was begun that did not end."""
        return self._stream.eof or not self._fed

    def feed(self, packed: bytes, most: int) -> bytes:
        """The next bytes; what lies beyond `most` is dropped, since the caller gives up then."""
        out = bytearray()
        while packed and len(out) < most:
            if self._stream.eof:
                self._stream = zlib.decompressobj(wbits=31)
            self._fed = True
            try:
                out += self._stream.decompress(packed, most - len(out))
            except zlib.error:
                raise EgressFailed("The server's answer is not the gzip it says it is.") from None
            packed = self._stream.unused_data
        return bytes(out)


def _reason(error: Exception) -> str:
    """Why there is no answer, without the address."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return why_not(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return why_not(error.os_error)
    if isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)):
        return "the connection was lost before the answer was whole"
    return "what it answers is not HTTP" if isinstance(error, aiohttp.ClientError) else why_not(error)
