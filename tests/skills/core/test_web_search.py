"""Searching: a SearXNG on loopback, and ddgs with a search engine on loopback."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar

import ddgs.engines
import pytest
from aiohttp import web
from ddgs.base import BaseSearchEngine
from ddgs.results import TextResult

from tests.outbound.internet import Answer
from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling, serving

HITS = [{"title": f"t{n}", "url": f"https://example.com/{n}", "content": f"c{n}", "score": 1} for n in range(60)]


def saying(status: int, body: Any) -> Answer:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.json_response(body, status=status)

    return answer


@asynchronous
async def test_searxng_returns_titles_addresses_and_snippets() -> None:
    asked: list[dict[str, str]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(dict(request.query))
        return web.json_response({"query": "q", "results": HITS})

    async with serving(answer) as base, calling(searxng=f"{base}/") as call:
        two = await call("web_search", query="a b&c", max_results=2)
        default = await call("web_search", input="plain")
        most = await call("web_search", input="plain", config={"max_results": 1000})

    assert asked[0] == {"q": "a b&c", "format": "json"}
    assert two.structured == {
        "results": [{"title": f"t{n}", "url": f"https://example.com/{n}", "snippet": f"c{n}"} for n in range(2)]
    }
    assert [len(reply.structured["results"]) for reply in (default, most)] == [10, 50]


@asynchronous
async def test_nothing_found_is_an_empty_list() -> None:
    async with serving(saying(200, {"results": []})) as base, calling(searxng=base) as call:
        assert (await call("web_search", query="x")).structured == {"results": []}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, {}, "answered 500."),
        (403, {}, "is its JSON format switched on?"),
        (200, {"results": 5}, "not a search result"),
        (200, [1], "not a search result"),
        (200, {"results": [{"title": "no url"}]}, "not a search result"),
    ],
)
@asynchronous
async def test_a_failing_search_server_is_an_error(status: int, body: Any, said: str) -> None:
    async with serving(saying(status, body)) as base, calling(searxng=base) as call:
        reply = await call("web_search", query="x")

    assert reply.is_error
    assert said in reply.text


@asynchronous
async def test_a_search_needs_a_query_of_a_sensible_length() -> None:
    async with calling(searxng="http://127.0.0.1:1") as call:
        assert (await call("web_search")).text == "query is missing."
        assert "longer than" in (await call("web_search", query="x" * 1001)).text


class Loopback(BaseSearchEngine[TextResult]):
    """A search engine of ddgs with a server in the test."""

    name = "loopback"
    category = "text"
    provider = "loopback"
    search_url = ""
    search_method = "GET"
    items_xpath = "//li"
    elements_xpath: ClassVar[dict[str, str]] = {"title": ".//a//text()", "href": ".//a/@href", "body": ".//p//text()"}

    def build_payload(self, query: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"q": query}


def with_engine(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    monkeypatch.setattr(Loopback, "search_url", base)
    monkeypatch.setitem(ddgs.engines.ENGINES, "text", {"loopback": Loopback})


@asynchronous
async def test_ddgs_is_used_where_no_server_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        html = f"<ul><li><a href=https://example.com/a>Found {request.query['q']}</a><p>about it</p></li></ul>"
        return web.Response(text=html, content_type="text/html")

    async with serving(answer) as base, calling() as call:
        with_engine(monkeypatch, base)
        reply = await call("web_search", query="cats")

    assert reply.structured == {
        "results": [{"title": "Found cats", "url": "https://example.com/a", "snippet": "about it"}]
    }


@asynchronous
async def test_ddgs_without_results_returns_an_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(text="<p>nothing</p>", content_type="text/html")

    async with serving(answer) as base, calling() as call:
        with_engine(monkeypatch, base)
        assert (await call("web_search", query="cats")).structured == {"results": []}


@asynchronous
async def test_ddgs_that_does_not_end_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with serving(answer) as base, calling(timeout=0.2) as call:
        with_engine(monkeypatch, base)
        reply = await call("web_search", query="cats")

    assert reply.text == "The search did not end within 0.2 s."


@asynchronous
async def test_a_missing_ddgs_is_an_error_that_names_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ddgs", None)
    async with calling() as call:
        reply = await call("web_search", query="cats")

    assert reply.is_error
    assert "pip install 'waypost[skills]'" in reply.text
