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
from waypost.config.models import Workflow
from waypost.errors import InvalidParams, ToolError, WorkflowRefused, shorten
from waypost.redaction import HIDDEN, is_secret_name, redacted
from waypost.stores.store import Store
from waypost.workflows.answers import format_time
from waypost.workflows.engine import Engine
from waypost.workflows.instance import Instance
from waypost.workflows.views import mask_secrets

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
        view = engine.view(ctx.caller)
        if id == LIST:
            found = (one for one in engine.library if view.finds(one))
            return [_summary(one.id, one.model) for one in sorted(found, key=lambda one: one.id)]
        one = engine.library.get(engine.lookup.id_of(id))
        if one is None or not view.finds(one):
            raise ToolError(f"workflow not found: {shorten(id)}")
        return view.masked(_whole(one.id, one.model))

    async def runs(id: str, ctx: Context) -> Any:
        principal = ctx.principal
        if id == LIST:
            latest = await store.instances.latest(limit=_MOST, principal=principal.id)
            return [_run_summary(await engine.cache.restore(record)) for record in latest]
        if _RUN_ID.fullmatch(id) is None:
            raise InvalidParams(f"Invalid ID: {shorten(id)}")
        try:
            return _run(await engine.get_visible(id, principal))
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
    written: Data = mask_secrets(msgspec.to_builtins(model))
    steps = written.pop("steps")
    data = {**written, **_summary(name, model)}
    if steps:
        data["steps"] = [{"position": position, **step} for position, step in enumerate(steps, 1)]
    return data


def _run_summary(instance: Instance) -> Data:
    body = instance.body
    return {
        "id": instance.id,
        "workflow_id": instance.definition.id,
        "status": "completed" if body.outcome == "succeeded" else instance.status,
        "state": instance.state.name,
        "version": instance.version,
        "started_at": format_time(body.started_at),
        "completed_at": format_time(body.ended_at) if body.ended_at else None,
    }


def _run(instance: Instance) -> Data:
    context = instance.body.context
    data = _run_summary(instance)
    if not instance.definition.model.steps:
        return {
            **data,
            "result": context if instance.is_over else None,
            "error": instance.body.halted,
            "context": context,
        }
    return {
        **data,
        "result": context.get("result"),
        "error": context.get("error", instance.body.halted),
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
        yield key, _mask_value(value)


def _mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_mask_value(item) for item in value]
    return mask_secrets(value)
