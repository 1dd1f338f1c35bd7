"""The core skill that collects the newest items of feeds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.errors import ToolError
from waypost.skills.core.inputs import CoreSettings, get_field, get_input, get_integer, read_feed

description = "Collect the newest items of one or more RSS or Atom feeds."
permissions = ("web_read",)
routes = ("on_items", "on_empty", "on_error")
external = True
input_schema: dict[str, Any] = {
    "url": {"type": "string", "description": "The URL of a feed; the input if left out"},
    "urls": {"type": "array", "items": {"type": "string"}, "description": "The URLs of several feeds"},
    "max_items": {"type": "integer", "minimum": 1, "description": "The most items to return; 20 if left out"},
}

MAX_FEED_BYTES: Final = 2 * 1024 * 1024
MAX_FEEDS: Final = 20
MAX_ITEMS: Final = 200


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> dict[str, Any]:
    """Return the newest items of all feeds; it fails only if every feed does."""
    urls = _list_urls(args)
    maximum = get_integer(args, "max_items", 20, MAX_ITEMS)
    answers = dict(zip(urls, await asyncio.gather(*(_collect(settings, url) for url in urls)), strict=True))
    failed = {url: answer for url, answer in answers.items() if isinstance(answer, ToolError)}
    if len(failed) == len(urls):
        raise failed[urls[0]]
    items = _sort_newest(item for answer in answers.values() if isinstance(answer, list) for item in answer)
    errors = [{"url": url, "error": error.message} for url, error in failed.items()]
    return {"items": items[:maximum]} | ({"errors": errors} if errors else {})


def branch(result: Mapping[str, Any]) -> str:
    """Return the route of a result."""
    return "on_items" if result["items"] else "on_empty"


def _list_urls(args: Mapping[str, Any]) -> list[str]:
    """Return the requested feeds, each once."""
    several = get_field(args, "urls") or []
    one = get_field(args, "url")
    if not isinstance(several, list) or not all(isinstance(url, str) for url in (*several, one or "")):
        raise ToolError("url must be text, and urls a list of text.")
    urls = list(dict.fromkeys([*([one] if one else []), *several] or get_input(args).replace(",", " ").split()))
    if not urls:
        raise ToolError("url is missing.")
    if len(urls) > MAX_FEEDS:
        raise ToolError(f"More than {MAX_FEEDS} feeds at once are not collected.")
    return urls


async def _collect(settings: CoreSettings, url: str) -> list[dict[str, Any]] | ToolError:
    """Return the items of a feed, or why there are none."""
    try:
        async with settings.feed_slots:
            response = await settings.egress.request("GET", url, within=settings.timeout, most_bytes=MAX_FEED_BYTES)
            if response.status >= 400:
                raise ToolError(f"The feed answered {response.status}.")
            feed = await read_feed(response.body, response.url, response.headers.get("Content-Type", ""))
            if not feed["known"]:
                raise ToolError("What was fetched is not a feed.")
    except ToolError as error:
        return error
    return [item | {"feed": feed["title"]} for item in feed["items"]]


def _sort_newest(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items newest first, undated ones last, and items with a known id or link only once."""
    kept = []
    seen: set[str] = set()
    for item in sorted(items, key=lambda item: item["published"] or "", reverse=True):
        keys = {key for key in (item["id"], item["url"]) if key}
        if not keys & seen:
            kept.append(item)
        seen |= keys
    return kept
