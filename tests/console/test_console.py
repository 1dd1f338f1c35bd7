"""The console as a whole: when it is imported, its headers, static files, pages of programs, errors and events."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import AGENT, operated_hub
from tests.api.releasing import releasing
from tests.console.conftest import Person, browsing
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.console import Done, Page, View
from waypost.console.pages import PAGES
from waypost.console.rendering import environment, list_static
from waypost.errors import DefinitionError
from waypost.runtime.component import Component

SOURCE = Path(__file__).parents[2] / "src" / "waypost" / "console"
PLAIN = [page for page in PAGES if "{" not in page.path]


def test_every_key_opens_one_page() -> None:
    shortcuts = [page.shortcut for page in PAGES if page.shortcut]
    assert len(set(shortcuts)) == len(shortcuts)


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.path or "overview")
@asynchronous
async def test_each_page_has_one_heading_one_main_a_title_and_no_inline_script_or_style(page: Page) -> None:
    async with browsing() as person:
        html = await person.read(page.path)

        assert (html.count("<h1"), html.count("<main")) == (1, 1)
        assert f"<title>{page.title} - Waypost</title>" in html
        assert len(html.encode()) <= 50_000
        assert not re.search(r"<script(?![^>]* src=)|<style|\son[a-z]+=|\sstyle=|javascript:", html)


@asynchronous
async def test_the_first_request_has_all_templates_compiled_in_the_background() -> None:
    environment.cache_clear()
    async with browsing(key=None) as person:
        await person.read("sign-in")
        await person.hub.stop()
    cached = environment().cache
    assert cached is not None
    assert len(cached) == len(environment().list_templates()) > 20


@asynchronous
async def test_every_response_forbids_frames_inline_scripts_and_other_hosts() -> None:
    async with browsing() as person:
        for path in ("/console/", "/console/sign-in", "/console/nothing", "/console/keys"):
            headers = (await person.visit(path)).headers
            policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == "'self'"
            assert policy["frame-ancestors"] == "'none'"
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"


@asynchronous
async def test_static_files_are_named_by_their_content_compressed_and_kept_for_a_year() -> None:
    async with browsing() as person:
        html = await person.read()
        places = re.findall(r'(?:src|href)="(/console/static/[^"#]+)', html)
        assert len(set(places)) >= 5
        for place in set(places):
            call = await person.visit(place, accept_encoding="gzip")
            assert (call.status, call.headers["content-encoding"]) == (200, "gzip")
            assert call.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert gzip.decompress(call.body) == (await person.visit(place)).body
        stale = re.sub(r"static/[0-9a-f]{12}", "static/000000000000", places[0])
        for place in (
            stale,
            "/console/static/x",
            "/console/static/x/../console.py",
            "/console/static/x/%2e%2e/page.py",
        ):
            assert (await person.visit(place)).status == 404


def test_every_static_file_and_template_is_in_the_wheel() -> None:
    build = tomllib.loads((SOURCE.parents[2] / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["packages"] == ["src/waypost"], "hatch takes every file of the package"
    assert not {"exclude", "only-include"} & {*build, *build["targets"]["wheel"]}
    ignored = subprocess.run(
        ["git", "check-ignore", *map(str, SOURCE.rglob("*.*"))], cwd=SOURCE, capture_output=True, text=True
    ).stdout
    assert [line for line in ignored.splitlines() if "__pycache__" not in line] == []
    assert {"vendor/htmx.LICENSE.txt", "vendor/uplot.LICENSE.txt"} <= list_static()


def test_nothing_of_the_console_is_imported_before_the_first_page_is_asked_for() -> None:
    program = """
import asyncio, sys
from waypost import Hub

async def ask(app, method, path, body=b""):
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"accept", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"}
    sent = []
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}
    async def send(message):
        sent.append(message)
    await app(scope, receive, send)
    return sent[0]["status"]

def imported():
    return [name for name in sys.modules if name.startswith(("waypost.console", "jinja2", "markupsafe"))]

async def main():
    hub = Hub("h", version="1")
    hub.tool(name="add")(lambda: 1)
    app = hub.asgi()
    await hub.start()
    statuses = [
        await ask(app, "GET", "/healthz"),
        await ask(app, "POST", "/mcp", b'{"jsonrpc":"2.0","id":1,"method":"ping"}'),
        await ask(app, "GET", "/metrics"),
        await ask(app, "GET", "/api/v1/keys"),
        await ask(app, "GET", "/"),
    ]
    assert not imported(), (statuses, imported())
    assert await ask(app, "GET", "/console/") == 303
    assert imported()
    await hub.stop()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True)


class Notes(Component):
    """A component of a program, with a page and an action."""

    name = "notes"

    def __init__(self, folder: Path) -> None:
        template = folder / "notes.html"
        template.write_text(
            '{% extends "layout.html" %}{% block content %}{% for n in notes %}<li data-row>{{ n }}</li>{% endfor %}'
            "{{ ui.form_start() }}<input name='text' value=\"{{ view.form.get('text', '') }}\">"
            '{{ ui.button("create", "Add") }}</form>{% endblock %}'
        )
        self.notes: list[str] = []
        self.pages = [Page("notes/{topic}", "Notes", template, self._load, {"create": self._create})]

    async def _load(self, view: View) -> dict[str, Any]:
        return {"notes": [f"{view.variables['topic']}: {note}" for note in self.notes]}

    async def _create(self, view: View) -> Done:
        await view.api.get("keys")
        self.notes.append(view.form["text"])
        return Done("Noted.")


