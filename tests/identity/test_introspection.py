"""Opaque tokens, which are checked by introspection at the authorization server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from tests.policy.issuer import ISSUER, NOW, Clock, Server, authentication, bearer, claims, refused, serving
from waypost.errors import DefinitionError
from waypost.identity import Authentication, Introspection, Key, digest, new_key

OPAQUE = "opaque-token"


def active(**changed: Any) -> dict[str, Any]:
    return {"active": True, **claims(**changed)}


@asynccontextmanager
async def asking(clock: Clock | None = None, **settings: Any) -> AsyncIterator[tuple[Server, Authentication]]:
    """An introspection server, and an authentication that uses it."""
    async with serving() as server:
        asked = Introspection(endpoint=server.url, client_id="hub", client_secret="s:e c&", **settings)
        auth = authentication(clock, jwks=None, introspection=asked)
        try:
            yield server, auth
        finally:
            await auth.close()


def test_an_active_token_names_its_holder() -> None:
    async def scenario() -> None:
        async with asking() as (server, auth):
            server.answers(active())

            principal = await auth.authenticate(bearer(OPAQUE))

            assert (principal.id, principal.scopes) == (f"{ISSUER}|ada", ("read", "write"))
            ((request, form),) = server.requests
            assert (request.method, request.query_string) == ("POST", "")
            assert form == {"token": OPAQUE, "token_type_hint": "access_token"}
            scheme, _, pair = request.headers["Authorization"].partition(" ")
            assert (scheme, base64.b64decode(pair)) == ("Basic", b"hub:s%3Ae+c%26")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        {"active": False},
        {},
        active(active="true"),
        active(active=1),
        active(aud="https://other.example.com/mcp"),
        active(aud=None),
        active(iss="https://evil.example.com/"),
        active(sub=None),
        active(exp=NOW - 31),
        active(nbf=NOW + 31),
    ],
    ids=str,
)
def test_any_other_response_is_a_refusal(answer: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with asking() as (server, auth):
            server.answers(answer)

            refusal = await refused(auth, bearer(OPAQUE))

            assert (refusal.status, refusal.body) == (401, {"error": "Invalid API key"})

    asyncio.run(scenario())


@pytest.mark.parametrize("missing", ["iss", "exp", "iat", "scope", "client_id"])
def test_optional_claims_may_be_missing_from_a_response(missing: str) -> None:
    async def scenario() -> None:
        async with asking() as (server, auth):
            server.answers(active(**{missing: None}))

            await auth.authenticate(bearer(OPAQUE))

    asyncio.run(scenario())


def test_an_active_response_is_cached_for_a_short_time() -> None:
    async def scenario() -> None:
        clock = Clock()
        async with asking(clock, remember=10.0) as (server, auth):
            server.answers(active())
            for now in (NOW, NOW + 5, NOW + 9.9):
                clock.now = now
                await auth.authenticate(bearer(OPAQUE))
            assert server.hits == 1

            server.answers({"active": False})
            clock.now = NOW + 10
            await refused(auth, bearer(OPAQUE))
            assert server.hits == 2

    asyncio.run(scenario())


def test_an_active_response_is_not_cached_past_the_expiry() -> None:
    async def scenario() -> None:
        clock = Clock()
        async with asking(clock, remember=3600.0) as (server, auth):
            server.answers(active(exp=NOW + 5))
            await auth.authenticate(bearer(OPAQUE))

            clock.now = NOW + 4.9
            assert auth.known(bearer(OPAQUE)) is not None
            clock.now = NOW + 5
            assert auth.known(bearer(OPAQUE)) is None

    asyncio.run(scenario())


def test_an_inactive_response_is_not_cached() -> None:
    async def scenario() -> None:
        async with asking() as (server, auth):
            server.answers({"active": False})
            await refused(auth, bearer(OPAQUE))
            server.answers(active())
            await auth.authenticate(bearer(OPAQUE))

    asyncio.run(scenario())


def test_concurrent_requests_with_one_token_share_one_introspection() -> None:
    async def scenario() -> None:
        async with asking() as (server, auth):
            going = asyncio.Event()

            async def slowly(request: web.Request) -> web.StreamResponse:
                await going.wait()
                return web.json_response(active())

            server.answer = slowly
            waiting = asyncio.gather(*(auth.authenticate(bearer(OPAQUE)) for _ in range(20)))
            await server.asked.wait()
            going.set()

            assert len({principal.id for principal in await waiting}) == 1
            assert server.hits == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [302, 400, 401, 500])
def test_an_introspection_server_error_refuses_the_request_with_503(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with asking() as (server, auth):
            server.answers(active(), status=status, headers={"Location": server.url})

            assert (await refused(auth, bearer(OPAQUE))).status == 503
            assert server.hits == 1

    asyncio.run(scenario())
    assert str(status) in caplog.text
    assert OPAQUE not in caplog.text


def test_a_key_of_the_hub_is_never_sent_to_the_server() -> None:
    async def scenario() -> None:
        async with asking() as (server, auth):
            server.answers(active())

            await refused(auth, bearer(new_key()))

            assert server.hits == 0

    asyncio.run(scenario())


def test_an_expired_key_is_never_sent_to_the_server() -> None:
    async def scenario() -> None:
        async with asking(Clock()) as (server, auth):
            server.answers(active())
            expired = datetime.fromtimestamp(NOW - 1, UTC)
            auth.keys.add(Key("ci", digest("key-of-the-file"), expires=expired))

            await refused(auth, bearer("key-of-the-file"))

            assert server.hits == 0

    asyncio.run(scenario())


def test_the_client_secret_is_not_in_the_repr() -> None:
    asked = Introspection(endpoint="https://login.example.com/ask", client_id="hub", client_secret="hush")

    assert "hush" not in repr(asked)
    assert "hush" not in repr(authentication(jwks=None, introspection=asked).oauth)


def test_tokens_are_sent_over_tls_or_loopback_only() -> None:
    with pytest.raises(DefinitionError, match="https"):
        Introspection(endpoint="http://login.example.com/ask", client_id="hub", client_secret="hush")
