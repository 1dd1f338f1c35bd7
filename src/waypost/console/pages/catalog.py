"""Catalog: what agents find, by their own search, and one item with its schemas, its calls and a form that calls it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from waypost.console.page import Done, InvalidForm, Page, Refused, View, read_arguments, segment

LIMIT: Final = 40
BEST: Final = 25
"""How many items a search shows."""
BOX: Final = "item:"
"""The beginning of the name of a box that selects an item."""
FILTERS: Final = ("kind", "source", "category")
_MAX_TEXT_CHARACTERS: Final = 4_000
_NO_PAGE: Final[dict[str, Any]] = {"items": [], "next": None, "ranking": None, "signals": [], "counts": {}, "hidden": 0}


async def load_all(view: View) -> dict[str, Any]:
    """One page of the catalog, or the best items for a query."""
    query = {name: view.query.get(name, "").strip() for name in ("q", *FILTERS)}
    is_hidden = view.query.get("hidden") == "true"
    found = {"filters": FILTERS, "is_filtered": any(query.values()), "is_hidden": is_hidden, "link_to": link_to}
    hidden = "true" if is_hidden else None
    try:
        page = await view.api.get(
            "catalog", **query, hidden=hidden, before=view.query.get("before"), limit=BEST if query["q"] else LIMIT
        )
    except Refused as error:
        if error.status != 400:
            raise
        return {**found, **_NO_PAGE, "is_invalid": True, "alert": error.message, "http_status": 400}
    return {**found, **page, "is_invalid": False}


def link_to(item_id: str) -> str:
    """An id as the last segment of a page's address, in which a slash is written so that it stays one segment."""
    return quote(quote(item_id, safe=":"), safe=":")


async def hide(view: View) -> Done:
    """Hide the items that are selected, or all that fit the filter."""
    return await _set_hidden(view, "hide")


async def show(view: View) -> Done:
    """Show them again."""
    return await _set_hidden(view, "show")


async def _set_hidden(view: View, verb: str) -> Done:
    # The names of browsers' forms are unique here: each box is a field of its own.
    ids = [name.removeprefix(BOX) for name in view.form if name.startswith(BOX)]
    if view.variables:
        ids = [view.variables["id"]]
    if not ids and not view.form.get("all") and view.can("operator"):  # the API refuses others first
        raise InvalidForm("Select at least one item.")
    wanted = {name: view.query[name] for name in FILTERS if view.query.get(name)} if not ids else {"ids": ids}
    changed = (await view.api.post(f"catalog/{verb}", wanted))["ids"]
    what = changed[0] if len(changed) == 1 else f"{len(changed):,} items"
    if verb == "show":
        return Done(f"Agents find {what} again.")
    still = "the name can still call it" if len(changed) == 1 else "the names can still call them"
    return Done(f"Agents do not find {what} any more; clients that know {still}.")


async def load(view: View) -> dict[str, Any]:
    """One item."""
    item = await view.api.get(_place(view))
    calls = item["calls"]
    return {
        "title": item["title"],
        "item": item,
        "total": sum(calls.values()),
        "failed": sum(calls.values()) - calls.get("ok", 0),
        "result": None,
    }


def _place(view: View) -> str:
    return f"catalog/{segment(view.variables['id'])}"


async def call(view: View) -> Done:
    """Call the tool, as the person."""
    item = await view.api.get(_place(view))
    if item["tool"] is None:
        raise InvalidForm(f"{item['id']} is a {item['kind']}, which cannot be called.")
    arguments = read_arguments(item["inputSchema"], view.form)
    result = await view.api.post(f"tools/{segment(item['tool'])}/call", {"arguments": arguments})
    texts = [block.get("text", "") if isinstance(block, dict) else str(block) for block in result["content"]]
    shown = {**result, "text": "\n".join(texts)[:_MAX_TEXT_CHARACTERS], "typed": dict(view.form)}
    if result["isError"]:
        return Done("", {"alert": f"{item['tool']} answered with an error, see below.", "result": shown})
    return Done(f"{item['tool']} answered, see below.", {"result": shown})


async def reset(view: View) -> Done:
    """Close the circuit breaker of the tool, so that it is called again at once."""
    item = await view.api.get(_place(view))
    await view.api.post(f"breakers/{segment(item['tool'] or item['id'])}/reset")
    return Done(f"The circuit of {item['id']} is closed: the next call runs.")


LIST: Final = Page(
    "catalog",
    "Catalog",
    "catalog.html",
    load_all,
    {"hide": hide, "show": show},
    section="Work",
    icon="catalog",
    shortcut="c",
    live=("tools", "prompts", "resources"),
)
ONE: Final = Page(
    "catalog/{id}",
    "Item of the catalog",
    "item.html",
    load,
    {"call": call, "hide": hide, "show": show, "reset": reset},
    live=("tools", "prompts", "resources", "breakers"),
)
