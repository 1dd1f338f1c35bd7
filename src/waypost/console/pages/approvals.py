"""Approvals: what waits for a person, exactly what would be approved, and the decision."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Done, Page, View, segment
from waypost.console.rendering import MAX_SHOWN_CHARACTERS, show_json

MAX_CARDS: Final = 12
MAX_CHARACTERS: Final = 20_000
"""How much of all approvals the page shows: at least one, and at most these."""


async def load(view: View) -> dict[str, Any]:
    """What waits for a role of the person, the oldest first."""
    waiting = (await view.api.get("approvals"))["approvals"]
    shown: list[dict[str, Any]] = []
    left = MAX_CHARACTERS
    for one in waiting[:MAX_CARDS]:
        left -= min(len(show_json(one["presents"])), MAX_SHOWN_CHARACTERS)
        if left < 0 and shown:
            break
        shown.append(one)
    return {"approvals": shown, "count": len(waiting)}


async def approve(view: View) -> Done:
    """Approve what was shown."""
    return await _decide(view, "approve")


async def reject(view: View) -> Done:
    """Reject it."""
    return await _decide(view, "reject")


async def _decide(view: View, verb: str) -> Done:
    # The digest binds the decision to what the page showed: if it has changed since, the API refuses.
    body = {"reason": view.form.get("reason", ""), "digest": view.form.get("digest") or None}
    decided = await view.api.post(f"approvals/{segment(view.form.get('id', ''))}/{verb}", body)
    if decided["missing"]:
        many = "approvals are" if decided["missing"] > 1 else "approval is"
        return Done(f"Your approval is recorded; {decided['missing']} more {many} needed.")
    error = decided["error"]
    after = f" Afterwards: {error['message']}" if error else ""
    word = decided["decision"].capitalize()
    return Done(f"{word}. {decided['workflowId']} is in {decided['state']} ({decided['status']}).{after}")


PAGE: Final = Page(
    "approvals",
    "Approvals",
    "approvals.html",
    load,
    {"approve": approve, "reject": reject},
    section="Now",
    icon="approvals",
    shortcut="a",
    live=("approvals", "instances"),
)
