"""Which credentials are accepted, and how the others are refused."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.policy.issuer import (
    ISSUER,
    NOW,
    RESOURCE,
    Clock,
    authentication,
    bearer,
    key_set,
    refused,
    token,
)
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DefinitionError, WaypostError
from waypost.identity import Authentication, Introspection, Key, Keys, OAuthSettings, Unauthorized, digest, new_key
from waypost.identity.claims import TokenCache, Verified

KEY = "wp_" + "k" * 43
CI = Key("ci", digest(KEY), roles=("agent",))
METADATA = "https://hub.example.com/.well-known/oauth-protected-resource/mcp"

MISSING = {"error": "Missing Authorization header"}
INVALID = {"error": "Invalid API key"}
NOT_CONFIGURED = {"error": "MCP API key not configured"}
MALFORMED = {"error": "Malformed Authorization header"}


def test_a_key_authenticates_its_principal() -> None:
    auth = Authentication([CI])

    assert auth.known(bearer(KEY)) == Principal("ci", ("agent",))
    assert asyncio.run(auth.authenticate(bearer(KEY))) == Principal("ci", ("agent",))


@pytest.mark.parametrize("scheme", [b"bearer", b"BEARER", b"BeArEr"])
def test_the_scheme_is_read_in_any_case(scheme: bytes) -> None:
    assert Authentication([CI]).known({b"authorization": scheme + b" " + KEY.encode()}) is not None


@pytest.mark.parametrize(
    ("given", "status", "body"),
    [
        (None, 401, MISSING),
        (b"", 401, MISSING),
        (b"Bearer", 401, MISSING),
        (b"Bearer ", 401, MISSING),
        (b"Basic Y2k6a2V5", 401, MISSING),
        (KEY.encode(), 401, MISSING),
        (b" Bearer " + KEY.encode(), 401, MISSING),
        (b"Bearer\x00" + KEY.encode(), 401, MISSING),
        (b"Bearer\xa0" + KEY.encode(), 401, MISSING),
        (b"Bearer wp_" + b"o" * 43, 401, INVALID),
        (b"Bearer " + KEY.encode()[:-1], 401, INVALID),
        (b"Bearer " + KEY.encode() + b"A", 401, INVALID),
        (b"Bearer " + KEY.encode().upper(), 401, INVALID),
        (b"Bearer " + digest(KEY).encode(), 401, INVALID),
        (b"Bearer " + b"a" * 100_000, 401, INVALID),
        (b"Bearer  " + KEY.encode(), 400, MALFORMED),
        (b"Bearer\t" + KEY.encode(), 400, MALFORMED),
        (b"Bearer " + KEY.encode() + b" ", 400, MALFORMED),
        (b"Bearer " + KEY.encode() + b"\n", 400, MALFORMED),
        (b"Bearer " + KEY.encode() + b"\x00", 400, MALFORMED),
        (b"Bearer " + KEY.encode() + b"\xa0", 400, MALFORMED),
        (b"Bearer x " + KEY.encode(), 400, MALFORMED),
        (b"Bearer " + KEY.encode() + b", Bearer x", 400, MALFORMED),
    ],
)
def test_a_malformed_or_unknown_credential_is_refused_with_the_reason(
    given: bytes | None, status: int, body: dict[str, str]
) -> None:
    headers = {} if given is None else {b"authorization": given}
    for auth in (Authentication([CI]), authentication()):
        refusal = asyncio.run(refused(auth, headers))

        assert auth.known(headers) is None
        assert (refusal.status, refusal.body) == (status, body)
        assert KEY not in f"{refusal!r}{refusal.challenge}"


def test_a_token_in_the_query_or_another_header_is_not_read() -> None:
    headers = {b"x-api-key": KEY.encode(), b"cookie": b"access_token=" + KEY.encode(), b"Authorization": b"Bearer x"}

    assert asyncio.run(refused(Authentication([CI]), headers)).body == MISSING


@pytest.mark.parametrize("headers", [{}, bearer("x"), {b"authorization": b"Basic x"}])
def test_every_request_is_refused_without_keys_tokens_or_anonymous_access(headers: dict[bytes, bytes]) -> None:
    refusal = asyncio.run(refused(Authentication(anonymous=False), headers))

    assert (refusal.status, refusal.body, refusal.challenge) == (401, NOT_CONFIGURED, "Bearer")


def test_anonymous_callers_are_accepted_when_nothing_else_is_configured() -> None:
    assert Authentication().known({}) == ANONYMOUS
    assert Authentication().allows_anonymous
    assert not Authentication([CI]).allows_anonymous
    assert not authentication().allows_anonymous
    assert not Authentication(anonymous=False).allows_anonymous


def test_anonymous_callers_get_the_configured_principal() -> None:
    guest = Principal("anonymous", ("agent",))
    auth = Authentication([CI], anonymous=guest)

    assert auth.known({b"host": b"x"}) == guest
    assert asyncio.run(auth.authenticate({})) == guest


@pytest.mark.parametrize("given", [b"Bearer wrong", b"Basic x", b"Bearer"])
def test_an_invalid_credential_is_not_treated_as_anonymous(given: bytes) -> None:
    for auth in (Authentication(), Authentication([CI], anonymous=ANONYMOUS)):
        refusal = asyncio.run(refused(auth, {b"authorization": given}))

        assert refusal.status == 401


def test_a_revoked_key_is_refused_at_once() -> None:
    auth = Authentication(Keys([CI]))
    assert auth.known(bearer(KEY)) is not None

    auth.keys.revoke("ci")

    assert asyncio.run(refused(auth, bearer(KEY))).body == NOT_CONFIGURED


def test_the_key_of_the_hub_itself_does_not_count_as_configured() -> None:
    own = new_key()
    auth = Authentication(anonymous=False)

    auth.admit(Key("hub", digest(own), roles=("admin",)))

    assert auth.known(bearer(own)) == Principal("hub", ("admin",))
    assert asyncio.run(refused(auth, {})).body == NOT_CONFIGURED
    assert asyncio.run(refused(auth, bearer(KEY))).body == NOT_CONFIGURED


def test_keys_and_tokens_work_side_by_side() -> None:
    auth = Authentication([CI], OAuthSettings(issuer=ISSUER, resource=RESOURCE, jwks=key_set("rsa")), clock=Clock())

    assert asyncio.run(auth.authenticate(bearer(KEY))).id == "ci"
    assert asyncio.run(auth.authenticate(bearer(token()))).id == f"{ISSUER}|ada"
    assert asyncio.run(refused(auth, bearer(new_key()))).body == INVALID


def test_a_challenge_without_oauth_is_plain() -> None:
    for headers in ({}, bearer("x")):
        assert asyncio.run(refused(Authentication([CI]), headers)).challenge == "Bearer"


@pytest.mark.parametrize(
    ("settings", "scope"),
    [
        ({}, ""),
        ({"scopes": ("read", "write")}, ', scope="read write"'),
        ({"scopes": ("read", "write"), "required_scopes": ("read",)}, ', scope="read"'),
    ],
    ids=str,
)
def test_a_challenge_names_the_metadata_url(settings: dict[str, Any], scope: str) -> None:
    auth = authentication(**settings)

    def challenge(headers: dict[bytes, bytes]) -> str | None:
        return asyncio.run(refused(auth, headers)).challenge

    assert challenge({}) == f'Bearer resource_metadata="{METADATA}"{scope}'
    assert challenge(bearer("x")) == f'Bearer error="invalid_token", resource_metadata="{METADATA}"{scope}'
    assert challenge(bearer("x y")) == f'Bearer error="invalid_request", resource_metadata="{METADATA}"{scope}'


def test_a_token_without_a_required_scope_is_forbidden() -> None:
    auth = authentication(required_scopes=("read", "admin"))

    refusal = asyncio.run(refused(auth, bearer(token())))

    assert (refusal.status, refusal.body) == (403, {"error": "Insufficient scope"})
    assert refusal.challenge == auth.insufficient_scope(["read", "admin"])
    assert auth.known(bearer(token())) is None


def test_a_scope_challenge_names_all_scopes_that_are_needed() -> None:
    expected = f'Bearer error="insufficient_scope", resource_metadata="{METADATA}", scope="files:read files:write"'

    assert authentication().insufficient_scope(["files:read", "files:write"]) == expected
    assert Authentication([CI]).insufficient_scope(["a"]) == 'Bearer error="insufficient_scope", scope="a"'


@pytest.mark.parametrize("hostile", ['a"', "a\r\nX: y", "a b", "a\\", "ä", ""])
def test_a_scope_cannot_break_out_of_the_challenge(hostile: str) -> None:
    assert Authentication().insufficient_scope([hostile, "b"]) == 'Bearer error="insufficient_scope", scope="b"'


def test_the_metadata_names_the_authorization_server() -> None:
    auth = authentication(scopes=("read", "write"), required_scopes=("base",))

    assert auth.metadata() == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["base", "read", "write"],
        "bearer_methods_supported": ["header"],
    }
    assert "scopes_supported" not in (authentication().metadata() or {})


@pytest.mark.parametrize(
    ("resource", "published", "paths"),
    [
        (RESOURCE, RESOURCE, ("", "/mcp")),
        (RESOURCE + "/", RESOURCE, ("", "/mcp")),
        ("https://hub.example.com", "https://hub.example.com", ("",)),
        ("https://hub.example.com/", "https://hub.example.com", ("",)),
        ("http://127.0.0.1:8420/team/mcp", "http://127.0.0.1:8420/team/mcp", ("", "/team/mcp")),
    ],
)
def test_the_metadata_is_below_the_well_known_path(resource: str, published: str, paths: tuple[str, ...]) -> None:
    auth = authentication(resource=resource)

    assert auth.metadata_paths == tuple(f"/.well-known/oauth-protected-resource{path}" for path in paths)
    assert (auth.metadata() or {})["resource"] == published


def test_without_oauth_there_is_no_metadata() -> None:
    assert Authentication([CI]).metadata() is None
    assert Authentication([CI]).metadata_paths == ()


def test_a_verified_token_is_cached() -> None:
    async def scenario() -> None:
        auth = authentication()
        sent = bearer(token())

        assert auth.known(sent) is None
        principal = await auth.authenticate(sent)
        assert auth.known(sent) is principal

    asyncio.run(scenario())


@pytest.mark.parametrize(("expires", "until"), [(NOW + 5, NOW + 5), (NOW + 3600, NOW + 60)])
def test_a_token_is_cached_for_a_minute_and_never_past_its_expiry(expires: float, until: float) -> None:
    async def scenario() -> None:
        clock = Clock()
        auth = authentication(clock)
        sent = bearer(token(exp=expires))
        await auth.authenticate(sent)

        clock.now = until - 0.1
        assert auth.known(sent) is not None
        clock.now = until
        assert auth.known(sent) is None

    asyncio.run(scenario())


def test_a_token_in_its_leeway_is_checked_every_time() -> None:
    async def scenario() -> None:
        clock = Clock()
        auth = authentication(clock)
        sent = bearer(token(exp=NOW + 5))
        clock.now = NOW + 20

        await auth.authenticate(sent)
        assert auth.known(sent) is None
        clock.now = NOW + 35
        await refused(auth, sent)

    asyncio.run(scenario())


def test_a_full_token_cache_evicts_the_oldest_token() -> None:
    clock = Clock()
    cache = TokenCache(clock, limit=2)
    for name in (b"a", b"b", b"a", b"c"):
        cache.put(name, Verified(Principal(name.decode()), NOW + 10, NOW + 300))

    assert [name for name in (b"a", b"b", b"c") if cache.get(name)] == [b"a", b"c"]
    assert len(cache) == 2


def test_tokens_are_neither_stored_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    auth = authentication()
    good, bad = token(), token(exp=NOW - 100)

    async def scenario() -> None:
        await auth.authenticate(bearer(good))
        await refused(auth, bearer(bad))

    asyncio.run(scenario())
    assert "The token has expired." in caplog.text
    for secret in (good, bad):
        assert secret not in caplog.text
        assert secret not in repr(auth._tokens._known) + repr(vars(auth._verifying))


def test_a_refusal_is_a_waypost_error() -> None:
    assert issubclass(Unauthorized, WaypostError)
    assert Unauthorized().body == {"error": "The request is refused."}


ASKED = Introspection(endpoint="https://login.example.com/ask", client_id="hub", client_secret="hush")


@pytest.mark.parametrize(
    "settings",
    [
        {"jwks": None},
        {"introspection": ASKED},
        {"issuer": ""},
        {"issuer": "login.example.com"},
        {"resource": ""},
        {"resource": "hub.example.com/mcp"},
        {"resource": "https:///mcp"},
        {"resource": RESOURCE + "#x"},
        {"resource": RESOURCE + "?x=1"},
        {"resource": RESOURCE + '"'},
        {"resource": RESOURCE + "\r\nX: y"},
        {"scopes": ("a b",)},
        {"scopes": ("",)},
        {"scopes": ('a"',)},
        {"scopes": ("offline_access",)},
        {"required_scopes": ("a\\",)},
        {"algorithms": ("HS256",)},
        {"jwks": "http://login.example.com/keys"},
        {"jwks": "no/such/file"},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_a_definition_error(settings: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        authentication(**settings)


def test_roles_permissions_and_scopes_may_be_lists() -> None:
    key = new_key()
    listed: Any = {"roles": ["agent"], "permissions": ["deploy"], "scopes": ["read"]}

    assert Keys([Key("ci", digest(key), **listed)]).principal(key) == Principal(
        "ci", ("agent",), ("deploy",), ("read",)
    )
    assert hash(Keys([Key("ci", digest(key), **listed)]).principal(key))
