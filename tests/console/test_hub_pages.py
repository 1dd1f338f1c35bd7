"""Sessions and tasks, requests, settings, and what operators hide, without a browser."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.api.conftest import ADMIN, operated_hub, operating
from tests.console.conftest import browsing
from tests.console.markup import EVIL
from tests.protocol.conftest import asynchronous, initialization
from waypost import Hub
from waypost.console.pages import PAGES
from waypost.identity import digest, new_key
from waypost.workers.workers import Workers


def test_no_two_pages_have_one_shortcut() -> None:
    shortcuts = Counter(page.shortcut for page in PAGES if page.shortcut)
    assert {key for key, count in shortcuts.items() if count > 1} == set()


@asynchronous
async def test_the_empty_list_of_workers_names_the_token_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsing() as person:
        monkeypatch.setattr(type(person.hub.runtime), "worker_address", "ws://127.0.0.1:1")
        for needs_token in (True, False):
            monkeypatch.setattr(Workers, "needs_token", needs_token)
            assert ("waypost workers token" in await person.read("workers")) == needs_token


@asynchronous
async def test_a_session_with_the_name_of_its_client_is_shown_and_ended() -> None:
    hub = operated_hub(rules=())
    async with browsing(hub) as person:
        assert "No session is open" in await person.read("sessions")
        opening = initialization()
        opening["params"]["clientInfo"] = {**opening["params"]["clientInfo"], "name": EVIL}
        await person.post(opening)

        html = await person.read("sessions")
        assert (EVIL in html, "onerror" in html, html.count("data-row")) == (False, True, 1)
        shown = html.split('data-row data-id="')[1].split('"')[0]
        done = await person.act("sessions", "end", id=shown)
        assert (f"The session {shown} has ended" in done, "data-row" in done) == (True, False)
        assert "There is no session" in await person.act("sessions", "end", id=shown, status=404)


@asynchronous
async def test_requests_are_shown_by_session_without_secrets_and_within_the_size_of_a_page() -> None:
    hub = operated_hub(rules=())
    async with browsing(hub) as person, operating(hub) as client:
        assert "No message yet" in await person.read("requests")
        for _ in range(30):
            await client.use("note", {"text": f"{EVIL} " * 400, "password": "hunter22"})
        html = await person.read("requests")
        assert (len(html) <= 50_000, EVIL in html, "hunter22" in html) == (True, False, False)
        assert html.count("data-row") == 25
        assert '<span class="mono clip">note</span>' in html, "a call names its tool"
        assert "No message fits" in await person.read("requests?method=prompts/get")
        assert "Invalid cursor" in await person.read("requests?before=x", status=400)


@asynchronous
async def test_pages_of_a_hub_with_much_in_its_configuration_keep_the_size_of_a_page(tmp_path: Path) -> None:
    many = range(100)
    words = "words and more words " * 20
    names = [f"role-{'r' * 60}-{number}" for number in range(20)]
    keys = [
        {"id": f"key-{'k' * 60}-{n}", "hash": digest(new_key()), "roles": names, "permissions": names} for n in many
    ]
    configuration = {
        "version": "1",
        "auth": {"keys": [{"id": "root", "hash": digest(ADMIN), "roles": ["admin"]}, *keys]},
        "policies": [
            {
                "name": f"rule-{'n' * 60}-{number}",
                "description": words,
                "type": "mcp_restriction",
                "config": {"tool_pattern": f"none-{words}{number}"},
            }
            for number in many
        ],
        "mcpServers": {f"server-{number}": {"url": f"http://127.0.0.1:9/{'u' * 100}/{number}"} for number in many},
    }
    file = tmp_path / "waypost.yaml"
    file.write_text(json.dumps(configuration))
    async with browsing(Hub.from_config(file), ADMIN) as person:
        for page, more in (("policies", 60), ("keys", 61), ("upstreams", 75)):
            html = await person.read(page)
            assert len(html.encode()) <= 50_000
            assert f"{more} more" in html


@asynchronous
async def test_messages_full_of_quotes_keep_the_size_of_a_page() -> None:
    hub = operated_hub(rules=())
    async with browsing(hub) as person, operating(hub) as client:
        for _ in range(13):
            await client.use("note", {"text": '"' * 5000})
        html = await person.read("requests")
        assert (len(html.encode()) <= 50_000, html.count("data-row")) == (True, 25)


@asynchronous
async def test_settings_are_shown_with_their_source_and_filtered() -> None:
    async with browsing(operated_hub(rules=(), tool_timeout=7)) as person:
        html = await person.read("settings")
        assert (len(html) <= 50_000, "dataDirectory" in html, 'rel="next"' in html) == (True, True, True)
        html = await person.read("settings?q=toolTimeout")
        assert ("7000" in html, "Keyword argument" in html) == (True, True)
        assert "No setting fits" in await person.read("settings?q=nothing")


@asynchronous
async def test_items_are_selected_hidden_and_shown_again() -> None:
    async with browsing(operated_hub(rules=())) as person:
        await person.read("catalog")
        assert "Select at least one item" in await person.act("catalog", "hide", status=400)
        done = await person.act("catalog", "hide", {"item:add": "1", "item:deploy": "1"})
        assert ("2 items" in done, 'data-id="add"' in done) == (True, False)

        assert 'data-id="add"' in await person.read("catalog?hidden=true")
        assert 'data-action="show"' in await person.read("catalog/add")
        assert "Agents find add again" in await person.act("catalog/add", "show")
        done = await person.act("catalog?hidden=true", "show", {"item:deploy": "1"})
        assert "Nothing is hidden" in done
        done = await person.act("catalog?category=Maths", "hide", {"all": "1"})
        assert "Agents do not find add any more" in done


@asynchronous
async def test_a_viewer_sees_every_page_of_the_hub_and_no_action_on_it() -> None:
    hub = operated_hub(rules=())
    async with browsing(hub, key=None) as person:
        key = await hub.keys.create("vera", roles=["viewer"])
        await person.sign_in(key)
        for page in ("sessions", "requests", "settings", "catalog", "catalog/add"):
            html = await person.read(page)
            actions = html.count("data-action=") - html.count('data-action="sign-out"')
            assert actions == 0, page
        assert "does not have the role operator" in await person.act("catalog/add", "hide", status=403)


@asynchronous
async def test_a_person_whose_only_role_is_approver_signs_in_to_the_approvals() -> None:
    hub = operated_hub(rules=())
    async with browsing(hub, key=None) as person:
        await person.sign_in(await hub.keys.create("ann", roles=["approver"]))
        call = await person.visit("/console/")
        assert (call.status, call.headers["location"]) == (303, "/console/approvals")
        html = await person.read("approvals")
        assert (html.count("data-go="), 'data-live="approvals,instances"' in html) == (1, True)
        stream = await (await person.visit("/console/events?kinds=approvals,instances")).started()
        assert stream.status == 200
        stream.leave()
        assert "does not have the role viewer" in await person.read("keys", status=403)
