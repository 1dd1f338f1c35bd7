"""The catalog in the console: the agents' search with its reasons, filters, pages, and one item that is called."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.api.conftest import operated_hub
from tests.console.conftest import Person, browsing
from tests.console.markup import EVIL
from tests.console.test_instances import rows
from tests.protocol.conftest import asynchronous
from waypost import Hub, ToolError
from waypost.console.pages.catalog import LIMIT
from waypost.execution.history import STEPS_PER_MINUTE
from waypost.policy import Rule


@asynccontextmanager
async def looking(role: str = "operator", hub: Hub | None = None, **options: Any) -> AsyncIterator[Person]:
    """A person with a role in front of the catalog."""
    hub = hub or operated_hub(rules=(), **options)
    async with browsing(hub, await hub.keys.create("pat", roles=[role])) as person:
        yield person


@asynchronous
@pytest.mark.parametrize("surface", ["full", "gateway"])
async def test_the_catalog_is_listed_and_filtered_on_every_surface(surface: str) -> None:
    async with looking("viewer", surface=surface) as person:
        listed = len(person.hub.registry.tools)
        assert rows(await person.read("catalog")) == ["add", "deploy", "note", "prompt:greet"]
        assert rows(await person.read("catalog?kind=prompt")) == ["prompt:greet"]
        assert rows(await person.read("catalog?category=Maths&source=hub")) == ["add"]
        html = await person.read("catalog?source=elsewhere")
        assert "Nothing in the catalog matches" in html
        assert "Invalid" in await person.read("catalog?kind=nothing&q=kept", 400)
        assert 'value="kept"' in await person.read("catalog?before=zzz&q=kept")
        assert "The catalog is empty" not in await person.read("catalog?before=zzz", 400)
        assert len(person.hub.registry.tools) == listed


@asynchronous
async def test_a_search_has_scores_whose_reasons_add_up() -> None:
    async with looking("viewer") as person:
        html = await person.read("catalog?q=note")
        assert rows(html)[0] == "note"
        assert "Ranking <strong>weighted</strong>" in html
        items = json.loads(await person.read("api/catalog?q=note+ad"))["items"]
        for item in items:
            assert item["score"] == pytest.approx(sum(points for _, _, points in item["reasons"]))
        assert ["ad", "title", 6.0] in items[0]["reasons"]
        html = await person.read("catalog?q=please+write+a+note+for+my+colleagues&kind=capability")
        assert "Ranking <strong>hybrid</strong>" in html
        assert "note in title" in html
        assert rows(await person.read("catalog?q=note&category=Maths")) == []


@asynchronous
async def test_ten_thousand_items_are_read_page_by_page() -> None:
    hub = operated_hub(rules=())
    for number in range(10_000):
        hub.tool(echo, name=f"t{number:05}", description="Words " * 40)
    async with looking("viewer", hub) as person:
        place, found = "catalog?category=none", []
        for _ in range(3):
            html = await person.read(place)
            assert len(html.encode()) <= 50_000
            found += rows(html)
            after = re.search(r'rel="next" href="/console/([^"]+)"', html)
            assert after is not None
            place = after[1].replace("&amp;", "&")
        assert found == sorted(set(found))
        assert len(found) == 3 * LIMIT
        html = await person.read("catalog?q=t00042")
        assert rows(html)[0] == "t00042"
        assert len(html.encode()) <= 50_000


async def echo(text: str = "") -> str:
    return text


@asynchronous
async def test_a_tool_is_called_by_a_form_as_the_person() -> None:
    async with looking() as person:
        html = await person.read("catalog/add")
        assert re.findall(r'name="(arg\.[^"]+)"', html) == ["arg.a", "arg.b"]
        assert "It was not called yet." in html
        html = await person.act("catalog/add", "call", {"arg.a": "1", "arg.b": "41.5"})
        assert "add answered" in html
        assert "42.5" in html.partition('id="result"')[2]
        assert 'value="41.5"' in html
        html = await person.act("catalog/add", "call", {"arg.a": "one", "arg.b": "2"}, status=400)
        assert 'value="one"' in html
        assert "answered with an error" in await person.act("catalog/add", "call", {"arg.a": "1"})
        assert "insufficient_scope" in await person.act("catalog/note", "call", {"arg.text": "x"}, status=403)
        assert "cannot be called" in await person.act("catalog/prompt:greet", "call", {"arg.name": "x"}, status=400)
        entries = json.loads(await person.read("api/audit?capability=add"))["entries"]
        assert {(one["principal"], one["caller"], one["decision"]) for one in entries} == {("pat", "console", "allow")}


@asynchronous
async def test_the_calls_of_the_last_hour_are_drawn_by_minute() -> None:
    async with looking() as person:
        assert 'class="bars"' not in await person.read("catalog/add")
        core = person.hub.core
        for _ in range(2):
            core.pipeline.counters.count("add", "ok", 0.1)
        core.pipeline.counters.count("add", "error", 0.1)
        for _ in range(STEPS_PER_MINUTE):
            core.history.sample()
        html = await person.read("catalog/add")
        assert 'aria-label="3 calls in the last hour, 1 failed; at most 3 a minute"' in html
        assert '<rect class="calls" x="295" width="4" y="0.0" height="60.0"/>' in html
        assert '<rect class="errors" x="295" width="4" y="40.0" height="20.0"/>' in html


@asynchronous
async def test_a_policy_and_a_missing_role_refuse_a_call() -> None:
    rule = Rule(name="no-sums", type="mcp_restriction", config={"tool_pattern": "add"}, priority=10)
    async with looking(hub=operated_hub(rules=[rule])) as person:
        await person.read("catalog/add")
        assert "blocked by pattern" in await person.act("catalog/add", "call", {"arg.a": "1", "arg.b": "2"}, status=403)
    async with looking("viewer") as person:
        html = await person.read("catalog/add")
        assert re.findall(r'data-action="([^"]+)"', html) == ["sign-out"]
        assert "does not have the role operator" in await person.act("catalog/add", "call", status=403)
        assert "Did you mean add?" in await person.read("catalog/addd", 404)


@asynchronous
async def test_an_id_with_slashes_has_a_page() -> None:
    hub = operated_hub(rules=())
    hub.resource("docs://a/b?c", mime_type="text/markdown")(echo)
    async with looking("viewer", hub) as person:
        html = await person.read("catalog?kind=document")
        assert 'href="/console/catalog/docs:%252F%252Fa%252Fb%253Fc"' in html
        # A server decodes the address once before it is here.
        assert "docs://a/b?c" in await person.read("catalog/docs:%2F%2Fa%2Fb%3Fc")


@asynchronous
async def test_texts_of_capabilities_are_escaped_and_bounded() -> None:
    hub = operated_hub(rules=())

    @hub.tool(name="evil", title=EVIL, description=EVIL * 500, category=EVIL, tags=[EVIL], aliases=[EVIL])
    async def evil(text: str = EVIL) -> dict[str, Any]:
        return {EVIL: [EVIL * 1000] * 100}

    @hub.tool(name="worse")
    async def worse() -> str:
        raise ToolError(EVIL * 1000)

    part = {"type": "object", "title": '"' * 60, "description": '"' * 300, "default": {"a": '"' * 60}}
    schema = {"type": "object", "description": '"' * 3000, "properties": {f"p{number}": part for number in range(60)}}

    @hub.tool(name="loud", title='"' * 3000, description='"' * 3000, input_schema=schema, output_schema=schema)
    async def loud(args: Any) -> Any:
        return {"rows": ['"' * 3000] * 20}

    async with looking(hub=hub) as person:
        pages = [await person.read(page) for page in ("catalog", "catalog?q=img", f"catalog?q={EVIL}", "catalog/evil")]
        pages += [await person.read("catalog/loud"), await person.act("catalog/loud", "call")]
        pages += [await person.act(f"catalog/{name}", "call") for name in ("evil", "worse")]
        for html in pages:
            assert "<img src=x" not in html
            assert len(html.encode()) <= 50_000
        assert "&lt;img src=x" in pages[-1]


@asynchronous
async def test_a_filter_that_fits_nothing_any_more_is_still_the_one_that_is_shown() -> None:
    async with looking() as person:
        await person.read("catalog?category=Maths")
        html = await person.act("catalog?category=Maths", "hide", all="1")
        assert "Agents do not find add any more; clients that know the name can still call it." in html
        assert '<option value="Maths" selected>Maths (0)</option>' in html
        html = await person.act("catalog?hidden=true&category=Maths", "show", {"item:add": "1"})
        assert "Agents find add again." in html
        html = await person.act("catalog", "hide", {"item:add": "1", "item:note": "1"})
        assert "Agents do not find 2 items any more; clients that know the names can still call them." in html


@asynchronous
async def test_only_operators_reset_a_circuit() -> None:
    hub = operated_hub(rules=(), breakers=True)

    @hub.tool(name="flaky")
    async def flaky() -> str:
        raise OSError(f"no route to host {EVIL}")

    async with looking(hub=hub) as person:
        await person.read("catalog/flaky")
        for _ in range(3):
            await person.act("catalog/flaky", "call")
        assert 'href="/console/catalog/flaky"' in await person.read("")
        html = await person.read("catalog/flaky")
        assert "Its circuit is open for pat, after 3 failures: no route to host &lt;img" in html
        assert "Circuit open" in await person.act("catalog/flaky", "call")
        person.hub.core.history.sample()
        assert json.loads(await person.read("api/calls"))["errors"][-1] == 4, "a refused call failed for its caller"
        async with browsing(hub, await hub.keys.create("vera", roles=["viewer"])) as viewer:
            html = await viewer.read("catalog/flaky")
            assert ("Its circuit is open" in html, 'value="reset"' in html) == (True, False)
            assert "does not have the role operator" in await viewer.act("catalog/flaky", "reset", status=403)
            html = await person.act("catalog/flaky", "reset")
            assert ("The circuit of flaky is closed" in html, "Its circuit is open" in html) == (True, False)
