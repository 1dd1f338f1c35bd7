"""Every page and every action of the table is refused to unauthorised callers; new ones are covered by the table."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest

from tests.api.conftest import ADMIN
from tests.api.releasing import Releases, releasing
from tests.console.conftest import Person
from tests.console.markup import EVIL
from tests.protocol.conftest import asynchronous
from tests.transports.http.conftest import Call
from waypost.console.pages import PAGES
from waypost.console.sign_in import SESSION_TTL_S

READING = {("audit", "verify"), ("policies", "test"), ("workflows/{id}", "simulate")}
"""The actions that change nothing, which a viewer may do."""
ACTIONS = [(page.path, action) for page in PAGES for action in page.actions]
FIELDS = {"id": "x", "file": "x.py", "skill": "text", "transition": "build", "version": "1", "as": "failed"}
TOKEN = "A" * 43


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Releases, str]]:
    """A hub with an instance, whose id fills the variables of pages."""
    async with releasing() as releases:
        yield releases, await releases.start()


def place_of(path: str, run: str) -> str:
    """A page with its variable filled in."""
    names = {"instances/{id}": run, "workflows/{id}": "release", "catalog/{id}": "add"}
    return path if "{" not in path else f"{path.partition('{')[0]}{names.get(path, 'x').rpartition('/')[2]}"


async def visit_everything(person: Person, run: str, csrf: str = "") -> list[tuple[str, Call]]:
    """The answers of all pages, then of all actions."""
    found = [(page.path, await person.visit(f"/console/{place_of(page.path, run)}")) for page in PAGES]
    for path, action in ACTIONS:
        form = {"csrf": csrf, "action": action, **FIELDS}
        found.append((f"{action} on {path}", await person.visit(f"/console/{place_of(path, run)}", "POST", form)))
    return found


@pytest.mark.parametrize("cookie", ["", TOKEN, "short", f"{TOKEN}{TOKEN}", "../../etc/passwd", "%00", '"a;b"'])
@asynchronous
async def test_nothing_is_shown_or_done_without_a_session_or_with_a_wrong_one(cookie: str) -> None:
    async with serving() as (releases, run):
        stranger = Person(releases.hub)
        stranger.cookie = cookie
        for name, call in await visit_everything(stranger, run):
            assert call.status == 303, name
            assert re.match(r"/console/sign-in(\?|$)", call.headers["location"]), name
            assert call.body == b"", name
        for path in ("/console/api/keys", "/console/events"):
            assert (await (await stranger.visit(path)).started()).status == 401


@asynchronous
async def test_nothing_is_shown_or_done_with_a_session_that_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (releases, run):
        person = Person(releases.hub)
        await person.sign_in(ADMIN)
        await person.read("keys")
        later = time.time() + SESSION_TTL_S + 1
        monkeypatch.setattr(releases.hub.store.database, "now", lambda: later)
        # The first request removes the session; every other one must be refused by the time alone.
        cookie = person.cookie
        for page in PAGES:
            fresh = Person(releases.hub)
            fresh.cookie = cookie
            assert (await fresh.visit(f"/console/{place_of(page.path, run)}")).status == 303, page.path
        for name, call in await visit_everything(person, run, person.csrf):
            assert call.status == 303, name


@asynchronous
async def test_a_viewer_reads_every_page_and_is_refused_every_action() -> None:
    async with serving() as (releases, run):
        key = await releases.hub.keys.create("vera", roles=["viewer"])
        vera = Person(releases.hub)
        await vera.sign_in(key)
        await vera.read("keys")
        csrf = vera.csrf
        _, approval = await releases.asked(service="shop")
        for page in PAGES:
            call = await vera.visit(f"/console/{place_of(page.path, run)}")
            assert call.status == (404 if page.path == "approvals/{id}" else 200), (page.path, call.status)
        for path, action in ACTIONS:
            form = {"csrf": csrf, "action": action, **FIELDS, **({"id": approval} if path == "approvals" else {})}
            call = await vera.visit(f"/console/{place_of(path, run)}", "POST", form)
            if (path, action) in READING:
                assert call.status < 500, (path, action)
                continue
            # Only people who may use an instance, or decide, learn more of an approval by deciding.
            status, word = (404, "no pending approval") if path.startswith("approvals") else (403, "role")
            assert (call.status, word in _alert(call)) == (status, True), (path, action, call.status, _alert(call))
        assert approval in await _read_as_admin(releases, "approvals"), "it still waits"


async def _read_as_admin(releases: Releases, page: str) -> str:
    root = Person(releases.hub)
    await root.sign_in(ADMIN)
    return await root.read(page)


def _csrf_of(html: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', html)
    assert found is not None
    return found[1]


def _alert(call: Call) -> str:
    found = re.search(r'role="alert">(.*?)</div>', call.body.decode(), re.S)
    return "" if found is None else found[1]


@asynchronous
async def test_a_form_without_the_token_of_its_session_acts_on_no_page() -> None:
    async with serving() as (releases, run):
        person, other = Person(releases.hub), Person(releases.hub)
        for one in (person, other):
            await one.sign_in(ADMIN)
            one.csrf = _csrf_of(await one.read("keys"))
        assert person.csrf != other.csrf
        for csrf in ("", "0" * 64, other.csrf, person.csrf.upper(), f"{person.csrf}0"):
            for path, action in (*ACTIONS, ("sign-out", "")):
                form = {"csrf": csrf, "action": action, **FIELDS}
                call = await person.visit(f"/console/{place_of(path, run)}", "POST", form)
                assert call.status == 403, (path, action, csrf)
                assert b"from another session" in call.body
        assert (await person.visit("/console/keys")).status == 200, "nothing has ended the session"


@asynchronous
async def test_every_response_forbids_frames_sniffing_and_scripts_of_others() -> None:
    async with serving() as (releases, run):
        person = Person(releases.hub)
        stranger = Person(releases.hub)
        await person.sign_in(ADMIN)
        csrf = _csrf_of(await person.read("keys"))
        answers = await visit_everything(stranger, run)
        answers += await visit_everything(person, run, csrf)
        for path in ("", "nothing", "static/x", "static/0/app.css", "api/keys", "api/nothing", "sign-in", "keys/x/y"):
            for one in (person, stranger):
                answers.append((path, await one.visit(f"/console/{path}")))
        answers.append(("DELETE", await person.visit("/console/keys", "DELETE")))
        answers.append(("no form", await person.visit("/console/keys", "POST")))
        answers.append(("wrong key", await stranger.sign_in("wp_wrong")))
        answers.append(("wrong link", await stranger.visit("/console/sign-in?token=x")))
        for one in (person, stranger):
            stream = await (await one.visit("/console/events")).started()
            answers.append(("events", stream))
        for name, call in answers:
            policy = call.headers.get("content-security-policy", "")
            assert "default-src 'none'" in policy, name
            assert "frame-ancestors 'none'" in policy, name
            assert "unsafe" not in policy, name
            assert call.headers["x-frame-options"] == "DENY", name
            assert call.headers["x-content-type-options"] == "nosniff", name


TARGETS = (
    "https://evil.example/",
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/console/\\evil.example",
    "/console/../../evil",
    "/console/%2e%2e/..//evil",
    "javascript:alert(1)",
    "data:text/html,x",
    "/console/\r\nlocation: https://evil.example",
    "/console/\tx",
    " https://evil.example",
    "/consolex",
    "/mcp",
    "/console/sign-in?next=//evil.example",
    "/console/sign-out",
    "http:evil.example",
    "/console/ü",
)


@pytest.mark.parametrize("target", TARGETS)
@asynchronous
async def test_signing_in_leads_to_a_page_of_the_console_only(target: str) -> None:
    async with serving() as (releases, _):
        person = Person(releases.hub)
        form = await person.visit(f"/console/sign-in?next={quote(target, safe='')}")
        assert b'name="next" value="/console/"' in form.body
        assert (await person.sign_in(ADMIN, next=target)).headers["location"] == "/console/"
        again = await person.visit(f"/console/sign-in?next={quote(target, safe='')}")
        assert (again.status, again.headers["location"]) == (303, "/console/")


@asynchronous
async def test_a_page_that_was_asked_for_leads_back_to_itself_with_its_query() -> None:
    async with serving() as (releases, _):
        person = Person(releases.hub)
        call = await person.visit("/console/instances?q=a%20b&status=failed")
        form = await person.visit(call.headers["location"])
        assert b'name="next" value="/console/instances?q=a%20b&amp;status=failed"' in form.body


@asynchronous
async def test_a_second_session_cookie_does_not_select_another_session() -> None:
    async with serving() as (releases, _):
        victim, thief = Person(releases.hub), Person(releases.hub)
        for one in (victim, thief):
            await one.sign_in(ADMIN)
        victim_cookie, thief_cookie = victim.cookie, thief.cookie
        for cookies in (
            f"waypost_session={victim_cookie}; waypost_session={thief_cookie}",
            f"waypost_session={thief_cookie}; waypost_session={victim_cookie}",
            f"waypost_session={thief_cookie};waypost_session=",
            f"Waypost_Session={thief_cookie}",
            f"__Host-waypost_session={thief_cookie}",
            f"x_waypost_session={thief_cookie}",
            f"waypost_session={thief_cookie}, waypost_session={thief_cookie}",
        ):
            stranger = Person(releases.hub)
            assert (await stranger.visit("/console/keys", cookie=cookies)).status == 303, cookies


@pytest.mark.parametrize("other", ['prefs={"a":1,"b":"c d"}', "a b=c", "=x", "x", "@=1; ;", "né=ü", '"=";"'])
@asynchronous
async def test_cookies_of_other_applications_of_the_host_do_not_end_a_session(other: str) -> None:
    async with serving() as (releases, _):
        person = Person(releases.hub)
        await person.sign_in(ADMIN)
        token, person.cookie = person.cookie, ""
        for cookies in (f"{other}; waypost_session={token}", f"waypost_session={token}; {other}"):
            assert (await person.visit("/console/keys", cookie=cookies)).status == 200, cookies


@asynchronous
async def test_a_key_in_the_header_or_the_query_opens_no_page() -> None:
    async with serving() as (releases, _):
        person = Person(releases.hub)
        assert (await person.visit("/console/keys", authorization=f"Bearer {ADMIN}")).status == 303
        assert (await person.visit(f"/console/keys?key={ADMIN}")).status == 303
        assert (await person.visit(f"/console/sign-in?key={ADMIN}")).status == 200
        assert not person.cookie


@asynchronous
async def test_the_query_of_a_url_is_escaped_on_every_page() -> None:
    async with serving() as (releases, run):
        person = Person(releases.hub)
        await person.sign_in(ADMIN)
        evil = quote(f"\"'>{EVIL}", safe="")
        names = ("q", "id", "name", "before", "after", "kind", "status", "definition", "principal", "url", "state")
        for page in PAGES:
            paths = [f"{place_of(page.path, run)}?{name}={evil}" for name in names]
            if "{" in page.path:
                paths.append(f"{page.path.partition('{')[0]}{evil}")
            for path in paths:
                call = await person.visit(f"/console/{path}")
                assert call.status < 500, path
                assert EVIL.encode() not in call.body, path
