"""Asking an authorization server: over TLS or loopback only, no redirects, bounded in time and size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from waypost.errors import DefinitionError
from waypost.policy.claims import VerifierUnavailable
from waypost.wire.hosts import is_loopback

if TYPE_CHECKING:
    import aiohttp

LARGEST: Final = 256 * 1024


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
        if len(body) > LARGEST:
            raise VerifierUnavailable(f"{_place(url)} answered more than {LARGEST} bytes")
    return bytes(body)


def _place(url: str) -> str:
    """The URL without its query, which may hold a secret."""
    return url.partition("?")[0]
