"""How `egress` fetches: the only module that uses aiohttp, imported with the first request."""

from __future__ import annotations

import socket
import ssl
import zlib
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from waypost.outbound.egress import (
    REDIRECT_STATUSES,
    EgressFailed,
    EgressRefused,
    EgressRequest,
    EgressResponse,
    Lookup,
    Redirect,
    check_addresses,
)
from waypost.outbound.http1 import Reason, explain_connect_error
from waypost.version import __version__

_MAX_CONNECTIONS: Final = 100


def open_session(lookup: Lookup, allow_private: bool, tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """Open a session that connects to checked addresses only."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=_CheckedResolver(lookup, allow_private),
            use_dns_cache=False,
            ssl=tls or True,
            limit=_MAX_CONNECTIONS,
        ),
        timeout=aiohttp.ClientTimeout(total=None),
        # All callers share the session: a cookie set for one must not be sent for another.
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"waypost/{__version__}", "Accept-Encoding": "gzip"},
        # aiohttp bounds what it unpacks only in recent versions.
        auto_decompress=False,
        # Its own reading of the environment knows no networks and no ports in NO_PROXY, and reads .netrc.
        trust_env=False,
    )


async def fetch(session: aiohttp.ClientSession, request: EgressRequest, proxy: URL | None) -> EgressResponse | Redirect:
    """Send a request, and read the answer or where it redirects to; raises `EgressFailed` if there is none."""
    try:
        async with session.request(
            request.method,
            request.url,
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            proxy=proxy,
        ) as response:
            to = response.headers.get("Location")
            if response.status in REDIRECT_STATUSES and to and request.follows:
                return Redirect(response.status, to)
            body = await _read(response, request.most_bytes)
            return EgressResponse(response.status, response.headers, body, str(request.url))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise EgressFailed(f"{request.url.host} cannot be reached: {_explain(error)}.") from None


class _CheckedResolver(AbstractResolver):
    """Looks a name up once per connection and returns only checked addresses.

    Checking and connecting must use the same lookup: a name that is looked up twice may resolve to a private address
    the second time (DNS rebinding).
    """

    def __init__(self, lookup: Lookup, allow_private: bool) -> None:
        self._lookup = lookup
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = check_addresses(host, await self._lookup(host, port), self._allow_private)
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=found, proto=0, flags=flags)
            for address, found in zip(addresses, families, strict=True)
        ]

    async def close(self) -> None:
        """Nothing to release."""


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    too_much = EgressRefused(f"{response.url.host} answers with more than {most} bytes, which is not fetched.")
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "x-gzip"):
        raise EgressFailed(f"{response.url.host} answers in an encoding that was not asked for.")
    if response.method != "HEAD" and (response.content_length or 0) > most:
        raise too_much
    unpack = _Gunzip() if "gzip" in encoding else None
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk if unpack is None else unpack.feed(chunk, most + 1 - len(body))
        if len(body) > most:
            raise too_much
    if unpack is not None and not unpack.finished:
        raise EgressFailed(f"{response.url.host} broke off in the middle of its answer.")
    return bytes(body)


class _Gunzip:
    """Unpacks gzip, never more at once than is asked for."""

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
            # A gzip body may have several members, one after the other.
            if self._stream.eof:
                self._stream = zlib.decompressobj(wbits=31)
            self._fed = True
            try:
                out += self._stream.decompress(packed, most - len(out))
            except zlib.error:
                raise EgressFailed("The server's answer is not the gzip it says it is.") from None
            packed = self._stream.unused_data
        return bytes(out)


def _explain(error: Exception) -> str:
    """Why there is no response, without the address."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Reason.UNKNOWN_HOST.value
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return explain_connect_error(error.certificate_error)[1]
    if isinstance(error, aiohttp.ClientConnectorError):
        return explain_connect_error(error.os_error)[1]
    if isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)):
        return "the connection was closed before the response was complete"
    return Reason.NOT_HTTP.value if isinstance(error, aiohttp.ClientError) else explain_connect_error(error)[1]
