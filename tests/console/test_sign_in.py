"""Signing in and out: keys, one-time links, the cookie, its end, and everything that must not work."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time

import pytest

from tests.api.conftest import ADMIN, AGENT, operated_hub
from tests.console.conftest import Person, browsing
from tests.protocol.conftest import asynchronous
from waypost.console import sign_in
from waypost.console.sign_in import MAX_WRONG_KEYS, SESSION_TTL_S, Sessions, WrongKeys
from waypost.identity import Key, digest, new_key
from waypost.identity.keys import SIGN_IN_TOKEN_TTL_S, derive_link_key, make_sign_in_token

PAGES = ("", "keys", "approvals")


@pytest.mark.parametrize("page", PAGES)
@asynchronous
async def test_a_page_without_a_session_leads_to_the_form_and_back(page: str) -> None:
    async with browsing(key=None) as person:
        call = await person.visit(f"/console/{page}")

        assert call.status == 303
        place = call.headers["location"]
        assert place == ("/console/sign-in" if not page else f"/console/sign-in?next=%2Fconsole%2F{page}")
        signed_in = await person.sign_in(next=f"/console/{page}")
        assert (signed_in.status, signed_in.headers["location"]) == (303, f"/console/{page}")
        assert "<h1>" in await person.read(page)


@asynchronous
async def test_the_root_leads_to_the_console() -> None:
    async with browsing(key=None) as person:
        for path in ("/", "/console"):
            call = await person.visit(path)
            assert (call.status, call.headers["location"]) == (307, "/console/")


@asynchronous
async def test_the_cookie_is_for_the_console_only_and_not_for_scripts_or_other_sites() -> None:
    async with browsing(key=None) as person:
        cookie = (await person.sign_in()).headers["set-cookie"]
        assert cookie.split("; ")[1:] == [
            "Path=/console",
            f"Max-Age={SESSION_TTL_S:.0f}",
            "HttpOnly",
            "SameSite=Strict",
        ]

        behind = await person.visit("/console/sign-in", "POST", {"key": ADMIN}, x_forwarded_proto="https")
        direct = await person.visit("/console/sign-in", "POST", {"key": ADMIN}, scheme="https")
        assert behind.headers["set-cookie"].endswith("; Secure")
        assert direct.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "/mcp", "/console/../api", "/console/\\evil", "/console/\r\nx: y"],
)
@asynchronous
async def test_signing_in_leads_to_no_other_place_than_the_console(target: str) -> None:
    async with browsing(key=None) as person:
        assert (await person.sign_in(next=target)).headers["location"] == "/console/"


@asynchronous
async def test_a_wrong_key_is_refused_recorded_and_soon_limited() -> None:
    async with browsing(key=None) as person:
        for _ in range(MAX_WRONG_KEYS):
            call = await person.sign_in("wp_wrong")
            assert call.status == 401
            assert b'role="alert"' in call.body
            assert b"unknown, revoked or expired" in call.body
        limited = await person.sign_in("wp_wrong")
        assert (limited.status, limited.headers["retry-after"]) == (429, "60")
        assert not person.cookie

        audit = person.hub.guard.audit
        assert audit is not None
        await audit.written()
        operator = Person(person.hub)
        await operator.visit("/console/sign-in", "POST", {"key": ADMIN}, address="127.0.0.2")
        await audit.written()
        entries = json.loads((await operator.visit("/console/api/audit")).body)["entries"]
        keys = ("action", "principal", "callerType", "capability", "caller")
        acts = [tuple(entry.get(key) for key in keys) for entry in entries if "console." in entry.get("action", "")]
        assert acts == [
            ("console.signed_in", "root", "console", "console", "127.0.0.2"),
            ("console.refused", "anonymous", "console", "key", "127.0.0.1"),
        ]


def test_an_address_may_try_again_after_a_while() -> None:
    now = 0.0
    wrong = WrongKeys(lambda: now)
    for _ in range(MAX_WRONG_KEYS):
        assert not wrong.is_blocked("a")
        wrong.count("a")
    assert wrong.is_blocked("a")
    assert not wrong.is_blocked("b")
    now = 61.0
    assert not wrong.is_blocked("a")
    wrong.count("a")
    assert not wrong.is_blocked("a")


@asynchronous
async def test_signing_out_ends_the_session_everywhere() -> None:
    async with browsing() as person:
        await person.read("keys")
        stolen = person.cookie
        call = await person.visit("/console/sign-out", "POST", {"csrf": person.csrf})
        assert (call.status, call.headers["location"]) == (303, "/console/sign-in")
        assert "Max-Age=0" in call.headers["set-cookie"]

        person.cookie = stolen
        assert (await person.visit("/console/keys")).status == 303


@asynchronous
async def test_a_session_ends_with_its_key_and_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsing() as person:
        key = await person.hub.keys.create("anna", roles=["admin"])
        other = Person(person.hub)
        assert (await other.sign_in(key)).status == 303
        assert (await other.visit("/console/keys")).status == 200
        await person.hub.keys.revoke("anna")
        assert (await other.visit("/console/keys")).status == 303

        later = time.time() + SESSION_TTL_S + 1
        monkeypatch.setattr(person.hub.store.database, "now", lambda: later)
        assert (await person.visit("/console/keys")).status == 303


@asynchronous
async def test_the_oldest_session_ends_for_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "MAX_SESSIONS", 3)
    async with browsing(key=None) as person:
        people = [Person(person.hub) for _ in range(4)]
        for one in people:
            assert (await one.sign_in()).status == 303
        assert [(await one.visit("/console/keys")).status for one in people] == [303, 200, 200, 200]


@asynchronous
async def test_a_link_of_the_hubs_own_key_signs_in_once_and_only_on_this_machine() -> None:
    hub, key = operated_hub(rules=()), new_key()
    hub.runtime.authentication.admit(Key("hub", digest(key), roles=("admin",)))
    async with browsing(hub, key=None) as person:
        link = f"/console/sign-in?token={make_sign_in_token(key, time.time())}"
        assert (await person.visit(link, address="203.0.113.9")).status == 403
        assert (await person.visit(link, x_forwarded_for="203.0.113.9")).status == 403
        call = await person.visit(link)
        assert (call.status, call.headers["location"]) == (303, "/console/")
        assert "Keys" in await person.read("keys")

        person.cookie = ""
        again = await person.visit(link)
        assert again.status == 403
        assert b"was used or has expired" in again.body


@asynchronous
async def test_a_link_works_once_for_all_processes_that_share_the_hubs_own_key() -> None:
    hub, key = operated_hub(rules=()), new_key()
    hub.runtime.authentication.admit(Key("hub", digest(key), roles=("admin",)))
    async with browsing(hub):
        processes = [Sessions(hub.store, hub.runtime.authentication) for _ in range(4)]
        token = make_sign_in_token(key, time.time())
        redeemed = await asyncio.gather(*(process.redeem(token) for process in processes))
        assert sorted(one is not None for one in redeemed) == [False, False, False, True]
        assert await Sessions(hub.store, hub.runtime.authentication).redeem(token) is None


@asynchronous
async def test_nothing_in_the_store_signs_a_link_of_the_hubs_own_key() -> None:
    hub, key = operated_hub(rules=()), new_key()
    hub.runtime.authentication.admit(Key("hub", digest(key), roles=("admin",)))
    async with browsing(hub, key=None) as person:
        assert (await person.visit(f"/console/sign-in?token={make_sign_in_token(key, time.time())}")).status == 303
        assert "Keys" in await person.read("keys")
        [stored] = await hub.store.state.page("console.sessions")
        [used] = await hub.store.state.page(sign_in.USED_LINKS)
        for text in (str(stored.value), stored.key, used.key):
            assert digest(key).removeprefix("sha256:") not in text
            for found in re.findall("[0-9a-f]{64}", text):
                hashed = bytes.fromhex(found)
                body = f"{int(time.time()) + 60}.{'x' * 22}"
                for signer in (hashed, derive_link_key(hashed)):
                    for signed in (body, f"waypost sign-in {body}"):
                        token = f"{body}.{hmac.digest(signer, signed.encode(), 'sha256').hex()}"
                        assert await Sessions(hub.store, hub.runtime.authentication).redeem(token) is None


@asynchronous
async def test_used_links_are_forgotten_when_they_have_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, key = operated_hub(rules=()), new_key()
    hub.runtime.authentication.admit(Key("hub", digest(key), roles=("admin",)))
    async with browsing(hub):
        sessions = Sessions(hub.store, hub.runtime.authentication)
        for _ in range(3):
            assert await sessions.redeem(make_sign_in_token(key, time.time())) is not None
        assert len(await hub.store.state.page(sign_in.USED_LINKS)) == 3

        later = time.time() + SIGN_IN_TOKEN_TTL_S + 2
        monkeypatch.setattr(hub.store.database, "now", lambda: later)
        assert await sessions.redeem(make_sign_in_token(key, later)) is not None
        assert len(await hub.store.state.page(sign_in.USED_LINKS)) == 1


@pytest.mark.parametrize("made_at", [-601.0, 60.0])
@asynchronous
async def test_a_link_that_has_expired_or_lies_about_its_time_is_refused(made_at: float) -> None:
    hub, key = operated_hub(rules=()), new_key()
    hub.runtime.authentication.admit(Key("hub", digest(key), roles=("admin",)))
    async with browsing(hub, key=None) as person:
        token = make_sign_in_token(key, time.time() + made_at)
        assert (await person.visit(f"/console/sign-in?token={token}")).status == 403


@asynchronous
async def test_a_link_of_any_other_key_is_refused() -> None:
    async with browsing(key=None) as person:
        token = make_sign_in_token(ADMIN, time.time())
        assert (await person.visit(f"/console/sign-in?token={token}")).status == 403


@asynchronous
async def test_a_form_without_the_token_of_the_session_does_nothing() -> None:
    async with browsing() as person:
        await person.read("keys")
        for csrf in ("", "0" * 64):
            call = await person.visit("/console/keys", "POST", {"csrf": csrf, "action": "create", "id": "mallory"})
            assert call.status == 403
        assert "mallory" not in await person.read("keys")
        other = Person(person.hub)
        await other.sign_in()
        await other.read("keys")
        call = await person.visit("/console/keys", "POST", {"csrf": other.csrf, "action": "create", "id": "mallory"})
        assert call.status == 403


@asynchronous
async def test_another_site_can_neither_sign_a_visitor_in_nor_act() -> None:
    async with browsing(key=None) as person:
        call = await person.visit("/console/sign-in", "POST", {"key": ADMIN}, sec_fetch_site="cross-site")
        assert (call.status, person.cookie) == (403, "")
        call = await person.visit("/console/sign-in", "POST", {"key": ADMIN}, origin="https://evil.example")
        assert (call.status, person.cookie) == (403, "")


@asynchronous
async def test_under_a_configured_host_the_console_accepts_forms_and_the_api_refuses_the_origin() -> None:
    hub = operated_hub(rules=(), allowed_hosts=["hub.example"])
    async with browsing(hub, key=None) as person:
        name, origin = "hub.example", "https://hub.example"
        assert (await person.visit("/console/sign-in", "POST", {"key": ADMIN}, host=name, origin=origin)).status == 303
        assert (await person.visit("/api/v1/keys", host=name, origin=origin)).status == 403


@asynchronous
async def test_people_without_a_role_that_reads_get_approvals_and_nothing_else() -> None:
    async with browsing(key=AGENT) as person:
        call = await person.visit("/console/")
        assert (call.status, call.headers["location"]) == (303, "/console/approvals")
        html = await person.read("approvals")
        assert 'href="/console/keys"' not in html
        refused = await person.read("keys", 403)
        assert "agent does not have the role viewer." in refused


@asynchronous
async def test_any_replica_accepts_a_session() -> None:
    async with browsing() as person:
        call = await person.visit("/console/keys")
        elsewhere = Sessions(person.hub.store, person.hub.runtime.authentication)
        headers = {b"cookie": f"a=b; waypost_session={person.cookie}".encode()}
        found = await elsewhere.find(headers)
        assert call.status == 200
        assert found is not None
        assert found.principal.id == "root"
        await elsewhere.end(found)
        assert (await person.visit("/console/keys")).status == 303


@asynchronous
async def test_processes_that_share_the_hubs_own_key_take_over_its_sessions() -> None:
    hub, key = operated_hub(rules=()), new_key()
    hub.runtime.authentication.admit(Key("hub", digest(key), roles=("admin",)))
    async with browsing(hub):
        first, second = (Sessions(hub.store, hub.runtime.authentication, name, list) for name in ("one", "two"))
        opened = await first.open(sign_in.hash_key(key))
        assert opened is not None
        assert await second.find_token(opened.token) is not None
        # A hub that does not have the key goes by the process that used it last, since the first one is gone.
        stranger = Sessions(hub.store, operated_hub().runtime.authentication, "three", lambda: ["two"])
        found = await stranger.find_token(opened.token)
        assert found is not None
        assert (found.principal.id, found.principal.roles) == ("hub", ("admin",))
