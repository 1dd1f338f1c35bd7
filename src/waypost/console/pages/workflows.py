"""Workflows: all definitions, and one with its graph, its instances by state, its findings and a simulation."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml
from markupsafe import Markup

from waypost.config.models import Workflow
from waypost.console.page import Done, InvalidForm, Page, View, segment
from waypost.kinds import convert

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
    written = show_definition(await view.api.get(f"{place}/export"))
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


def show_definition(document: dict[str, Any]) -> str:
    """An exported definition as its author writes it in a configuration file: in YAML, without the defaults."""
    fields = dict(document["workflow"])
    name = fields.pop("name")
    model = convert({**fields, "steps": document["steps"]}, Workflow)
    return yaml.safe_dump({"workflows": {name: _drop_defaults(model)}}, sort_keys=False, allow_unicode=True, width=100)


def _drop_defaults(value: Any) -> Any:
    """A part of a definition without the values that it would have anyway."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        kept = {} if config.tag_field is None else {config.tag_field: config.tag}
        for field in msgspec.structs.fields(value):
            item, default = getattr(value, field.name), field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if item != default:
                kept[field.encode_name] = _drop_defaults(item)
        return kept
    if isinstance(value, dict):
        return {name: _drop_defaults(item) for name, item in value.items()}
    return [_drop_defaults(item) for item in value] if isinstance(value, list) else msgspec.to_builtins(value)


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
