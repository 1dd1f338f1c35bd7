"""The core skill that calls an HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from waypost.errors import ToolError
from waypost.skills.core.bodies import decoded, is_text, kind_of
from waypost.skills.core.inputs import CoreSettings, field, needed, text

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.skills.core.inputs import Run
    from waypost.upstreams.egress import EgressResponse

description = "Call an HTTP API and return its status, headers and body."
version = "1.0.0"
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


def make(settings: CoreSettings) -> Run:
    """The skill, fetching through the hub's egress."""

    async def run(args: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        url = needed(args, "url")
        body, kind = _body(field(args, "body"))
        headers = _headers(args)
        if kind and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = kind
        method = text(args, "method").strip() or ("GET" if body is None else "POST")
        return _answer(await settings.egress.request(method, url, headers, body, within=settings.timeout))

    return run


def branch(result: Mapping[str, Any]) -> str:
    """The route that a result takes."""
    status = int(result["status"])
    return "on_5xx" if status >= 500 else "on_4xx" if status >= 400 else "on_2xx"


def _headers(args: Mapping[str, Any]) -> dict[str, str]:
    given = field(args, "headers") or {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str | int | float) for value in given.values()):
        raise ToolError("headers must be an object of text.")
    return {str(name): str(value) for name, value in given.items()}


def _body(given: Any) -> tuple[bytes | None, str]:
    """The bytes to send and what they are."""
    if given is None or given == "":
        return None, ""
    if not isinstance(given, str):
        return msgspec.json.encode(given), "application/json"
    return given.encode(), "text/plain; charset=utf-8" if _json(given.encode()) is None else "application/json"


def _answer(fetched: EgressResponse) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in fetched.headers.items() if name.lower() != "set-cookie"}
    kind = headers.get("content-type", "")
    return {"status": fetched.status, "headers": headers, "url": fetched.url, "body": _said(fetched.body, kind)}


def _said(body: bytes, content_type: str) -> Any:
    """JSON as data, text as text, anything else only by its size."""
    kind = kind_of(content_type)
    if kind == "application/json" or kind.endswith("+json"):
        data = _json(body)
        if data is not None:
            return data
    if not is_text(kind):
        return f"<{len(body)} bytes of {kind}>"
    return decoded(body, content_type)


def _json(body: bytes) -> Any:
    """The data in a body, or nothing if it is not an object or array."""
    if body[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
