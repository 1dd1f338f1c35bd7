"""Scopes of keys and of tokens decide which capabilities a caller has."""

from __future__ import annotations

import pytest

from tests.policy.issuer import ISSUER, token
from tests.protocol.conftest import Json, asynchronous, request
from tests.transports.http.conftest import browsing
from tests.transports.http.guarded import (
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
from waypost import Catalog
from waypost.wire.versions import LEGACY, V2025_03_26

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
async def test_lists_omit_capabilities_whose_scope_the_caller_lacks(
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
async def test_using_a_capability_without_its_scope_is_denied_with_a_challenge(
    method: str, params: Json, scope: str
) -> None:
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
async def test_the_catalog_omits_capabilities_whose_scope_the_caller_lacks() -> None:
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
        assert denied.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="notes:write"'


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
