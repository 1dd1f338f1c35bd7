"""A hub with public and scoped capabilities, and its callers."""

from __future__ import annotations

from typing import Any

from tests.policy.issuer import ISSUER, RESOURCE, Clock, key_set
from tests.protocol.conftest import Json, initialization, notification
from tests.transports.http.conftest import Call, Visitor, Web
from waypost import Context, Hub
from waypost.identity import Authentication, Key, OAuthSettings, digest
from waypost.wire.versions import LATEST_LEGACY

WRITER = "wp_" + "w" * 43
READER = "wp_" + "r" * 43
KEYS = (Key("writer", digest(WRITER), scopes=("notes:read", "notes:write")), Key("reader", digest(READER)))
METADATA = "https://hub.example.com/.well-known/oauth-protected-resource/mcp"


def bearer(credential: str) -> dict[str, str]:
    """The header that presents a key or a token."""
    return {"authorization": f"Bearer {credential}"}


def guarded(auth: Authentication | None) -> Hub:
    """A hub with public and scoped capabilities of every kind."""
    hub = Hub("guarded", version="1.0.0", auth=auth)

    @hub.tool
    async def whoami(ctx: Context) -> str:
        """Say who is calling."""
        return ctx.principal.id

    @hub.tool(scopes=["notes:write"])
    async def write(ctx: Context) -> str:
        """Write."""
        return f"Written by {ctx.principal.id}."

    @hub.tool
    async def through(ctx: Context) -> str:
        """Write by way of another tool."""
        return (await ctx.invoke("write")).text

    @hub.resource("notes://open")
    async def open_notes() -> str:
        """Notes for all."""
        return "open"

    @hub.resource("notes://secret", scopes=["notes:read"])
    async def secret_notes() -> str:
        """Notes for some."""
        return "secret"

    @hub.resource("notes://shelf/{number}", scopes=["notes:read"])
    async def shelf(number: str) -> str:
        """A shelf of notes for some."""
        return number

    @hub.prompt(scopes=["notes:write"])
    async def compose() -> str:
        """Have a note composed."""
        return "Compose a note."

    return hub


def with_keys() -> Hub:
    """The hub with API keys."""
    return guarded(Authentication(KEYS))


def with_oauth(**settings: Any) -> Hub:
    """The hub with tokens of an OAuth issuer."""
    given: Json = {"issuer": ISSUER, "resource": RESOURCE, "jwks": key_set("rsa"), **settings}
    return guarded(Authentication(oauth=OAuthSettings(**given), clock=Clock()))


async def sign_in(web: Web, credential: str, version: str = LATEST_LEGACY) -> Visitor:
    """A session of the principal with this credential."""
    opened = await web.post(initialization(version), bearer(credential))
    assert opened.status == 200, opened.body
    visitor = Visitor(web, opened.headers["mcp-session-id"], version)
    visitor.headers.update(bearer(credential))
    assert (await visitor.post(notification("notifications/initialized"))).status == 202
    return visitor


async def modern_call(web: Web, tool: str, credential: str | None) -> Call:
    headers = None if credential is None else bearer(credential)
    return await web.modern("tools/call", {"name": tool, "arguments": {}}, headers)


def text_of(call: Call) -> str:
    text: str = call.messages()[-1]["result"]["content"][0]["text"]
    return text
