"""The HTTP link: each message is a POST, its answers come back as JSON or as events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import msgspec

from waypost.errors import RemoteError
from waypost.upstreams.header_values import header_value
from waypost.wire.versions import is_modern

NO_HEADERS: Final[Mapping[str, str]] = {}
_ACCEPT: Final = "application/json, text/event-stream"


class HttpLink:
    """Talks to a server at a URL."""

    round_trips: Final = True

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers = headers or {}
        self._session_id: str | None = None
        self._http: aiohttp.ClientSession | None = None
        self._receive: Callable[[bytes], None] = lambda _: None

    async def open(self, receive: Callable[[bytes], None]) -> None:
        """Get ready to send."""
        self._receive = receive
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=10))

    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Post one message and hand on what comes back."""
        assert self._http is not None
        headers = {**self._routing(version, method, name), **extra}
        try:
            async with self._http.post(self._url, data=data, headers=headers) as response:
                self._session_id = response.headers.get("Mcp-Session-Id", self._session_id)
                await self._read(response)
        except aiohttp.ClientError as error:
            raise RemoteError(f"{self._url} cannot be reached: {error}.", -32000) from None

    async def close(self) -> None:
        """End the session, if there is one, and all connections."""
        if self._http is None:
            return
        if self._session_id is not None:
            await self._end_session(self._http)
        await self._http.close()
        self._http = None

    async def _end_session(self, http: aiohttp.ClientSession) -> None:
        try:
            async with http.delete(self._url, headers={**self._headers, "Mcp-Session-Id": self._session_id or ""}):
                pass
        except aiohttp.ClientError:
            return

    def _routing(self, version: str, method: str | None, name: str | None) -> dict[str, str]:
        headers = {"Accept": _ACCEPT, "Content-Type": "application/json", **self._headers}
        if is_modern(version):
            headers |= {"MCP-Protocol-Version": version}
            headers |= {"Mcp-Method": method} if method else {}
            headers |= {"Mcp-Name": header_value(name)} if name else {}
        elif self._session_id is not None:
            headers |= {"MCP-Protocol-Version": version, "Mcp-Session-Id": self._session_id}
        return headers

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        kind = response.content_type
        if kind == "text/event-stream":
            await self._read_events(response)
            return
        body = await response.read()
        if kind == "application/json":
            self._receive(body)
        elif body:
            raise RemoteError(f"{self._url} answered {response.status} with {kind}, which is not MCP.", -32000)
        if response.status >= 400:
            said = _error_message(body) or response.reason
            raise RemoteError(f"{self._url} answered {response.status}: {said}", -32000)

    async def _read_events(self, response: aiohttp.ClientResponse) -> None:
        rest = b""
        data: list[bytes] = []
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
            for line in lines:
                text = line.removesuffix(b"\r")
                if text.startswith(b"data:"):
                    data.append(text[5:].removeprefix(b" "))
                elif not text and data:
                    body = b"\n".join(data)
                    data.clear()
                    if body:
                        self._receive(body)


def _error_message(body: bytes) -> str | None:
    """What an error response says in words."""
    try:
        said = msgspec.json.decode(body)["error"]["message"]
    except (msgspec.MsgspecError, TypeError, KeyError):
        return None
    return said if isinstance(said, str) else None
