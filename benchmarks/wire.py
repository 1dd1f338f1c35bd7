"""The MCP requests of the benchmarks as bytes, for sessions (2025-11-25) and for 2026-07-28."""

from __future__ import annotations

from typing import Any

import msgspec

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ERAS = (LEGACY, MODERN)
CLIENT = {"name": "bench", "version": "1.0.0"}
ADD = {"name": "add", "arguments": {"a": 1234.25, "b": 0.5}}
SUM = b"1234.75"
"""What every right answer to ADD holds."""

_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}
_INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}


def message(method: str, params: dict[str, Any] | None = None, id: int | None = None) -> bytes:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        body["id"] = id
    if params is not None:
        body["params"] = params
    return msgspec.json.encode(body)


def post(port: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """One HTTP/1.1 request to /mcp."""
    lines = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **(headers or {}),
        "Content-Length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def modern(port: int, method: str, params: dict[str, Any]) -> bytes:
    """A self-contained request of 2026-07-28."""
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return post(port, message(method, {**params, "_meta": _META}, id=1), headers)


def initialize(port: int) -> bytes:
    return post(port, message("initialize", _INITIALIZE, id=0))


def in_session(port: int, session: str, body: bytes) -> bytes:
    return post(port, body, {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY})


def initialized() -> bytes:
    return message("notifications/initialized")


def call_add(id: int) -> bytes:
    return message("tools/call", ADD, id=id)


def stdio_handshake() -> tuple[bytes, bytes]:
    """The lines before and after the answer to `initialize`."""
    return message("initialize", _INITIALIZE, id=0) + b"\n", initialized() + b"\n"


def stdio_call_template() -> bytes:
    """A `tools/call` line with %d where the id goes."""
    return call_add(987654321).replace(b"%", b"%%").replace(b"987654321", b"%d") + b"\n"
