"""Signing in at an identity provider: code, PKCE, state and nonce, against a real one on loopback."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from tests.console.conftest import Person, browsing
from tests.console.provider import CLIENT, Provider, providing
from tests.protocol.conftest import asynchronous
from tests.transports.http.conftest import Call
from waypost import Hub
from waypost.identity import Authentication, ConsoleClient, Grants, OAuthSettings
from waypost.identity.sign_in import Attempt

RESOURCE = "http://127.0.0.1:8420/mcp"


@asynccontextmanager
async def asking(secret: str | None = None, **changed: Any) -> AsyncIterator[tuple[Person, Provider]]:
    """A person without a session, in front of a hub that knows a provider."""
    async with providing() as provider:
        provider.secret = secret
        oauth = OAuthSettings(
            issuer=provider.issuer,
            resource=RESOURCE,
            jwks=f"{provider.issuer}/keys",
            grants=Grants(roles_claim="roles"),
            console=ConsoleClient(client_id=CLIENT, client_secret=secret, **changed),
        )
        hub = Hub("desk", version="1", auth=Authentication(oauth=oauth), audit="store")
        async with browsing(hub, key=None) as person:
            yield person, provider


async def go(person: Person, path: str = "sign-in/provider?next=/console/keys") -> tuple[str, str]:
    """Go to the provider and come back: the query of the callback, and the cookie of the attempt."""
    call = await person.visit(f"/console/{path}")
    assert call.status == 303, call.body
    cookie = re.match(r"waypost_sign_in=([^;]*); (.*)", call.headers["set-cookie"])
    assert cookie is not None
    assert cookie[2] == "Path=/console/sign-in; Max-Age=600; HttpOnly; SameSite=Lax"
    async with aiohttp.ClientSession() as session, session.get(call.headers["location"], allow_redirects=False) as got:
        assert got.status == 302
        return urlsplit(got.headers["Location"]).query, cookie[1]


async def come_back(person: Person, query: str, cookie: str) -> Call:
    """The answer of the callback; a browser sends the Lax cookie with it, and never a Strict one."""
    return await person.visit(f"/console/sign-in/callback?{query}", cookie=f"waypost_sign_in={cookie}")


@pytest.mark.parametrize("secret", [None, "s3cret value"])
@asynchronous
async def test_a_person_signs_in_and_has_the_roles_of_the_token(secret: str | None) -> None:
    async with asking(secret) as (person, provider):
        page = await person.read("sign-in?next=/console/instances")
        link = re.search(r'href="(/console/sign-in/provider\?[^"]*)"', page)
        assert link is not None
        query, cookie = await go(person, html.unescape(link[1]).removeprefix("/console/"))

        call = await come_back(person, query, cookie)
        assert call.status == 200
        # A redirect would come without the Strict cookie: the page leads on by itself, from within the site.
        assert '<meta http-equiv="refresh" content="0;url=/console/instances">' in call.body.decode()
        cookies = [value for name, value in call.raw_headers if name == "set-cookie"]
        assert [("SameSite=Strict" in one, "Max-Age=0" in one) for one in cookies] == [(True, False), (False, True)]

        person.cookie = cookies[0].split("=")[1].split(";")[0]
        shown = await person.read("instances")
        assert f"{provider.issuer}|ada" in shown
        assert "does not have the role admin" in await person.act("keys", "create", id="x", status=403)
        await person.visit("/console/sign-out", "POST", {"csrf": person.csrf})
        assert (await person.visit("/console/instances")).status == 303


@asynchronous
async def test_a_sign_in_is_recorded_with_the_address_of_the_browser() -> None:
    async with asking() as (person, provider):
        assert (await come_back(person, *await go(person))).status == 200
        audit = person.hub.guard.audit
        assert audit is not None
        await audit.written()
        values = [entry.value for entry in await person.hub.store.audit.latest()]
        (signed_in,) = [value for value in values if value.get("action") == "console.signed_in"]
        keys = ("principal", "callerType", "capability", "caller")
        expected = (f"{provider.issuer}|ada", "console", "console", "127.0.0.1")
        assert tuple(signed_in.get(key) for key in keys) == expected


@asynchronous
async def test_an_answer_with_another_state_or_without_the_cookie_is_refused() -> None:
    async with asking() as (person, _):
        query, cookie = await go(person)
        other = Attempt("x" * 43, "y" * 43, "z" * 43, "/console/").encode()
        for sent in ("", "!", other):
            call = await come_back(person, query, sent)
            assert (call.status, "not begun in this browser" in call.body.decode()) == (403, True)
        assert (await come_back(person, query, cookie)).status == 200
        again = await come_back(person, query, cookie)
        assert (again.status, "did not accept the code" in again.body.decode()) == (403, True)


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"nonce": "another"}, "belongs to another sign-in"),
        ({"nonce": None}, "belongs to another sign-in"),
        ({"aud": "another-client"}, "not valid"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "for another client"),
        ({"iss": "https://evil.example"}, "not valid"),
        ({"exp": 1}, "not valid"),
        ({"sub": None}, "not valid"),
    ],
)
@asynchronous
async def test_an_id_token_that_is_not_for_this_sign_in_is_refused(claims: dict[str, Any], sentence: str) -> None:
    async with asking() as (person, provider):
        provider.claims = claims
        query, cookie = await go(person)
        call = await come_back(person, query, cookie)
        assert (call.status, sentence in call.body.decode()) == (403, True), call.body
        assert "waypost_session" not in str(call.raw_headers)


@asynchronous
async def test_a_token_signed_with_an_unknown_key_and_the_providers_refusal_are_refused() -> None:
    async with asking() as (person, provider):
        provider.signs_with = "ec-other"
        query, cookie = await go(person)
        assert (await come_back(person, query, cookie)).status == 403
        state = parse_qs((await go(person))[0])["state"][0]
        _, cookie = await go(person)
        call = await come_back(person, f"error=access_denied&state={state}", cookie)
        assert call.status == 403

        query, cookie = await go(person)
        state = parse_qs(query)["state"][0]
        call = await come_back(person, f"error=access_denied%3Cimg%3E&state={state}", cookie)
        assert ("refused: access_denied&lt;img&gt;" in call.body.decode(), call.status) == (True, 403)
        call = await come_back(person, f"code=x&state={state}&iss=https://evil.example", cookie)
        assert "from another authorization server" in call.body.decode()


@asynchronous
async def test_a_provider_that_is_gone_or_names_another_issuer_is_a_sentence_on_the_form() -> None:
    async with asking() as (person, provider):
        issuer, provider.issuer = provider.issuer, "https://evil.example"
        call = await person.visit("/console/sign-in/provider")
        assert (call.status, "names another issuer" in call.body.decode()) == (503, True)
        provider.issuer = issuer
        assert (await person.visit("/console/sign-in/provider")).status == 303


@asynchronous
async def test_a_hub_without_a_provider_has_no_link_to_one() -> None:
    async with browsing(key=None) as person:
        assert "sign-in/provider" not in await person.read("sign-in")
        assert (await person.visit("/console/sign-in/provider")).status == 404
        assert (await person.visit("/console/sign-in/callback?code=x&state=y")).status == 404


@asynchronous
async def test_the_session_ends_where_the_hub_no_longer_knows_the_provider() -> None:
    async with asking() as (person, _):
        query, cookie = await go(person)
        call = await come_back(person, query, cookie)
        person.cookie = (
            next(value for name, value in call.raw_headers if name == "set-cookie").split("=")[1].split(";")[0]
        )
        await person.read("approvals")
        person.hub.runtime.authentication.oauth = None
        assert (await person.visit("/console/approvals")).status == 303
