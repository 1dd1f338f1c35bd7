"""Approvals: what waits for a person, exactly what would be approved, and the decision."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Done, InvalidForm, Page, View, segment
from waypost.console.rendering import (
    MAX_TEXT_CHARACTERS,
    bound_value,
    count_html_bytes,
    show_json,
    split_text,
)

MAX_CARDS: Final = 12
MAX_CARDS_BYTES: Final = 12_000
"""How much of all approvals the page shows: at least one, and at most these with so many bytes as HTML."""
MAX_PART_BYTES: Final = 30_000
"""How much of one approval a page shows, as HTML."""


async def load(view: View) -> dict[str, Any]:
    """What waits, the oldest first, page by page; what is not shown in full is decided on its own page."""
    waiting = (await view.api.get("approvals"))["approvals"]
    # The last one of the page before may be decided by now: so the cursor has the time by which the list is sorted.
    rest = sorted((one for one in waiting if _cursor_of(one) > view.query.get("before", "")), key=_cursor_of)
    shown: list[dict[str, Any]] = []
    left = MAX_CARDS_BYTES
    for one in rest[:MAX_CARDS]:
        left -= count_html_bytes([bound_value(one["presents"]), one["prompt"] or "", one["title"], one["given"]])
        if left < 0 and shown:
            break
        shown.append({**one, "is_whole": _is_whole(one)})
    more = _cursor_of(shown[-1]) if len(rest) > len(shown) else None
    return {"approvals": shown, "count": len(waiting), "next": more, "part": None, "parts": 0}


def _cursor_of(approval: dict[str, Any]) -> str:
    return f"{approval['requestedAt']} {approval['id']}"


async def load_one(view: View) -> dict[str, Any]:
    """One approval in full, in parts if it is large; the last part has the button that approves."""
    found = [one for one in (await view.api.get("approvals"))["approvals"] if one["id"] == view.variables["id"]]
    text, number = view.query.get("part") or "1", 0
    if text.isdecimal() and len(text) < 9:
        number = int(text)
    # The prompt is in the heading, unless it is too long for one.
    parts = split_text(_show_whole(found[0]), MAX_PART_BYTES) if found and not _is_whole(found[0]) else [""]
    if not 1 <= number <= len(parts):
        raise InvalidForm(f"part: {text[:40]!r} is not a number from 1 to {len(parts):,}.")
    shown = [{**one, "is_whole": number == len(parts)} for one in found]
    return {
        "approvals": shown,
        "count": len(found),
        "next": None,
        "part": {"number": number, "text": parts[number - 1]},
        "parts": len(parts),
        "http_status": 200 if found else 404,
    }


def _is_whole(approval: dict[str, Any]) -> bool:
    """Whether the list shows all of an approval."""
    presents = approval["presents"]
    return len(approval["prompt"] or "") <= MAX_TEXT_CHARACTERS and bound_value(presents) == presents


def _show_whole(approval: dict[str, Any]) -> str:
    prompt = approval["prompt"] or ""
    long = {"prompt": prompt, "presents": approval["presents"]}
    return show_json(approval["presents"] if len(prompt) <= MAX_TEXT_CHARACTERS else long)


async def approve(view: View) -> Done:
    """Approve what was shown."""
    return await _decide(view, "approve")


async def reject(view: View) -> Done:
    """Reject it."""
    return await _decide(view, "reject")


async def _decide(view: View, verb: str) -> Done:
    # The digest binds the decision to what the page showed: if it has changed since, the API refuses.
    body = {"reason": view.form.get("reason", ""), "digest": view.form.get("digest") or None}
    approval = view.variables.get("id") or view.form.get("id", "")
    decided = await view.api.post(f"approvals/{segment(approval)}/{verb}", body)
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
ONE: Final = Page(
    "approvals/{id}",
    "Approval",
    "approvals.html",
    load_one,
    {"approve": approve, "reject": reject},
    live=("approvals", "instances"),
)
