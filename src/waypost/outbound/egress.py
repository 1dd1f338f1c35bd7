"""Fetching URLs that callers chose: with checked addresses and redirects, and bounds on size and time."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from yarl import URL

from waypost.errors import ToolError
from waypost.outbound.http1 import HttpError, explain_connect_error, find_proxy, parse_address

if TYPE_CHECKING:
    from aiohttp import ClientSession

MAX_URL_LENGTH: Final = 8192
DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_MAX_BYTES: Final = 10 * 1024 * 1024
MAX_REDIRECTS: Final = 5

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""All addresses of a name, as text."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# They decide where a message ends or belong to the connection: a caller that sets them could smuggle in a request.
_RESERVED_HEADERS: Final = frozenset(
    (
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"),
        *("expect", "accept-encoding", "proxy-authorization", "proxy-connection"),
    )
)
# Anything else a caller sets may be a key for the first origin only.
_SAFE_HEADERS: Final = frozenset({"accept", "accept-language", "user-agent", "content-type", "content-language"})
_BODY_HEADERS: Final = frozenset({"content-type", "content-language"})
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\\]")
_NAME: Final = re.compile(r"(?=.{1,253}\.?\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

# `is_global` differs between Python versions for these, so they are named here.
_RESERVED_V4: Final = tuple(ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24"))
# The only range from which addresses of the internet are allocated.
_PUBLIC_V6: Final = ip_network("2000::/3")
_RESERVED_V6: Final = tuple(ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
_NAT64: Final = ip_network("64:ff9b::/96")


class EgressFailed(ToolError):
    """The server did not answer properly."""


class EgressRefused(ToolError):
    """The hub does not fetch that."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the open internet; tunnels that hide another address do not."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not any(address in net for net in _RESERVED_V4)
    if address.scope_id is not None:
        return False
    inner = _embedded_v4(address)
    if inner is not None:
        return is_public(inner)
    return address in _PUBLIC_V6 and not any(address in net for net in _RESERVED_V6)


def _embedded_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for in live networks: mapped, or behind NAT64."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def check_url(text: str, allow_private: bool) -> URL:
    """The URL, if its spelling is plain and its host is not a private address; names are looked up later."""
    url = _parse(text)
    if url.scheme not in ("http", "https"):
        raise EgressRefused("Only http and https URLs are fetched.")
    # What stands before `@` can pass for the host, and parsers disagree about where it ends.
    if "@" in urlsplit(text).netloc:
        raise EgressRefused("A URL with a user name or password is not fetched.")
    host = url.raw_host or ""
    literal = _parse_literal(host)
    is_local = f".{host.rstrip('.')}".endswith(".localhost") if literal is None else not is_public(literal)
    if is_local and not allow_private:
        raise EgressRefused(f"{host} is a private address, which is not fetched.")
    return url


def check_addresses(host: str, addresses: list[str], allow_private: bool) -> list[str]:
    """The addresses of a name, if none of them is private."""
    if not allow_private and not all(is_public(ip_address(text)) for text in addresses):
        raise EgressRefused(f"{host} resolves to a private address, which is not fetched.")
    return addresses


def _parse(text: str) -> URL:
    if len(text) > MAX_URL_LENGTH:
        raise EgressRefused(f"A URL of more than {MAX_URL_LENGTH} characters is not fetched.")
    if _FORBIDDEN.search(text):
        raise EgressRefused("A URL with spaces, control characters or backslashes is not fetched.")
    try:
        return URL(text)
    except ValueError:
        raise EgressRefused("That is not a URL.") from None


