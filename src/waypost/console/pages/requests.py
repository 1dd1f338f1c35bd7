"""Requests: the last messages between clients and the hub as they were on the wire, without secrets."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import escape

from waypost.console.page import Page, View
from waypost.console.rendering import show_json

PAGE_SIZE: Final = 25
FILTERS: Final = ("session", "principal", "method", "direction")
MAX_SUBJECT_CHARACTERS: Final = 80
MAX_MESSAGE_BYTES: Final = 800
"""How much of one message the page shows, as HTML; the API has all of it that is kept."""


async def load(view: View) -> dict[str, Any]:
    """The messages that the URL selects, the last one first."""
    query = {name: view.query.get(name, "").strip() for name in FILTERS}
    page = await view.api.get("requests", **query, before=view.query.get("before"), limit=PAGE_SIZE)
    return {
        "requests": [
            {**one, "text": _to_text(one["message"]), "subject": _find_subject(one["message"])}
            for one in page["requests"]
        ],
        "kept": page["kept"],
        "replicas": page["replicas"],
        "silent": page["silent"],
        "next": page["next"],
        "query": query,
        "is_filtered": any(query.values()),
    }


def _find_subject(message: Any) -> str:
    """What a request is about: the name of a tool or prompt, or a URI."""
    params = message.get("params") if isinstance(message, dict) else None
    found = (params.get("name") or params.get("uri")) if isinstance(params, dict) else None
    return found[:MAX_SUBJECT_CHARACTERS] if isinstance(found, str) else ""


def _to_text(message: Any) -> str:
    text = message if isinstance(message, str) else show_json(message)
    shown = text[:MAX_MESSAGE_BYTES]
    while len(escape(shown).encode()) > MAX_MESSAGE_BYTES:  # a quote is five bytes in HTML
        shown = shown[: len(shown) * 7 // 8]
    return text if shown == text else f"{shown}… ({len(text):,} characters)"


PAGE: Final = Page("requests", "Requests", "requests.html", load, section="Hub", icon="requests", shortcut="q", every=5)
