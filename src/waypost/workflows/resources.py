"""Workflows, runs and settings as resources: `waypost://workflows/{id}`, `waypost://runs/{id}`, `waypost://config/{key}`.

The id `list` stands for all of them, in short. Whatever is called like a secret is never shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context
from waypost.capabilities.options import ResourceOptions
from waypost.capabilities.resources import resource_from_function
from waypost.config import Config
from waypost.config.workflows import Workflow
from waypost.errors import InvalidParams, ToolError, WorkflowRefused, shorten
from waypost.redaction import HIDDEN, is_secret_name, redacted
from waypost.stores.store import Store
from waypost.workflows.answers import moment
from waypost.workflows.engine import Engine
from waypost.workflows.instance import Live
from waypost.workflows.views import hidden

LIST: Final = "list"
_MOST: Final = 50
_RUN_ID: Final = re.compile("wf_[0-9a-f]{1,64}")
_NO_SETTINGS: Final = frozenset(
    {"version", "include", "toolkits", "prompts", "capabilities", "workflows", "policies", "proxy"}
)
"""Sections that say what the hub offers, not how it is set up."""
_WITH_SECRETS: Final = ("env", "headers", "args")
"""Settings that often hold secrets, whatever these are called."""

Data = dict[str, Any]


def workflow_resources(engine: Engine, store: Store) -> list[Capability]:
    """What can be read about workflows and runs."""

    async def workflows(id: str, ctx: Context) -> Any:
        sight = engine.sight(ctx.caller)
        if id == LIST:
            found = (one for one in engine.library if sight.finds(one))
            return [_summary(one.id, one.model) for one in sorted(found, key=lambda one: one.id)]
        one = engine.library.get(engine.finding.id_of(id))
        if one is None or not sight.finds(one):
            raise ToolError(f"workflow not found: {shorten(id)}")
        return sight.masked(_whole(one.id, one.model))

    async def runs(id: str, ctx: Context) -> Any:
        principal = ctx.principal
        if id == LIST:
            latest = await store.instances.latest(limit=_MOST, principal=principal.id)
            return [_run_summary(await engine.shelf.live(instance)) for instance in latest]
        if _RUN_ID.fullmatch(id) is None:
            raise InvalidParams(f"Invalid ID: {shorten(id)}")
        try:
            return _run(await engine.seen(id, principal))
        except WorkflowRefused:
            raise ToolError(f"workflow run not found: {id}") from None

    return [
        _template("workflows", "id", "The workflows of this hub by name, or all of them as `list`.", workflows),
        _template("runs", "id", f"Your runs of workflows by id, or the latest {_MOST} as `list`.", runs),
    ]


def config_resource(settings: Callable[[], Config]) -> Capability:
    """What can be read about how the hub is set up."""

    async def config(key: str) -> Any:
        found = dict(_settings(settings()))
        if key == LIST:
            return found
        if key not in found:
            raise ToolError(f"config key not found: {shorten(key)}")
        return {"key": key, "value": found[key]}

    return _template("config", "key", "The settings of this hub by key, or all of them as `list`.", config)


def _template(name: str, variable: str, description: str, read: Callable[..., Any]) -> Capability:
    options = ResourceOptions(name=name, description=description, mime_type="application/json")
    return resource_from_function(read, f"waypost://{name}/{{{variable}}}", options)


def _summary(name: str, model: Workflow) -> Data:
    return {
        "id": name,
        "name": name,
        "title": model.title or name,
        "description": model.description,
        "enabled": model.enabled,
    }


def _whole(name: str, model: Workflow) -> Data:
    written: Data = hidden(msgspec.to_builtins(model))
    steps = written.pop("steps")
    told = {**written, **_summary(name, model)}
    if steps:
        told["steps"] = [{"position": position, **step} for position, step in enumerate(steps, 1)]
    return told


def _run_summary(live: Live) -> Data:
    body = live.body
    return {
        "id": live.id,
        "workflow_id": live.definition.id,
        "status": "completed" if body.outcome == "succeeded" else live.status,
        "state": live.state.name,
        "version": live.version,
        "started_at": moment(body.started_at),
        "completed_at": moment(body.ended_at) if body.ended_at else None,
    }


def _run(live: Live) -> Data:
    context = live.body.context
    told = _run_summary(live)
    if not live.definition.model.steps:
        return {**told, "result": context if live.is_over else None, "error": live.body.halted, "context": context}
    return {
        **told,
        "result": context.get("result"),
        "error": context.get("error", live.body.halted),
        "step_results": context.get("step_results", {}),
    }


def _settings(config: Config) -> Iterator[tuple[str, Any]]:
    """Every setting by its key, the secret ones hidden."""
    written = msgspec.to_builtins(config)
    for section, value in written.items():
        if section not in _NO_SETTINGS:
            yield from _flat(section, section, value)


def _flat(key: str, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if (name in _WITH_SECRETS or is_secret_name(name)) and value not in (None, [], {}):
        yield key, HIDDEN
    elif isinstance(value, Mapping) and value:
        for inner, item in value.items():
            yield from _flat(f"{key}.{inner}", inner, item)
    else:
        yield key, _told(value)


def _told(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_told(item) for item in value]
    return hidden(value)
