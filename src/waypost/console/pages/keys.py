"""Keys: who may use the hub, new keys that are shown once, and their revocation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from waypost.console.page import Done, Page, View, segment

_DAYS: Final = {"": None, "7": 7, "30": 30, "90": 90, "365": 365}
"""The lifetimes that the form offers, in days."""
MAX_ROWS: Final = 40
MAX_NAMES: Final = 5
"""How many roles of one key the page shows."""


async def load(view: View) -> dict[str, Any]:
    """The keys whose ids contain the text in the URL, those that are accepted first."""
    text = view.query.get("q", "").strip().lower()
    keys = [key for key in (await view.api.get("keys"))["keys"] if text in key["id"].lower()]
    keys.sort(key=lambda key: key["status"] != "good")
    return {"keys": keys[:MAX_ROWS], "count": len(keys), "days": _DAYS, "max_names": MAX_NAMES, "created": None}


async def create(view: View) -> Done:
    """Create a key; it is shown in this answer and never again."""
    form = view.form
    days = _DAYS.get(form.get("days", ""))
    expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat()
    body = {
        "id": form.get("id", "").strip(),
        "roles": form.get("roles", "").replace(",", " ").split(),
        "permissions": form.get("permissions", "").replace(",", " ").split(),
        "scopes": form.get("scopes", "").replace(",", " ").split(),
        "expiresAt": expires,
    }
    created = await view.api.post("keys", body)
    return Done(f"The key of {created['id']} is created. Copy it now: it is not shown again.", {"created": created})


async def revoke(view: View) -> Done:
    """Revoke a key."""
    revoked = await view.api.delete(f"keys/{segment(view.form.get('id', ''))}")
    return Done(f"The key of {revoked['id']} is revoked; its sessions and calls have ended.")


PAGE: Final = Page(
    "keys",
    "Keys",
    "keys.html",
    load,
    {"create": create, "revoke": revoke},
    section="Access",
    icon="keys",
    shortcut="k",
    live=("keys",),
)
