"""The core skill that reads a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import ToolError
from waypost.skills.core.bodies import decoded, is_text, kind_of, read_page
from waypost.skills.core.inputs import CoreSettings, needed, text

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.skills.core.inputs import Run
    from waypost.upstreams.egress import EgressResponse

description = "Fetch a web page and return its readable text, its links or its HTML."
version = "1.0.0"
permissions = ("web_read",)
routes = ("on_success", "on_error")
external = True
FORMS: Final = ("text", "markdown", "links", "html")
input_schema: dict[str, Any] = {
    "url": {"type": "string", "description": "The http or https URL; the input if left out"},
    "extract": {"type": "string", "enum": list(FORMS), "description": "What to return; text if left out"},
}

MOST_BYTES: Final = 4 * 1024 * 1024
MOST_CHARACTERS: Final = 100_000


def make(settings: CoreSettings) -> Run:
    """The skill, fetching through the hub's egress."""

    async def run(args: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        url = needed(args, "url")
        form = text(args, "extract") or "text"
        if form not in FORMS:
            raise ToolError(f"extract must be one of {', '.join(FORMS)}.")
        headers = {"Accept": "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5"}
        fetched = await settings.egress.request("GET", url, headers, within=settings.timeout, most_bytes=MOST_BYTES)
        return await _page(fetched, form)

    return run


async def _page(fetched: EgressResponse, form: str) -> dict[str, Any]:
    content_type = fetched.headers.get("Content-Type", "text/html")
    kind = kind_of(content_type)
    if fetched.status >= 400:
        raise ToolError(f"The page answered {fetched.status}.")
    if not is_text(kind):
        raise ToolError(f"A page of the kind {kind} cannot be read as text.")
    written = decoded(fetched.body, content_type)
    if kind in ("text/html", "application/xhtml+xml", ""):
        return await read_page(written, fetched.url, form, MOST_CHARACTERS)
    cut = {"text": written[:MOST_CHARACTERS], "truncated": len(written) > MOST_CHARACTERS}
    return {"url": fetched.url, "title": "", **cut, "links": []}
