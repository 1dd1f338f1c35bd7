"""Workflows in the console: all of them, and one with its graph, counts, findings and simulation."""

from __future__ import annotations

import re
from html import unescape

import yaml

from tests.api.releasing import RELEASE, releasing
from tests.console.conftest import browsing
from tests.console.markup import EVIL
from tests.console.test_instances import rows, watched
from tests.protocol.conftest import asynchronous


@asynchronous
async def test_workflows_are_listed_found_and_read_page_by_page() -> None:
    async with watched("viewer", other={**RELEASE, "title": "Other"}) as (_, person):
        assert rows(await person.read("workflows")) == ["other", "release"]
        assert rows(await person.read("workflows?q=OTH")) == ["other"]
        assert rows(await person.read("workflows?after=other")) == ["release"]
        assert "No workflow matches" in await person.read("workflows?q=nothing")
        assert "There is no workflow" in await person.read("workflows/nothing", 404)


@asynchronous
async def test_a_workflow_shows_its_graph_its_instances_by_state_and_its_findings() -> None:
    states = {"a": {"transitions": {"go": {"target": "nowhere_else"}}}, "nowhere_else": {}}
    async with watched("viewer", lonely={"initialState": "a", "states": states}) as (hub, person):
        await hub.start()
        html = await person.read("workflows/release")
        assert html.count('class="box') == 3
        assert re.search(r'state=draft"><span class="clip">draft</span><span class="end-of-row num">1<', html)
        assert "finds nothing wrong" in html
        assert "initialState: draft" in html
        assert "nowhere_else" in (await person.read("workflows/lonely")).partition("findings-title")[2]


@asynchronous
async def test_a_viewer_simulates_and_bad_numbers_are_kept() -> None:
    async with watched("viewer") as (hub, person):
        await person.read("workflows/release")
        html = await person.act("workflows/release", "simulate", walks="20", steps="30", seed="1")
        assert "20 walks:" in html
        assert "succeeded" in html.partition('id="report"')[2]
        assert (await hub.fetch("GET", "/api/v1/runs"))["runs"] == []
        html = await person.act("workflows/release", "simulate", status=400, walks="many")
        assert "is not a whole number" in html
        assert 'value="many"' in html


@asynchronous
async def test_texts_of_workflows_are_escaped() -> None:
    evil = {
        "title": EVIL,
        "description": EVIL,
        "initialState": EVIL,
        "states": {EVIL: {"transitions": {EVIL: {"title": EVIL, "target": EVIL}}}},
    }
    async with watched("viewer", evil=evil) as (hub, person):
        run = await hub.start("evil")
        for page in ("workflows", "workflows/evil", "instances", f"instances/{run}", "instances?definition=evil"):
            html = await person.read(page)
            assert "<img src=x" not in html, page
            assert "&lt;img src=x" in html or page == "instances", page
            assert len(html.encode()) <= 50_000


@asynchronous
async def test_the_definition_is_shown_as_it_was_written() -> None:
    async with releasing() as releases, browsing(releases.hub) as person:
        html = await person.read("workflows/release")
        shown = unescape(html.partition('<pre class="code flat" tabindex="0">')[2].partition("</pre>")[0])
        assert yaml.safe_load(shown) == {"workflows": {"release": RELEASE}}
