"""The core skill that searches the web, with the operator's SearXNG or with ddgs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from waypost.errors import ToolError
from waypost.skills.core.bodies import MISSING
from waypost.skills.core.inputs import CoreSettings, needed, whole

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.skills.core.inputs import Run

description = "Search the web and return titles, addresses and snippets."
version = "1.0.0"
permissions = ("web_read",)
routes = ("on_results", "on_empty", "on_error")
external = True
input_schema: dict[str, Any] = {
    "query": {"type": "string", "description": "What to search for; the input if left out"},
    "max_results": {"type": "integer", "minimum": 1, "description": "The most results to return; 10 if left out"},
}

MOST_RESULTS: Final = 50
MOST_SNIPPET: Final = 1000
LONGEST_QUERY: Final = 1000


def make(settings: CoreSettings) -> Run:
    """The skill, with the search engine of the settings."""

    async def run(args: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        query = needed(args, "query")
        if len(query) > LONGEST_QUERY:
            raise ToolError(f"query is longer than {LONGEST_QUERY} characters.")
        most = whole(args, "max_results", 10, MOST_RESULTS)
        if settings.searxng is not None:
            found = await _from_searxng(settings, settings.searxng, query)
        else:
            found = await _from_ddgs(query, most, settings.timeout)
        return {"results": found[:most]}

    return run


def branch(result: Mapping[str, Any]) -> str:
    """The route that a result takes."""
    return "on_results" if result["results"] else "on_empty"


def _result(title: str, url: str, snippet: str) -> dict[str, str]:
    return {"title": title, "url": url, "snippet": snippet[:MOST_SNIPPET]}


class _Hit(msgspec.Struct):
    url: str
    title: str | None = ""
    content: str | None = ""


class _Hits(msgspec.Struct):
    results: list[_Hit] = []


async def _from_searxng(settings: CoreSettings, base: str, query: str) -> list[dict[str, str]]:
    url = f"{base.rstrip('/')}/search?{urlencode({'q': query, 'format': 'json'})}"
    # The operator wrote this address down, so it may be a private one; where it redirects to, nobody wrote.
    egress = settings.inside or settings.egress
    fetched = await egress.request("GET", url, {"Accept": "application/json"}, within=settings.timeout, redirects=0)
    if fetched.status != 200:
        hint = "; is its JSON format switched on?" if fetched.status == 403 else "."
        raise ToolError(f"The search server answered {fetched.status}{hint}")
    try:
        hits = msgspec.json.decode(fetched.body, type=_Hits).results
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ToolError("The search server answered something that is not a search result.") from None
    return [_result(hit.title or "", hit.url, hit.content or "") for hit in hits]


async def _from_ddgs(query: str, most: int, within: float) -> list[dict[str, str]]:
    try:
        async with asyncio.timeout(within):
            # A thread cannot be stopped, but ddgs gives up by itself soon after.
            return await asyncio.to_thread(_ddgs, query, most, within)
    except TimeoutError:
        raise ToolError(f"The search did not end within {within:g} s.") from None


def _ddgs(query: str, most: int, within: float) -> list[dict[str, str]]:
    try:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException
    except ImportError:
        raise ToolError(MISSING.format("ddgs")) from None
    try:
        found = DDGS(timeout=max(1, int(within))).text(query, max_results=most)
    except DDGSException as error:
        if "No results" in str(error):
            return []
        raise ToolError(f"The search failed: {type(error).__name__}.") from None
    return [_result(hit.get("title", ""), hit.get("href", ""), hit.get("body", "")) for hit in found]
