"""Who gets to a hub over HTTP, what the others are told, and what is there for whom."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.policy.issuer import ISSUER, RESOURCE, Clock, key_set, serving, token
from tests.protocol.conftest import Json, asynchronous, initialization, notification, request, stateless
from tests.transports.http.conftest import BOTH, EVENTS, Call, Visitor, Web, browsing, routing
from waypost import Catalog, Context, Hub
from waypost.capabilities.principals import Principal
from waypost.policy import Authentication, Key, OAuthSettings, digest
from waypost.wire.versions import LATEST_LEGACY, LEGACY, V2025_03_26

WRITER = "wp_" + "w" * 43
READER = "wp_" + "r" * 43
KEYS = (Key("writer", digest(WRITER), scopes=("notes:read", "notes:write")), Key("reader", digest(READER)))
METADATA = "https://hub.example.com/.well-known/oauth-protected-resource/mcp"

MISSING = "Missing Authorization header"
INVALID = "Invalid API key"
NOT_CONFIGURED = "MCP API key not configured"
MALFORMED = "Malformed Authorization header"
INSUFFICIENT = "Insufficient scope"
UNAVAILABLE = "Authorization server unavailable"


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


def guarded(auth: Authentication | None) -> Hub:
    """A hub with something for everybody and something for writers, of every kind."""
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
    return guarded(Authentication(KEYS))


def with_oauth(**settings: Any) -> Hub:
    given: Json = {"issuer": ISSUER, "resource": RESOURCE, "jwks": key_set("rsa"), **settings}
    return guarded(Authentication(oauth=OAuthSettings(**given), clock=Clock()))


async def sign_in(web: Web, credential: str, version: str = LATEST_LEGACY) -> Visitor:
    """A session that belongs to whoever presents this."""
    opened = await web.post(initialization(version), bearer(credential))
    assert opened.status == 200, opened.body
    visitor = Visitor(web, opened.headers["mcp-session-id"], version)
    visitor.headers.update(bearer(credential))
    assert (await visitor.post(notification("notifications/initialized"))).status == 202
    return visitor


async def refused(web: Web, headers: dict[str, str] | None = None) -> tuple[int, Json, str | None]:
    """How a request is turned away, which is the same for every verb and in both eras."""
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
async def test_whoever_shows_no_good_key_is_told_so(headers: dict[str, str], status: int, error: str) -> None:
    async with browsing(with_keys()) as web:
        assert await refused(web, headers) == (status, {"error": error}, "Bearer")


@asynchronous
async def test_a_hub_that_nobody_can_get_into_says_so() -> None:
    async with browsing(guarded(Authentication(anonymous=False))) as web:
        assert await refused(web) == (401, {"error": NOT_CONFIGURED}, "Bearer")
        assert await refused(web, bearer(WRITER)) == (401, {"error": NOT_CONFIGURED}, "Bearer")


@asynchronous
async def test_with_oauth_a_refusal_says_where_to_get_a_token() -> None:
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
async def test_anonymous_callers_are_let_in_where_they_are_welcome_but_not_with_a_bad_key() -> None:
    guest = Principal("guest", scopes=("notes:write",))
    async with browsing(guarded(Authentication(KEYS, anonymous=guest))) as web:
        assert text_of(await modern_call(web, "whoami", None)) == "guest"
        assert text_of(await modern_call(web, "write", None)) == "Written by guest."
        assert text_of(await modern_call(web, "whoami", READER)) == "reader"
        assert (await refused(web, bearer("wrong")))[:2] == (401, {"error": INVALID})


async def modern_call(web: Web, tool: str, credential: str | None) -> Call:
    headers = None if credential is None else bearer(credential)
    return await web.modern("tools/call", {"name": tool, "arguments": {}}, headers)


def text_of(call: Call) -> str:
    text: str = call.messages()[-1]["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize("version", LEGACY)
@asynchronous
async def test_a_session_is_not_there_for_anybody_else(version: str) -> None:
    async with browsing(with_keys()) as web:
        owner = await sign_in(web, WRITER, version)
        stranger = Visitor(web, owner.id, version)
        stranger.headers.update(bearer(READER))

        posted = await stranger.post(request(1, "tools/list"))
        told = await stranger.post(notification("notifications/initialized"))
        listened = await stranger.listen().done()
        deleted = await stranger.delete()

        unknown = Visitor(web, "never-was", version)
        unknown.headers.update(bearer(READER))
        assert [call.status for call in (posted, told, listened, deleted)] == [404] * 4
        assert posted.body == (await unknown.post(request(1, "tools/list"))).body
        assert {tool["name"] for tool in (await owner.ask("tools/list"))["result"]["tools"]} >= {"write"}
        assert (await owner.delete()).status == 204


@asynchronous
async def test_a_session_without_its_key_is_not_enough() -> None:
    async with browsing(with_keys()) as web:
        owner = await sign_in(web, WRITER)
        call = await owner.post(request(1, "tools/list"), {"authorization": None})
        assert (call.status, json.loads(call.body)) == (401, {"error": MISSING})


LISTS = [
    ("tools/list", "tools", "name", {"write"}),
    ("resources/list", "resources", "uri", {"notes://secret"}),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", {"notes://shelf/{number}"}),
    ("prompts/list", "prompts", "name", {"compose"}),
]
USES = [
    ("tools/call", {"name": "write", "arguments": {}}, "notes:write"),
    ("tools/call", {"name": "through", "arguments": {}}, "notes:write"),
    ("resources/read", {"uri": "notes://secret"}, "notes:read"),
    ("resources/read", {"uri": "notes://shelf/7"}, "notes:read"),
    ("prompts/get", {"name": "compose"}, "notes:write"),
]


@pytest.mark.parametrize(("method", "section", "key", "scoped"), LISTS, ids=[method for method, *_ in LISTS])
@asynchronous
async def test_lists_leave_out_what_the_caller_has_no_scope_for(
    method: str, section: str, key: str, scoped: set[str]
) -> None:
    async with browsing(with_keys()) as web:

        async def listed(credential: str) -> list[set[str]]:
            answers = [(await web.modern(method, headers=bearer(credential))).json]
            answers += [await (await sign_in(web, credential, version)).ask(method) for version in LEGACY]
            return [{item[key] for item in answer["result"][section]} for answer in answers]

        # Asked in turns, so that a page kept for one would show up with the other.
        for _ in range(2):
            assert all(scoped <= names for names in await listed(WRITER))
            assert not any(scoped & names for names in await listed(READER))


@pytest.mark.parametrize(("method", "params", "scope"), USES, ids=[str(params) for _, params, _ in USES])
@asynchronous
async def test_using_it_is_denied_with_a_challenge_in_both_eras(method: str, params: Json, scope: str) -> None:
    async with browsing(with_keys()) as web:
        reader = await sign_in(web, READER)
        for call in (await web.modern(method, params, bearer(READER)), await reader.post(request(1, method, params))):
            assert call.status == 403
            assert call.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
            assert call.json["error"] == {
                "code": -32000,
                "message": "insufficient_scope",
                "data": {"required": [scope], "granted": []},
            }
        writer = await sign_in(web, WRITER)
        for call in (await web.modern(method, params, bearer(WRITER)), await writer.post(request(1, method, params))):
            assert call.status == 200
            assert "result" in call.messages()[-1]


@asynchronous
async def test_the_catalog_leaves_it_out_too() -> None:
    async with browsing(with_keys().add(Catalog)) as web:
        for credential, sees in ((WRITER, True), (READER, False)):
            found = (await modern_call(web, "catalog", credential)).json["result"]["structuredContent"]
            assert ("write" in {tool["name"] for tool in found["tools"]}) is sees
            assert ("compose" in {prompt["name"] for prompt in found["prompts"]}) is sees


@asynchronous
async def test_with_oauth_the_challenge_of_a_denial_leads_to_the_metadata() -> None:
    async with browsing(with_oauth()) as web:
        denied = await modern_call(web, "write", token(scope="notes:read"))
        challenge = f'Bearer error="insufficient_scope", resource_metadata="{METADATA}", scope="notes:write"'
        assert (denied.status, denied.headers["www-authenticate"]) == (403, challenge)
        assert denied.json["error"]["data"] == {"required": ["notes:write"], "granted": ["notes:read"]}
        assert text_of(await modern_call(web, "write", token(scope="notes:write"))) == f"Written by {ISSUER}|ada."


@asynchronous
async def test_scopes_hold_without_authentication_too() -> None:
    async with browsing(guarded(None)) as web:
        denied = await modern_call(web, "write", None)
        assert denied.json["error"]["message"] == "insufficient_scope"
        assert "www-authenticate" not in denied.headers


@asynchronous
async def test_a_request_has_the_scopes_of_its_own_token_not_of_the_one_that_opened_the_session() -> None:
    wide, narrow = token(scope="notes:write"), token(scope="notes:read")
    async with browsing(with_oauth()) as web:
        visitor = await sign_in(web, wide)
        use = request(1, "tools/call", {"name": "write", "arguments": {}})
        assert (await visitor.post(use)).status == 200
        assert (await visitor.post(use, bearer(narrow))).status == 403


@asynchronous
async def test_a_batch_has_the_scopes_of_its_own_token_too() -> None:
    wide, narrow = token(scope="notes:write"), token(scope="notes:read")
    async with browsing(with_oauth()) as web:
        visitor = await sign_in(web, wide, V2025_03_26)
        batch = [request(1, "tools/call", {"name": "write", "arguments": {}})]
        assert "result" in (await visitor.post(batch)).json[0]
        assert (await visitor.post(batch, bearer(narrow))).json[0]["error"]["message"] == "insufficient_scope"


@asynchronous
async def test_a_revoked_key_is_refused_with_the_next_request() -> None:
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
        assert (await visitor.post(request(3, "ping"))).status == 200


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