def _parse_literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address a host spells out, or nothing if it is a name; spellings that readers disagree on are refused."""
    if ":" in host:
        return _parse_address(host)
    if not _NAME.fullmatch(host):
        raise EgressRefused("The host of the URL is not a name or an address.")
    # Resolvers take `127.1` and `0x7f000001` for addresses, although they have the form of names.
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return _parse_address(host)
    return None


def _parse_address(host: str) -> IPv4Address | IPv6Address:
    try:
        # A zone ("%eth0") means something on this machine only.
        return ip_address(host if "%" not in host else "")
    except ValueError:
        raise EgressRefused(f"{host} is not the usual spelling of an address.") from None


@dataclass(frozen=True)
class EgressResponse:
    """A whole answer, decompressed; `url` is where it came from in the end."""

    status: int
    headers: Mapping[str, str]
    """By name in any case."""
    body: bytes
    url: str


@dataclass(frozen=True)
class EgressRequest:
    """A checked request."""

    method: str
    url: URL
    headers: dict[str, str]
    body: bytes | None
    most_bytes: int
    follows: bool
    """Whether a redirect is followed rather than returned."""


class Egress:
    """Fetches URLs that callers chose, over connections that are kept."""

    def __init__(
        self,
        allow_private: bool = False,
        *,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.allow_private = allow_private
        self._lookup = lookup or resolve_host
        self._tls = tls
        self._http: ClientSession | None = None
        self._proxied: ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        within: float = DEFAULT_TIMEOUT_S,
        most_bytes: int = DEFAULT_MAX_BYTES,
        redirects: int = MAX_REDIRECTS,
    ) -> EgressResponse:
        """Fetch a URL `within` seconds in all, following redirects, unless that is none; any status is an answer."""
        target, sent = check_url(url, self.allow_private), _check_headers(headers)
        request = EgressRequest(_check_method(method), target, sent, body, most_bytes, redirects > 0)
        try:
            async with asyncio.timeout(within):
                return await self._follow(request, redirects)
        except TimeoutError:
            raise EgressFailed(f"{request.url.host} did not answer within {within:g} s.") from None

    async def close(self) -> None:
        """End all connections; a later request opens new ones."""
        sessions, self._http, self._proxied = (self._http, self._proxied), None, None
        for session in sessions:
            if session is not None:
                await session.close()

    async def _follow(self, request: EgressRequest, redirects: int) -> EgressResponse:
        for _ in range(redirects + 1):
            answer = await self._fetch(request)
            if isinstance(answer, EgressResponse):
                return answer
            url = check_url(_resolve_location(request.url, answer.to), self.allow_private)
            request = _redirect_request(request, answer.status, url)
        raise EgressRefused(f"More than {redirects} redirects are not followed.")

    async def _fetch(self, request: EgressRequest) -> EgressResponse | Redirect:
        # Imported here: aiohttp takes as long to import as the rest of a hub, and most hubs fetch nothing.
        from waypost.outbound.aiohttp_client import fetch

        try:
            proxy = await self._find_proxy(request.url)
            session = self._session() if proxy is None else self._proxied_session()
        except HttpError as error:
            raise EgressFailed(f"{request.url.host} cannot be reached: {error}.") from None
        except (OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise EgressFailed(f"{request.url.host} cannot be reached: {explain_connect_error(error)[1]}.") from None
        return await fetch(session, request, proxy)

    async def _find_proxy(self, url: URL) -> URL | None:
        """The proxy for a URL; the proxy connects to the name, so the addresses of the name are checked here before."""
        address = parse_address(str(url))
        proxy = find_proxy(address)
        if proxy is None:
            return None
        if not self.allow_private and _parse_literal(url.raw_host or "") is None:
            check_addresses(address.host, await self._lookup(address.host, address.port), self.allow_private)
        found = URL.build(scheme="http", host=proxy.host, port=proxy.port)
        name, _, password = base64.b64decode(proxy.credentials).decode().partition(":")
        return found.with_user(name).with_password(password) if name else found

    def _session(self) -> ClientSession:
        if self._http is None:
            self._http = self._open_session(self.allow_private)
        return self._http

    def _proxied_session(self) -> ClientSession:
        """Connections to proxies: apart from the others, because a proxy may be at a private address."""
        if self._proxied is None:
            self._proxied = self._open_session(allow_private=True)
        return self._proxied

    def _open_session(self, allow_private: bool) -> ClientSession:
        from waypost.outbound.aiohttp_client import open_session

        return open_session(self._lookup, allow_private, self._tls)


async def resolve_host(host: str, port: int) -> list[str]:
    """Every address the system knows for a name."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


@dataclass(frozen=True)
class Redirect:
    """An answer that names another URL."""

    status: int
    to: str


def _redirect_request(request: EgressRequest, status: int, url: URL) -> EgressRequest:
    """The request that a redirect asks for."""
    if request.url.scheme == "https" and url.scheme != "https":
        # What was sent encrypted must not be sent again in clear.
        raise EgressRefused("A redirect from https to http is not followed.")
    if url.origin() != request.url.origin():
        request = replace(request, headers=_filter_headers(request.headers, lambda name: name in _SAFE_HEADERS))
    # As browsers do; 307 and 308 repeat the request as it was.
    if (status == 303 and request.method != "HEAD") or (status in (301, 302) and request.method == "POST"):
        headers = _filter_headers(request.headers, lambda name: name not in _BODY_HEADERS)
        request = replace(request, method="GET", body=None, headers=headers)
    return replace(request, url=url)


def _resolve_location(url: URL, location: str) -> str:
    try:
        return urljoin(str(url), location.strip().replace(" ", "%20"))
    except ValueError:
        raise EgressRefused("A redirect to something that is not a URL is not followed.") from None


def _filter_headers(headers: dict[str, str], wanted: Callable[[str], bool]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if wanted(name.lower())}


def _check_method(method: str) -> str:
    known = method.upper()
    if known not in _METHODS:
        raise EgressRefused(f"The method is one of {', '.join(sorted(_METHODS))}.")
    return known


def _check_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (headers or {}).items():
        if not _HEADER_NAME.fullmatch(name):
            raise EgressRefused("The name of a header is malformed.")
        if name.lower() in _RESERVED_HEADERS:
            raise EgressRefused(f"The header {name} cannot be set.")
        if _CONTROL_CHARACTER.search(value):
            raise EgressRefused(f"The header {name} holds a line break or control character.")
    return dict(headers or {})
