"""The core skill that calls an HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.capabilities.context import Context
from waypost.errors import ToolError
from waypost.skills.core.inputs import CoreSettings, decode, get_field, get_text, is_text, media_type, require_text

description = "Call an HTTP API and return its status, headers and body."
permissions = ("web_read",)
routes = ("on_2xx", "on_4xx", "on_5xx", "on_error")
external = True
input_schema: dict[str, Any] = {
    "url": {"type": "string", "description": "The http or https URL; the input if left out"},
    "method": {"type": "string", "description": "GET unless there is a body, then POST"},
    "headers": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "Headers of the request",
    },
    "body": {"type": "string", "description": "Body of the request; JSON is sent as such"},
}


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> dict[str, Any]:
    """Send the request through the hub's egress."""
    url = require_text(args, "url")
    body, content_type = _encode_body(get_field(args, "body"))
    given = get_field(args, "headers") or {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str | int | float) for value in given.values()):
        raise ToolError("headers must be an object of text.")
    headers = {str(name): str(value) for name, value in given.items()}
    if content_type and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = content_type
    method = get_text(args, "method").strip() or ("GET" if body is None else "POST")
    response = await settings.egress.request(method, url, headers, body, within=settings.timeout)
    # Cookies are credentials of the hub's session with the server, not part of its answer.
    shown = {name.lower(): value for name, value in response.headers.items() if name.lower() != "set-cookie"}
    content = _decode_body(response.body, shown.get("content-type", ""))
    return {"status": response.status, "headers": shown, "url": response.url, "body": content}


def branch(result: Mapping[str, Any]) -> str:
    """Return the route of a result."""
    status = int(result["status"])
    return "on_5xx" if status >= 500 else "on_4xx" if status >= 400 else "on_2xx"


def _encode_body(given: Any) -> tuple[bytes | None, str]:
    """Return the bytes to send and their media type."""
    if given is None or given == "":
        return None, ""
    if not isinstance(given, str):
        return msgspec.json.encode(given), "application/json"
    return given.encode(), "text/plain; charset=utf-8" if _parse_json(given.encode()) is None else "application/json"


def _decode_body(body: bytes, content_type: str) -> Any:
    """Return JSON as data, text as text, and anything else as a note of its size."""
    kind = media_type(content_type)
    if kind == "application/json" or kind.endswith("+json"):
        data = _parse_json(body)
        if data is not None:
            return data
    return decode(body, content_type) if is_text(kind) else f"<{len(body)} bytes of {kind}>"


def _parse_json(body: bytes) -> Any:
    """Return the object or array in a body, or None."""
    if body[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
