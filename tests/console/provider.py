"""An OpenID provider on loopback: it signs in one person without asking, and checks everything that it is sent."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus, urlencode

from aiohttp import web

from tests.policy.issuer import key_set, token

CLIENT = "waypost-console"
CALLBACK = "http://127.0.0.1:8420/console/sign-in/callback"


class Provider:
    """Codes that were given and not exchanged yet, and what ID tokens say besides the usual."""

    def __init__(self) -> None:
        self.issuer = ""
        self.secret: str | None = None
        self.redirect_uri = CALLBACK
        self.claims: dict[str, Any] = {"roles": ["operator"]}
        self.signs_with = "ec"
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
        answer = urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
        raise web.HTTPFound(f"{self.redirect_uri}?{answer}")

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


@asynccontextmanager
async def providing() -> AsyncIterator[Provider]:
    """A provider that listens."""
    provider = Provider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.discover)
    app.router.add_get("/authorize", provider.authorize)
    app.router.add_post("/token", provider.exchange)
    app.router.add_get("/keys", provider.publish_keys)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()
