"""Workflows: all definitions, and one with its graph, its instances by state, its findings and a simulation."""

from __future__ import annotations

import json
from typing import Any, Final

from markupsafe import Markup

from waypost.console.page import Done, InvalidForm, Page, View, segment

LIMIT: Final = 100
MAX_GRAPH_BYTES: Final = 16_000
_MAX_DEFINITION_CHARACTERS: Final = 10_000
_MAX_FINDINGS: Final = 30


async def load_all(view: View) -> dict[str, Any]:
    """One page of the definitions, by id."""
    found = (await view.api.get("workflows"))["workflows"]
    words, after = view.query.get("q", "").lower().split(), view.query.get("after", "")
    matching = [
        one
        for one in found
        if one["id"] > after and all(word in f"{one['id']} {one['title']}".lower() for word in words)
    ]
    shown = matching[:LIMIT]
    return {"workflows": shown, "has_any": bool(found), "next": shown[-1]["id"] if len(matching) > LIMIT else None}


async def load(view: View) -> dict[str, Any]:
    """One definition."""
    place = _place(view)
    workflow = await view.api.get(place)
    drawn = (await view.api.get(f"{place}/graph", format="svg", styled="false"))["text"]
    written = json.dumps(_drop_defaults(await view.api.get(f"{place}/export")), indent=2, ensure_ascii=False)
    return {
        "title": workflow["title"],
        "workflow": workflow,
        # The drawing escapes every name in it.
        "graph": Markup(drawn) if len(drawn.encode()) <= MAX_GRAPH_BYTES else "",  # noqa: S704
        "counts": dict(list((await view.api.get(f"{place}/states"))["states"].items())[:60]),
        "written": written
        if len(written) <= _MAX_DEFINITION_CHARACTERS
        else f"{written[:_MAX_DEFINITION_CHARACTERS]}\n…",
        "findings": (await view.api.get(f"{place}/findings"))["findings"][:_MAX_FINDINGS],
        "report": None,
    }


def _place(view: View) -> str:
    return f"workflows/{segment(view.variables['id'])}"


def _drop_defaults(value: Any) -> Any:
    """A definition without its defaults: values that are null, empty or false."""
    if isinstance(value, dict):
        kept = {name: _drop_defaults(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, "", [], {}, False)}
    return [_drop_defaults(item) for item in value] if isinstance(value, list) else value


async def simulate(view: View) -> Done:
    """Walk through the workflow at random; nothing is called."""
    body = {}
    for name, default in (("walks", "100"), ("steps", "50"), ("seed", "0")):
        text = view.form.get(name) or default
        if not text.isdecimal() or len(text) > 9:
            raise InvalidForm(f"{name}: {text[:40]!r} is not a whole number.")
        body[name] = int(text)
    report = await view.api.post(f"{_place(view)}/simulate", body)
    result = "every state was reached and nothing got stuck" if report["ok"] else "there are problems, see below"
    return Done(f"{report['walks']} walks: {result}.", {"report": report})


async def enable(view: View) -> Done:
    """Let it be started."""
    done = await view.api.post(f"{_place(view)}/enable")
    return Done(f"{done['workflow']['id']} is enabled.")


async def disable(view: View) -> Done:
    """Let it not be started any more; running instances continue."""
    done = await view.api.post(f"{_place(view)}/disable")
    return Done(f"{done['workflow']['id']} is disabled; running instances continue.")


LIST: Final = Page(
    "workflows",
    "Workflows",
    "workflows.html",
    load_all,
    section="Work",
    icon="workflows",
    shortcut="w",
    live=("workflows",),
)
ONE: Final = Page(
    "workflows/{id}",
    "Workflow",
    "workflow.html",
    load,
    {"simulate": simulate, "enable": enable, "disable": disable},
    live=("workflows", "instances"),
)
