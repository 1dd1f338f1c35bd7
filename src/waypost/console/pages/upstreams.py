"""Upstreams: the MCP servers behind this hub, their health, and how their definitions differ from what was approved."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from waypost.console.page import Done, Page, View, segment

MAX_CARDS: Final = 25
MAX_DIFFERENCES: Final = 12
MAX_LINES: Final = 40
MAX_NAMES: Final = 100
"""How much of all upstreams the page shows: servers, held definitions, lines of each, and names of each kind."""
Sides = tuple[str, str, str]
"""A line as it was approved, the same line now, and `changed`, `added`, `removed` or `same`."""


async def load(view: View) -> dict[str, Any]:
    """All servers, those that need a person first."""
    rows = (await view.api.get("upstreams"))["upstreams"]
    rows.sort(key=lambda row: (row["state"] != "failed" and not row["held"], row["connection"]))
    shown = rows[:MAX_CARDS]
    left, names = MAX_DIFFERENCES, MAX_NAMES // max(1, len(shown))
    for row in shown:
        row["differences"] = [
            {**one, "parts": group_by_field(one["difference"][:MAX_LINES])} for one in row["held"][:left]
        ]
        left -= len(row["differences"])
        row["published"] = {noun: (len(row[noun]), row[noun][:names]) for noun in ("tools", "prompts", "resources")}
    return {"upstreams": shown, "count": len(rows), "max_lines": MAX_LINES}


def group_by_field(difference: list[str]) -> list[tuple[str, list[Sides]]]:
    """The lines of a difference in two columns, by the field of the definition that each begins with."""
    found = []
    for name, lines in groupby(difference, lambda line: line[1:].partition(": ")[0]):
        found.append((name, place_side_by_side([line[0] + line[1:].partition(": ")[2] for line in lines])))
    return found


def place_side_by_side(difference: list[str]) -> list[Sides]:
    """The lines of a difference in two columns; lines that replace each other stand in one row."""
    found: list[Sides] = []
    removed: list[str] = []
    added: list[str] = []

    def flush() -> None:
        for place in range(max(len(removed), len(added))):
            old = removed[place] if place < len(removed) else ""
            new = added[place] if place < len(added) else ""
            found.append((old, new, "changed" if old and new else "removed" if old else "added"))
        removed.clear()
        added.clear()

    for line in difference:
        if line.startswith("-"):
            if added:
                flush()
            removed.append(line[1:])
        elif line.startswith("+"):
            added.append(line[1:])
        else:
            flush()
            found.append((line[1:], line[1:], "same"))
    flush()
    return found


async def approve(view: View) -> Done:
    """Approve one definition as it was shown, or everything that is held back."""
    # The digest binds the approval to what the page showed: a definition that has changed again is refused.
    body = {name: view.form[name] for name in ("tool", "sha256") if view.form.get(name)}
    answer = await view.api.post(f"upstreams/{segment(view.form.get('id', ''))}/approve", body)
    names = ", ".join(answer["approved"]) or "Nothing"
    return Done(f"{names} of {answer['upstream']['connection']} approved.")


async def restart(view: View) -> Done:
    """Begin a new session with a server."""
    row = (await view.api.post(f"upstreams/{segment(view.form.get('id', ''))}/restart"))["upstream"]
    why = f": {row['reason']}" if row["reason"] else "."
    return Done(f"{row['connection']} was restarted and is {row['state']}{why}")


PAGE: Final = Page(
    "upstreams",
    "Upstreams",
    "upstreams.html",
    load,
    {"approve": approve, "restart": restart},
    section="Sources",
    icon="upstreams",
    shortcut="u",
    live=("upstreams", "tools"),
)
