"""Audit: who did what, filtered by the URL, and whether the record is intact."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from waypost.console.page import Done, InvalidForm, Page, View

PAGE_SIZE: Final = 40
FILTERS: Final = ("principal", "capability", "action", "decision")


async def load(view: View) -> dict[str, Any]:
    """The entries that the URL selects, the latest first."""
    query = {name: view.query.get(name, "").strip() for name in (*FILTERS, "after", "until")}
    wanted = {name: query[name] for name in FILTERS if query[name]}
    wanted |= {name: str(_read_time(name, query[name])) for name in ("after", "until") if query[name]}
    page = await view.api.get("audit", limit=PAGE_SIZE, before=view.query.get("before"), **wanted)
    return {"entries": page["entries"], "next": page["next"], "query": query, "export": urlencode(wanted)}


def _read_time(name: str, text: str) -> float:
    """A time as a browser's field sends it, in UTC, as seconds."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        raise InvalidForm(f"{name}: {text[:40]!r} is not a time such as 2026-11-16T09:00.") from None


async def verify(view: View) -> Done:
    """Check that no entry was changed or removed."""
    verdict = await view.api.get("audit/verify")
    if verdict["problems"]:
        return Done("", {"alert": "The audit is not intact.", "problems": verdict["problems"]})
    entries, chains = _count(verdict["entries"], "entry", "entries"), _count(verdict["chains"], "chain", "chains")
    return Done(f"The audit is intact: {entries} in {chains}.")


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


PAGE: Final = Page(
    "audit",
    "Audit",
    "audit.html",
    load,
    {"verify": verify},
    section="Access",
    icon="audit",
    shortcut="l",
)
