"""Settings: what is in effect, and where each value comes from."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Page, View

PAGE_SIZE: Final = 60
SOURCES: Final = {
    "default": "Default",
    "file": "Configuration file",
    "include": "Included file",
    "environment": "Environment variable",
    "keyword": "Keyword argument",
    "start": "Given at the start",
}


async def load(view: View) -> dict[str, Any]:
    """The settings that the URL selects."""
    query = {name: view.query.get(name, "").strip() for name in ("q", "source")}
    page = await view.api.get("settings", **query, before=view.query.get("before"), limit=PAGE_SIZE)
    return {**page, "query": query, "sources": SOURCES}


PAGE: Final = Page(
    "settings",
    "Settings",
    "settings.html",
    load,
    section="Hub",
    icon="settings",
    shortcut="t",
    live=("settings", "policies"),
)
