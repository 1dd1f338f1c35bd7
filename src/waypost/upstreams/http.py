"""The HTTP link: each message is a POST, its answers come back as JSON or as events."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import aiohttp

from waypost.errors import RemoteError
from waypost.wire.versions import is_modern

_ACCEPT: Final = "application/json, text/event-stream"


class HttpLink:
    """Talks to a server at a URL."""

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

    async def send(self, data: bytes, version: str, method: str | None, name: str | None) -> None:
        """Post one message and hand on what comes back."""
        assert self._http is not None
        try:
            async with self._http.post(self._url, data=data, headers=self._routing(version, method, name)) as response:
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
        elif kind == "application/json":
            self._receive(await response.read())
        elif response.status >= 400:
            raise RemoteError(f"{self._url} answered {response.status} {response.reason}.", -32000)

    async def _read_events(self, response: aiohttp.ClientResponse) -> None:
        data: list[bytes] = []
        async for raw in response.content:
            line = raw.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                body = b"\n".join(data)
                data.clear()
                if body:
                    self._receive(body)


def header_value(text: str) -> str:
    """`text` as an HTTP header value, wrapped where it would not survive as it is."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
