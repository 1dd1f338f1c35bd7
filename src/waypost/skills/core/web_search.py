"""The core skill that searches the web, with the operator's SearXNG or with ddgs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from waypost.capabilities.context import Context
from waypost.errors import ToolError
from waypost.skills.core.inputs import MISSING, CoreSettings, get_integer, require_text

description = "Search the web and return titles, addresses and snippets."
permissions = ("web_read",)
routes = ("on_results", "on_empty", "on_error")
external = True
input_schema: dict[str, Any] = {
    "query": {"type": "string", "description": "What to search for; the input if left out"},
    "max_results": {"type": "integer", "minimum": 1, "description": "The most results to return; 10 if left out"},
}

MAX_RESULTS: Final = 50
MAX_SNIPPET_CHARACTERS: Final = 1000
MAX_QUERY_CHARACTERS: Final = 1000


class _Hit(msgspec.Struct):
    url: str
    title: str | None = ""
    content: str | None = ""


class _Hits(msgspec.Struct):
    results: list[_Hit] = []


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> dict[str, Any]:
    """Search with the engine of the settings."""
    query = require_text(args, "query")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise ToolError(f"query is longer than {MAX_QUERY_CHARACTERS} characters.")
    maximum = get_integer(args, "max_results", 10, MAX_RESULTS)
    if settings.searxng is not None:
        hits = await _search_searxng(settings, settings.searxng, query)
    else:
        hits = await _search_ddgs(query, maximum, settings.timeout)
    results = [
        {"title": hit.title or "", "url": hit.url, "snippet": (hit.content or "")[:MAX_SNIPPET_CHARACTERS]}
        for hit in hits[:maximum]
    ]
    return {"results": results}


def branch(result: Mapping[str, Any]) -> str:
    """Return the route of a result."""
    return "on_results" if result["results"] else "on_empty"


async def _search_searxng(settings: CoreSettings, base: str, query: str) -> list[_Hit]:
    url = f"{base.rstrip('/')}/search?{urlencode({'q': query, 'format': 'json'})}"
    # The operator configured this address, so it may be a private one; a redirect is the server's choice and refused.
    egress = settings.operator_egress or settings.egress
    response = await egress.request("GET", url, {"Accept": "application/json"}, within=settings.timeout, redirects=0)
    if response.status != 200:
        hint = "; is its JSON format switched on?" if response.status == 403 else "."
        raise ToolError(f"The search server answered {response.status}{hint}")
    try:
        return msgspec.json.decode(response.body, type=_Hits).results
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ToolError("The search server answered something that is not a search result.") from None


async def _search_ddgs(query: str, maximum: int, within: float) -> list[_Hit]:
    try:
        async with asyncio.timeout(within):
            # A thread cannot be stopped, but ddgs gives up by itself soon after.
            return await asyncio.to_thread(_call_ddgs, query, maximum, within)
    except TimeoutError:
        raise ToolError(f"The search did not end within {within:g} s.") from None


def _call_ddgs(query: str, maximum: int, within: float) -> list[_Hit]:
    try:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException
    except ImportError:
        raise ToolError(MISSING.format("ddgs")) from None
    try:
        found = DDGS(timeout=max(1, int(within))).text(query, max_results=maximum)
    except DDGSException as error:
        if "No results" in str(error):  # ddgs has no type of its own for an empty answer
            return []
        raise ToolError(f"The search failed: {type(error).__name__}.") from None
    return [_Hit(hit.get("href", ""), hit.get("title", ""), hit.get("body", "")) for hit in found]
