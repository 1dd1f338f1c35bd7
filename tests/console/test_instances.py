"""Instances in the console: the view in the URL, what is done with all of a view, and one instance."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.api.releasing import Releases, releasing
from tests.console.conftest import Person, browsing
from tests.console.markup import EVIL
from tests.protocol.conftest import asynchronous
from waypost.console.pages.instance import LIMIT


@asynccontextmanager
async def watched(role: str = "admin", **more: Any) -> AsyncIterator[tuple[Releases, Person]]:
    """A hub with a workflow, and a person who is signed in with a role."""
    async with releasing(**more) as releases:
        person = Person(releases.hub)
        assert (await person.sign_in(await releases.hub.keys.create("pat", roles=[role]))).status == 303
        yield releases, person
        for call in person.calls:
            call.leave()


def rows(html: str) -> list[str]:
    return re.findall(r'data-row data-id="([^"]+)"', html)


@asynchronous
async def test_the_url_is_the_view() -> None:
    async with watched("viewer") as (hub, person):
        idle = await hub.start(service="shop")
        waiting, _ = await hub.asked(service="bank")
        assert rows(await person.read("instances")) == sorted([idle, waiting], reverse=True)
        for view, wanted in (
            ("status=waiting_for_approval", [waiting]),
            ("q=SHOP", [idle]),
            ("q=" + waiting[:-3], [waiting]),
            ("definition=release&state=draft", [idle]),
            ("definition=release&state=draft&status=waiting_for_approval", []),
            ("principal=agent&age=1h&status=waiting_for_action", [idle]),
            ("principal=nobody", []),
            ("q=%25", []),
        ):
            html = await person.read(f"instances?{view}")
            assert rows(html) == wanted, view
            assert bool(wanted) or "No instance matches this view" in html


@asynchronous
async def test_a_view_is_read_page_by_page_and_an_invalid_one_shows_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.console.pages.instances.LIMIT", 2)
    async with watched("viewer") as (hub, person):
        ids = [await hub.start(service="shop") for _ in range(5)]
        found, place = [], "instances?q=shop"
        while place:
            html = await person.read(place)
            found += rows(html)
            after = re.search(r'rel="next" href="/console/([^"]+)"', html)
            place = after[1].replace("&amp;", "&") if after else ""
        assert found == sorted(ids, reverse=True)
        for query in ("before=zzz&q=kept", "before=zzz"):
            html = await person.read(f"instances?{query}", 400)
            assert "Invalid cursor" in html
            assert "No workflow has run yet" not in html
        assert 'value="kept"' in await person.read("instances?status=nope&q=kept", 400)


@asynchronous
async def test_a_batch_is_shown_first_and_does_not_change_later_instances() -> None:
    async with watched("operator") as (hub, person):
        ids = [await hub.start(service="shop") for _ in range(3)]
        lost = await hub.lost()
        await person.read("instances?q=shop")
        html = await person.act("instances?q=shop", "cancel")
        assert "3 instances would be cancelled. Nothing has changed yet." in html
        newest = re.search(r'name="newest" value="([^"]+)"', html)
        assert newest is not None
        assert newest[1] == max(ids)
        assert rows(await person.read("instances?status=cancelled")) == []
        later = await hub.start(service="shop")
        assert "3 instances cancelled." in await person.act("instances?q=shop", "cancel", newest=newest[1])
        assert rows(await person.read("instances?status=cancelled")) == sorted(ids, reverse=True)
        assert rows(await person.read("instances?q=shop&status=waiting_for_action")) == [later]
        assert "1 instance would be retried" in await person.act("instances", "retry")
        assert "1 instance resolved as not done." in await person.act(
            "instances", "resolve", {"as": "failed"}, newest=lost
        )
        assert "No instance of this view can be changed" in await person.act("instances", "retry")
        refused = await person.act("instances?status=cancelled", "cancel", status=400)
        assert "not possible with the status cancelled" in refused


@asynchronous
async def test_a_viewer_sees_an_instance_and_no_action() -> None:
    async with watched("viewer") as (hub, person):
        run = await hub.start()
        for page in ("instances", f"instances/{run}"):
            html = await person.read(page)
            assert re.findall(r'data-action="([^"]+)"', html) == ["sign-out"]
            assert "does not have the role operator" in await person.act(page, "cancel", status=403)
        assert "Unknown workflow instance" in await person.read("instances/wf_none", 404)


@asynchronous
async def test_a_transition_is_submitted_with_the_rights_of_the_person() -> None:
    async with watched("operator") as (hub, person):
        run = await hub.start()
        await person.read(f"instances/{run}")
        form = {"transition": "build", "version": "1", "arguments": '{"tests": true}'}
        refused = await person.act(f"instances/{run}", "submit", form, status=403)
        assert "to submit for others, the role admin is needed" in refused
        boss = Person(hub.hub)
        await boss.sign_in()
        await boss.read(f"instances/{run}")
        assert "build: now in review" in await boss.act(f"instances/{run}", "submit", form)
        assert "version" in await boss.act(f"instances/{run}", "submit", form, status=409)


@asynchronous
async def test_an_unknown_outcome_is_resolved_and_a_failed_chain_continued() -> None:
    chain = {
        "initialState": "a",
        "states": {
            "a": {"transitions": {"go": {"target": "b"}}},
            "b": {
                "transitions": {
                    "on": {
                        "target": "c",
                        "actor": "deterministic",
                        "executor": {"kind": "capability", "capability": "build", "args": {"tests": "$.context.tests"}},
                    }
                }
            },
            "c": {"terminal": True},
        },
    }
    async with watched("operator", chain=chain) as (hub, person):
        for how in ("succeeded", "failed"):
            run = await hub.lost()
            html = await person.read(f"instances/{run}")
            assert "It is unknown whether" in html
            assert "Resolved as" in await person.act(f"instances/{run}", "resolve", {"as": how})
        run = await hub.lost()
        assert "Retried: now in review" in await person.act(f"instances/{run}", "retry")
        run = await hub.start("chain")
        await hub.submit(run, "go")
        assert "Continue from here" in await person.read(f"instances/{run}")
        assert "Retried: now in b, failed step." in await person.act(f"instances/{run}", "retry")


@asynchronous
async def test_the_timeline_has_the_last_events_first_and_older_ones_on_demand() -> None:
    async with watched("viewer") as (hub, person):
        run = await hub.start()
        for _ in range(15):
            await hub.submit(run, "skip", sure=True)
            await hub.submit(run, "revise")
        html = await person.read(f"instances/{run}")
        assert re.findall(r"Version (\d+) ", html) == [str(version) for version in range(31, 11, -1)]
        assert len(html.encode()) <= 50_000
        assert f'href="/console/instances/{run}?before=12"' in html
        older = await person.read(f"instances/{run}?before=12")
        assert re.findall(r"Version (\d+) ", older) == [str(version) for version in range(11, 0, -1)]
        assert "is not a version" in await person.read(f"instances/{run}?before=x", 400)


@asynchronous
async def test_parents_and_children_lead_to_each_other() -> None:
    parent = {
        "initialState": "a",
        "states": {
            "a": {"transitions": {"go": {"target": "b", "executor": {"kind": "workflow", "definitionId": "release"}}}},
            "b": {"terminal": True},
        },
    }
    async with watched("viewer", parent=parent) as (hub, person):
        run = await hub.start("parent")
        await hub.submit(run, "go")
        (child,) = rows(await person.read(f"instances/{run}"))
        assert f"/console/instances/{run}" in await person.read(f"instances/{child}")


@asynchronous
async def test_texts_of_callers_are_escaped_and_bounded() -> None:
    async with watched("admin") as (hub, person):
        run = await hub.start(service=EVIL, more=[EVIL * 100] * 500)
        await hub.submit(run, "build", tests=f"</script>{EVIL}" * 50)
        for page in ("instances", f"instances?q={EVIL[:4]}", f"instances/{run}"):
            html = await person.read(page)
            assert "<img src=x" not in html
            assert len(html.encode()) <= 50_000
        assert "&lt;img src=x" in html


@asynchronous
async def test_a_search_does_not_find_masked_values() -> None:
    async with watched("viewer") as (hub, person):
        run = await hub.start()
        await hub.submit(run, "build", tests=True, token="t0p-secret")
        assert rows(await person.read("instances?q=t0p-s")) == []
        assert rows(await person.read("instances?q=apiToken")) == [run]


COUNTER: dict[str, Any] = {
    "initialState": "open",
    "states": {
        "open": {"transitions": {"count": {"target": "open", "output": {"n": "$.arguments.n"}}}},
    },
}


@asynchronous
async def test_the_last_step_of_a_page_has_the_value_that_a_step_of_the_next_page_wrote() -> None:
    async with releasing(counter=COUNTER) as releases, browsing(releases.hub) as person:
        run = await releases.start("counter")
        for number in range(22):
            await releases.submit(run, "count", n=1000 + number)
        html = await person.read(f"instances/{run}")
        versions = re.findall(r"Version (\d+) ", html)
        assert (versions[0], versions[-1]) == ("23", "4")
        assert "<del>1001</del>" in html


@asynchronous
async def test_an_instance_whose_every_text_grows_as_html_fits_a_page() -> None:
    written = {f"part{number}": f"$.arguments.part{number}" for number in range(8)}
    loud = {
        "initialState": "open",
        "states": {
            "open": {"transitions": {"note": {"target": "open", "output": written}, "end": {"target": "ended"}}},
            "ended": {"terminal": True},
        },
    }
    async with watched("admin", loud=loud) as (hub, person):
        # A quote takes five bytes as HTML, and an item of a list more than its text.
        run = await hub.start("loud", rows=[{"a": 1}] * 300, text=['"' * 1000] * 20)
        for turn in range(LIMIT + 2):
            await hub.submit(run, "note", **{f"part{number}": f"{turn}" + '"' * 400 for number in range(8)})
        html = await person.read(f"instances/{run}")
        assert len(html.encode()) <= 50_000
        assert html.count("agent took note and stayed in open") == LIMIT
        assert "7 values" in html, "the oldest steps say how much they changed"
        await person.act(f"instances/{run}", "cancel", reason='"' * 2000)
        assert len((await person.read(f"instances/{run}")).encode()) <= 50_000
