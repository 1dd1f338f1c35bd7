"""Which requests over HTTP are accepted, and how the others are refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.policy.issuer import ISSUER, RESOURCE, serving, token
from tests.protocol.conftest import Json, asynchronous, initialization, notification, request, stateless
from tests.transports.http.conftest import BOTH, EVENTS, Visitor, Web, browsing, routing
from tests.transports.http.guarded import (
    KEYS,
    METADATA,
    READER,
    WRITER,
    bearer,
    guarded,
    modern_call,
    sign_in,
    text_of,
    with_keys,
    with_oauth,
)
from waypost.capabilities.principals import Principal
from waypost.identity import Authentication, digest
from waypost.wire.versions import LEGACY

MISSING = "Missing Authorization header"
INVALID = "Invalid API key"
NOT_CONFIGURED = "MCP API key not configured"
MALFORMED = "Malformed Authorization header"
INSUFFICIENT = "Insufficient scope"
UNAVAILABLE = "Authorization server unavailable"


async def refused(web: Web, headers: dict[str, str] | None = None) -> tuple[int, Json, str | None]:
    """The refusal of a request, which is the same for every verb and in both eras."""
    calls = [
        await web.modern("tools/list", headers=headers),
        await web.post(initialization(), headers),
        await web.post(b"this is not even JSON", headers),
        await web.open("GET", headers={"accept": EVENTS, "content-type": None, **(headers or {})}).done(),
        await web.open("DELETE", headers=headers or {}).done(),
    ]
    answers = [(call.status, json.loads(call.body), call.headers.get("www-authenticate")) for call in calls]
    assert all(call.headers["content-type"] == "application/json" for call in calls)
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({}, 401, MISSING),
        ({"authorization": ""}, 401, MISSING),
        ({"authorization": "Bearer"}, 401, MISSING),
        ({"authorization": f"Basic {WRITER}"}, 401, MISSING),
        ({"x-api-key": WRITER}, 401, MISSING),
        ({"cookie": f"access_token={WRITER}"}, 401, MISSING),
        (bearer("wp_" + "x" * 43), 401, INVALID),
        (bearer(digest(WRITER)), 401, INVALID),
        (bearer(f"{WRITER} {WRITER}"), 400, MALFORMED),
    ],
)
@asynchronous
async def test_a_missing_or_invalid_key_is_refused_with_the_reason(
    headers: dict[str, str], status: int, error: str
) -> None:
    async with browsing(with_keys()) as web:
        assert await refused(web, headers) == (status, {"error": error}, "Bearer")


@asynchronous
async def test_a_hub_without_any_credentials_refuses_every_request() -> None:
    async with browsing(guarded(Authentication(anonymous=False))) as web:
        assert await refused(web) == (401, {"error": NOT_CONFIGURED}, "Bearer")
        assert await refused(web, bearer(WRITER)) == (401, {"error": NOT_CONFIGURED}, "Bearer")


@asynchronous
async def test_with_oauth_a_refusal_points_to_the_metadata() -> None:
    where = f'resource_metadata="{METADATA}", scope="notes:read"'
    async with browsing(with_oauth(scopes=("notes:read",))) as web:
        assert await refused(web) == (401, {"error": MISSING}, f"Bearer {where}")
        invalid = f'Bearer error="invalid_token", {where}'
        assert await refused(web, bearer(token(aud="https://other.example.com"))) == (401, {"error": INVALID}, invalid)
        malformed = f'Bearer error="invalid_request", {where}'
        assert await refused(web, bearer("a b")) == (400, {"error": MALFORMED}, malformed)
        assert (await web.modern("tools/list", headers=bearer(token()))).status == 200


@asynchronous
async def test_a_token_without_a_required_scope_is_forbidden() -> None:
    challenge = f'Bearer error="insufficient_scope", resource_metadata="{METADATA}", scope="admin"'
    async with browsing(with_oauth(required_scopes=("admin",))) as web:
        assert await refused(web, bearer(token())) == (403, {"error": INSUFFICIENT}, challenge)


@asynchronous
async def test_a_token_that_cannot_be_checked_is_not_the_callers_fault() -> None:
    async with serving() as issuer, browsing(with_oauth(jwks=issuer.url)) as web:
        call = web.open_modern(stateless(1, "tools/list"), bearer(token()))
        await call.task
        assert (call.status, json.loads(call.body)) == (503, {"error": UNAVAILABLE})
        assert "www-authenticate" not in call.headers


@asynchronous
async def test_the_metadata_is_public() -> None:
    async with browsing(with_oauth(scopes=("notes:read",))) as web:
        for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
            for headers in ({}, bearer("wrong")):
                found = await web.open("GET", headers=headers, path=path).done()
                assert found.status == 200
                assert json.loads(found.body) == {
                    "resource": RESOURCE,
                    "authorization_servers": [ISSUER],
                    "scopes_supported": ["notes:read"],
                    "bearer_methods_supported": ["header"],
                }


@asynchronous
async def test_health_is_open_and_there_is_no_metadata_without_oauth() -> None:
    async with browsing(with_keys()) as web:
        for headers in ({}, bearer("wrong")):
            found = await web.open("GET", headers=headers, path="/health").done()
            assert (found.status, json.loads(found.body)["status"]) == (200, "ok")
        assert (await web.open("GET", path="/.well-known/oauth-protected-resource").done()).status == 404


@asynchronous
async def test_the_gate_comes_before_the_key() -> None:
    async with browsing(with_keys()) as web:
        assert (await web.modern("tools/list", headers={"host": "evil.example.com", **bearer(WRITER)})).status == 403


@asynchronous
async def test_anonymous_callers_are_accepted_if_allowed_but_not_with_an_invalid_key() -> None:
    guest = Principal("guest", scopes=("notes:write",))
    async with browsing(guarded(Authentication(KEYS, anonymous=guest))) as web:
        assert text_of(await modern_call(web, "whoami", None)) == "guest"
        assert text_of(await modern_call(web, "write", None)) == "Written by guest."
        assert text_of(await modern_call(web, "whoami", READER)) == "reader"
        assert (await refused(web, bearer("wrong")))[:2] == (401, {"error": INVALID})


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_a_session_of_another_principal_is_not_found(version: str) -> None:
    async with browsing(with_keys()) as web:
        owner = await sign_in(web, WRITER, version)
        stranger = Visitor(web, owner.id, version)
        stranger.headers.update(bearer(READER))

        posted = await stranger.post(request(1, "tools/list"))
        outcome = await stranger.post(notification("notifications/initialized"))
        listened = await stranger.listen().done()
        deleted = await stranger.delete()

        unknown = Visitor(web, "never-was", version)
        unknown.headers.update(bearer(READER))
        assert [call.status for call in (posted, outcome, listened, deleted)] == [404] * 4
        assert posted.body == (await unknown.post(request(1, "tools/list"))).body
        assert {tool["name"] for tool in (await owner.ask("tools/list"))["result"]["tools"]} >= {"write"}
        assert (await owner.delete()).status == 204


@asynchronous
async def test_a_session_without_its_key_is_not_enough() -> None:
    async with browsing(with_keys()) as web:
        owner = await sign_in(web, WRITER)
        call = await owner.post(request(1, "tools/list"), {"authorization": None})
        assert (call.status, json.loads(call.body)) == (401, {"error": MISSING})


@asynchronous
async def test_a_revoked_key_is_refused_with_the_next_request_and_its_session_is_gone() -> None:
    hub = with_keys()
    async with browsing(hub) as web:
        visitor = await sign_in(web, READER)
        assert (await visitor.post(request(1, "ping"))).status == 200
        assert hub.auth is not None
        hub.auth.keys.revoke("reader")
        assert (await visitor.post(request(2, "ping"))).status == 401
        assert (await visitor.delete()).status == 401
        assert await refused(web, bearer(READER)) == (401, {"error": INVALID}, "Bearer")
        assert (await modern_call(web, "whoami", WRITER)).status == 200
        hub.auth.keys.add(KEYS[1])
        assert (await visitor.post(request(3, "ping"))).status == 404


EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "authentication.py"
SERVE = f"import runpy; runpy.run_path({str(EXAMPLE)!r})['hub'].run('http', port=0)"


@asynchronous
async def test_a_real_server_asks_for_the_key(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVE,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "WAYPOST_DATA": str(tmp_path)},
    )
    assert process.stderr is not None
    try:
        ready = (await process.stderr.readline()).decode()
        found = re.search(r"(http://127\.0\.0\.1:\d+)/mcp", ready)
        assert found is not None, ready
        message = stateless(1, "tools/call", {"name": "whoami", "arguments": {}})
        usual = {"accept": BOTH, "content-type": "application/json"}
        usual |= {name: value for name, value in routing(message).items() if value is not None}
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as client:
            async with client.post(found[0], json=message, headers=usual) as answer:
                assert (answer.status, await answer.json()) == (401, {"error": MISSING})
                assert answer.headers["www-authenticate"] == "Bearer"
            async with client.post(found[0], json=message, headers={**usual, **bearer(READER)}) as answer:
                assert (answer.status, await answer.json()) == (401, {"error": INVALID})
            key = bearer("wp_example-only-make-your-own")
            async with client.post(found[0], json=message, headers={**usual, **key}) as answer:
                assert answer.status == 200
                assert (await answer.json())["result"]["content"][0]["text"] == "ci"
            async with client.get(f"{found[1]}/health") as answer:
                assert answer.status == 200
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
