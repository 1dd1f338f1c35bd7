"""An OpenID provider on loopback: it signs in one person without asking, and checks everything that it is sent."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import quote_plus, urlencode

from aiohttp import web

from tests.policy.issuer import key_set, token

CLIENT = "waypost-console"
CALLBACK = "http://127.0.0.1:8420/console/sign-in/callback"


class Provider:
    """An identity provider: the codes not exchanged yet, and further claims of its ID tokens."""

    def __init__(self) -> None:
        self.issuer = ""
        self.secret: str | None = None
        self.redirect_uri = CALLBACK
        self.claims: dict[str, Any] = {"roles": ["operator"]}
        self.signs_with = "ec"
        self.asks = False
        """Whether people see a page with a button first, as at a provider that asks for a password."""
        self.link = ""
        """What the home page of the provider links to."""
        self._codes: dict[str, dict[str, str]] = {}

    async def discover(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )

    async def authorize(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        assert (asked["client_id"], asked["redirect_uri"]) == (CLIENT, self.redirect_uri)
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        given = urlencode({"state": asked["state"], "iss": self.issuer})
        accepted, refused = (f"{self.redirect_uri}?{one}&{given}" for one in (f"code={code}", "error=access_denied"))
        if self.asks:
            return _show(
                f'<a id="accept" href="{escape(accepted)}">Yes</a> <a id="refuse" href="{escape(refused)}">No</a>'
            )
        raise web.HTTPFound(accepted)

    async def show_home(self, request: web.Request) -> web.Response:
        return _show(f'<a id="link" href="{escape(self.link)}">To the hub</a>')

    async def exchange(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        asked = self._codes.pop(form.get("code", ""), None)
        verifier = sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if asked is None or challenge != asked["code_challenge"] or not self._knows(request, form):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        said = {
            **{"iss": self.issuer, "aud": CLIENT, "sub": "ada", "iat": now, "exp": now + 60},
            **{"client_id": None, "scope": None, "nonce": asked["nonce"]},
            **self.claims,
        }
        signed = token(self.signs_with, header={"typ": "JWT"}, **said)
        return web.json_response({"access_token": "opaque", "token_type": "Bearer", "id_token": signed})

    def _knows(self, request: web.Request, form: dict[str, str]) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT
        pair = base64.b64encode(f"{CLIENT}:{quote_plus(self.secret)}".encode()).decode()
        return request.headers.get("Authorization") == f"Basic {pair}"

    async def publish_keys(self, request: web.Request) -> web.Response:
        return web.json_response(key_set("ec"))


def _show(body: str) -> web.Response:
    return web.Response(text=f'<!doctype html><link rel="icon" href="data:,">{body}', content_type="text/html")


@asynccontextmanager
async def providing(host: str = "127.0.0.1") -> AsyncIterator[Provider]:
    """A provider that listens; to browsers, another name of the same machine is another site."""
    provider = Provider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.discover)
    app.router.add_get("/", provider.show_home)
    app.router.add_get("/authorize", provider.authorize)
    app.router.add_post("/token", provider.exchange)
    app.router.add_get("/keys", provider.publish_keys)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.issuer = f"http://{host}:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()
