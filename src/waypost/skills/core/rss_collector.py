"""The core skill that collects the newest items of feeds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import ToolError
from waypost.skills.core.bodies import read_feed
from waypost.skills.core.inputs import CoreSettings, field, input_text, whole

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.skills.core.inputs import Run

description = "Collect the newest items of one or more RSS or Atom feeds."
version = "1.0.0"
permissions = ("web_read",)
routes = ("on_items", "on_empty", "on_error")
external = True
input_schema: dict[str, Any] = {
    "url": {"type": "string", "description": "The URL of a feed; the input if left out"},
    "urls": {"type": "array", "items": {"type": "string"}, "description": "The URLs of several feeds"},
    "max_items": {"type": "integer", "minimum": 1, "description": "The most items to return; 20 if left out"},
}

MOST_BYTES: Final = 2 * 1024 * 1024
MOST_FEEDS: Final = 20
MOST_ITEMS: Final = 200
AT_ONCE: Final = 4


def make(settings: CoreSettings) -> Run:
    """The skill, fetching through the hub's egress."""
    places = asyncio.Semaphore(AT_ONCE)

    async def collected(url: str) -> list[dict[str, Any]] | ToolError:
        try:
            async with places:
                return await _items(settings, url)
        except ToolError as error:
            return error

    async def run(args: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        urls = _urls(args)
        most = whole(args, "max_items", 20, MOST_ITEMS)
        answers = dict(zip(urls, await asyncio.gather(*map(collected, urls)), strict=True))
        failed = {url: answer for url, answer in answers.items() if isinstance(answer, ToolError)}
        if len(failed) == len(urls):
            raise failed[urls[0]]
        items = _newest(item for answer in answers.values() if isinstance(answer, list) for item in answer)
        errors = [{"url": url, "error": error.message} for url, error in failed.items()]
        return {"items": items[:most]} | ({"errors": errors} if errors else {})

    return run


def branch(result: Mapping[str, Any]) -> str:
    """The route that a result takes."""
    return "on_items" if result["items"] else "on_empty"


def _urls(args: Mapping[str, Any]) -> list[str]:
    """The feeds that are asked for, each once."""
    several = field(args, "urls") or []
    one = field(args, "url")
    if not isinstance(several, list) or not all(isinstance(url, str) for url in (*several, one or "")):
        raise ToolError("url must be text, and urls a list of text.")
    urls = list(dict.fromkeys([*([one] if one else []), *several] or input_text(args).replace(",", " ").split()))
    if not urls:
        raise ToolError("url is missing.")
    if len(urls) > MOST_FEEDS:
        raise ToolError(f"More than {MOST_FEEDS} feeds at once are not collected.")
    return urls


async def _items(settings: CoreSettings, url: str) -> list[dict[str, Any]]:
    fetched = await settings.egress.request("GET", url, within=settings.timeout, most_bytes=MOST_BYTES)
    if fetched.status >= 400:
        raise ToolError(f"The feed answered {fetched.status}.")
    read = await read_feed(fetched.body, fetched.url, fetched.headers.get("Content-Type", ""))
    if not read["known"]:
        raise ToolError("What was fetched is not a feed.")
    return [item | {"feed": read["title"]} for item in read["items"]]


def _newest(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest first, those without a date last, and what has the same id or link only once."""
    kept = []
    seen: set[str] = set()
    for item in sorted(items, key=lambda item: item["published"] or "", reverse=True):
        marks = {mark for mark in (item["id"], item["url"]) if mark}
        if not marks & seen:
            kept.append(item)
        seen |= marks
    return kept
