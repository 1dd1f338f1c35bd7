"""The core skill that reads a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.errors import ToolError
from waypost.skills.core.inputs import CoreSettings, decode, get_text, is_text, media_type, read_page, require_text

description = "Fetch a web page and return its readable text, its links or its HTML."
permissions = ("web_read",)
external = True
FORMS: Final = ("text", "markdown", "links", "html")
input_schema: dict[str, Any] = {
    "url": {"type": "string", "description": "The http or https URL; the input if left out"},
    "extract": {"type": "string", "enum": list(FORMS), "description": "What to return; text if left out"},
}

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_TEXT_CHARACTERS: Final = 100_000


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> dict[str, Any]:
    """Fetch the page through the hub's egress and read it."""
    url = require_text(args, "url")
    form = get_text(args, "extract") or "text"
    if form not in FORMS:
        raise ToolError(f"extract must be one of {', '.join(FORMS)}.")
    headers = {"Accept": "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5"}
    response = await settings.egress.request("GET", url, headers, within=settings.timeout, most_bytes=MAX_PAGE_BYTES)
    if response.status >= 400:
        raise ToolError(f"The page answered {response.status}.")
    content_type = response.headers.get("Content-Type", "text/html")
    kind = media_type(content_type)
    if not is_text(kind):
        raise ToolError(f"A page of the kind {kind} cannot be read as text.")
    text = decode(response.body, content_type)
    if kind in ("text/html", "application/xhtml+xml", ""):
        return await read_page(text, response.url, form, MAX_TEXT_CHARACTERS)
    cut = {"text": text[:MAX_TEXT_CHARACTERS], "truncated": len(text) > MAX_TEXT_CHARACTERS}
    return {"url": response.url, "title": "", **cut, "links": []}