@asynchronous
async def test_a_component_of_a_program_adds_a_page_with_an_action(tmp_path: Path) -> None:
    hub = operated_hub(rules=())
    hub.runtime.add(Notes(tmp_path))
    async with browsing(hub) as person:
        await person.read("notes/home")
        html = await person.act("notes/home", "create", text="<script>alert(1)</script>")
        assert '<div class="note good" role="status">' in html
        assert "<li data-row>home: &lt;script&gt;alert(1)&lt;/script&gt;</li>" in html
        assert (await person.visit("/console/notes")).status == 404
        assert "There is no such action" in await person.act("notes/home", "destroy", status=404)


@asynchronous
async def test_a_page_whose_path_is_taken_is_refused() -> None:
    async with browsing() as person:
        console = person.hub.runtime.console
        with pytest.raises(DefinitionError, match="already"):
            console.register_page(Page("keys", "Mine", "error.html"))


@asynchronous
async def test_a_refused_action_shows_the_error_and_keeps_the_form() -> None:
    async with browsing() as person:
        viewer = await person.hub.keys.create("vera", roles=["viewer"])
        other = Person(person.hub)
        await other.sign_in(viewer)
        await other.read("keys")
        html = await other.act("keys", "create", status=403, id="ci")
        assert "vera does not have the role admin." in html
        assert 'role="alert"' in html

        await person.read("keys")
        html = await person.act("keys", "create", status=400, id="not an id", roles="agent <b>")
        assert 'value="not an id"' in html
        assert 'value="agent &lt;b&gt;"' in html
        assert "Invalid body" in html


@asynchronous
async def test_a_page_that_fails_says_so_and_the_log_has_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with browsing() as person:
        monkeypatch.setattr(person.hub.runtime.keys, "entries", None)
        html = await person.read("keys", 500)
        assert "The hub failed to answer; see its log." in html
        assert (await person.visit("/console/keys", "DELETE")).status == 405


@asynchronous
async def test_scripts_read_the_api_with_the_session_and_without_it_get_401() -> None:
    async with browsing() as person:
        call = await person.visit("/console/api/keys")
        assert (call.status, call.headers["content-type"]) == (200, "application/json")
        person.cookie = ""
        assert (await person.visit("/console/api/keys")).status == 401
        assert (await (await person.visit("/console/events")).started()).status == 401


@asynchronous
async def test_events_reach_a_person_and_end_with_the_key() -> None:
    async with browsing() as person:
        key = await person.hub.keys.create("vera", roles=["viewer"])
        vera = Person(person.hub)
        await vera.sign_in(key)
        stream = await vera.visit("/console/events?kinds=keys")
        await stream.until(lambda: b": connected" in stream.body)
        await person.read("keys")
        await person.act("keys", "create", id="ci")
        await stream.until(lambda: b'event: change\ndata: {"kind":"keys","id":"ci"}' in stream.body)
        await person.act("keys", "revoke", id="vera")
        await stream.task
        vera.calls.clear()


@asynchronous
async def test_a_script_whose_session_has_ended_is_led_to_the_form() -> None:
    async with browsing(key=None) as person:
        call = await person.visit("/console/keys", hx_request="true")
        assert call.headers["hx-redirect"] == "/console/sign-in?next=%2Fconsole%2Fkeys"


@asynchronous
async def test_a_mounted_hub_links_to_its_own_prefix() -> None:
    async with browsing() as person:
        call = await person.visit("/console/keys")
        assert b'href="/console/keys"' in call.body
        scope_path = "/hub/console/keys"
        person.app, app = _mounted(person.app), person.app
        call = await person.visit(scope_path)
        person.app = app
        assert b'href="/hub/console/keys"' in call.body


def _mounted(app: Any) -> Any:
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": "/hub"}, receive, send)

    return mounted


@asynchronous
async def test_approving_is_one_act_of_the_person_in_the_audit() -> None:
    async with releasing() as releases:
        run, approval = await releases.asked(service="shop")
        lena = Person(releases.hub)
        await lena.sign_in(releases.lead)
        html = await lena.read("approvals")
        assert f'data-id="{approval}"' in html
        digest = re.search(r'name="digest" value="([^"]+)"', html)
        assert digest is not None
        changed = await lena.act(
            "approvals", "approve", status=409, id=approval, digest="sha256:0", reason="fine by me"
        )
        assert "has changed since it was shown" in changed
        assert 'value="fine by me"' in changed
        html = await lena.act("approvals", "approve", id=approval, digest=digest[1], reason="fine by me")
        assert f"Approved. {run} is in shipped (succeeded)." in html
        assert "Nothing waits for approval" in html

        audit = releases.hub.guard.audit
        assert audit is not None
        await audit.written()
        entries = (await releases.fetch("GET", "/api/v1/audit"))["entries"]
        (approved,) = [entry for entry in entries if entry.get("action") == "approval.approved"]
        assert (approved["principal"], approved["callerType"]) == ("lena", "console")


@asynchronous
async def test_an_agent_without_the_role_sees_no_approval() -> None:
    async with releasing() as releases:
        _, approval = await releases.asked(service="shop")
        agent = Person(releases.hub)
        await agent.sign_in(AGENT)
        assert approval not in await agent.read("approvals")
        refused = await agent.act("approvals", "approve", status=403, id=approval)
        assert "requires the role lead" in refused


@asynchronous
async def test_a_hub_without_keys_of_its_own_still_asks_people_to_sign_in() -> None:
    async with browsing(Hub("bare", version="1"), key=None) as person:
        assert (await person.visit("/console/")).status == 303
        assert (await person.sign_in("anything")).status == 401
