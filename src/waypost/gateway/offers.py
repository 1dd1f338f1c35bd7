"""What the section `proxy` offers, whatever it comes from: the one model that tools are made from."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from waypost.config import workflows as models
from waypost.config.proxy import Expose
from waypost.config.workflows import Reliability
from waypost.kinds import ExecutorModel, GuardModel
from waypost.workflows.executors.noop import Noop
from waypost.workflows.executors.rest import Rest
from waypost.workflows.resolution import Capabilities, resolve_capability

Data = dict[str, Any]
NOTHING: Final[Data] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of what takes no arguments."""
_WRITTEN: Final = "\0"
"""A name that no entry of `capabilities` has."""


class Offer(Struct, frozen=True, kw_only=True):
    """Something agents may use, with everything it is made from in its place."""

    name: str
    title: str | None = None
    description: str | None = None
    tags: list[str] = []
    aliases: list[str] = []
    examples: list[Any] = []
    category: str | None = None
    input_schema: Data
    guards: list[GuardModel] = []
    executor: ExecutorModel
    bare: Rest | None = None
    """What runs instead where there is no body to send."""
    reliability: Reliability | None = None
    annotations: dict[str, bool] = {}


def name_of(entry: Expose) -> str:
    """The name under which an entry of `proxy.expose` is offered."""
    return entry.name or entry.as_ or entry.capability or ""


def written(entry: Expose) -> models.Capability:
    """An entry of `proxy.expose` as a building block that wraps what it names."""
    executor = entry.executor
    if executor is None and entry.capability is None:
        executor = Noop()
    return models.Capability(
        title=entry.title,
        description=entry.description,
        tags=entry.tags,
        aliases=entry.aliases,
        examples=entry.examples,
        wraps=entry.capability,
        input_schema=entry.input_schema,
        executor=executor,
        guards=entry.guards,
        reliability=entry.reliability,
    )


def whole(entry: Expose, capabilities: Capabilities) -> models.Capability:
    """An entry together with everything it is made from; a `DefinitionError` where that is not there."""
    return resolve_capability(_WRITTEN, {**capabilities, _WRITTEN: written(entry)})


def offer(entry: Expose, capabilities: Capabilities) -> Offer:
    """What an entry of `proxy.expose` offers."""
    found = whole(entry, capabilities)
    named = capabilities.get(entry.capability or "")
    assert found.executor is not None
    return Offer(
        name=name_of(entry),
        title=found.title,
        description=found.description,
        tags=found.tags,
        aliases=list(dict.fromkeys([*(named.aliases if named is not None else ()), *entry.aliases])),
        examples=found.examples,
        category=entry.category,
        input_schema=NOTHING if found.input_schema is None else found.input_schema,
        guards=found.guards,
        executor=found.executor,
        reliability=found.reliability,
    )
