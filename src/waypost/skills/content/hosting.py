"""The registry of skills and prompts as a part of a hub, offered to its workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from waypost.capabilities.absent import Absent
from waypost.capabilities.chain import Chain
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Registry
from waypost.execution.pipeline import Pipeline
from waypost.skills.content.content import Content
from waypost.skills.content.functions import TRIGGER_TYPES, told_on_change
from waypost.skills.content.owning import Owners
from waypost.skills.content.ports import Asker, Kind, Op, Source
from waypost.skills.content.store_shelf import StoreShelf
from waypost.stores.store import Store
from waypost.workers.triggers import Kind as TriggerKind
from waypost.workers.workers import Workers

_HUB: Final = Absent(Principal("hub"), Chain("hub", "core", 1))


def hosted_content(
    registry: Registry,
    workers: Workers,
    pipeline: Pipeline,
    store: Callable[[], Store],
    updated: Callable[[str], None],
    sources: Sequence[Source] = (),
) -> Content:
    """The registry of a hub: kept in its store, shown to its clients, offered to its workers."""

    async def trigger(function_id: str, payload: Any, within: float, by: Asker = None) -> Any:
        return await workers.trigger(function_id, payload, _caller(by), within)

    def changed(kind: Kind, op: Op, name: str) -> None:
        workers.triggers.fire(TRIGGER_TYPES[kind].id, told_on_change(kind, op, name))

    def admit(uri: str, by: Asker) -> None:
        for capability, _ in registry.resources(uri):
            pipeline.check(capability, uri, _caller(by), "read")
            return

    settings = workers.settings
    content = Content(
        StoreShelf(store),
        trigger,
        registry=registry,
        changed=changed,
        updated=updated,
        owners=Owners(workers.owner_of, workers.has, settings.share),
        sources=sources,
        admit=admit,
        within=settings.state_timeout,
    )
    kinds = [TriggerKind(kind.id, kind.description) for kind in TRIGGER_TYPES.values()]
    workers.host(content.functions(), kinds)
    return content


def _caller(by: Asker) -> Caller:
    """On whose behalf a section or the handler of a prompt runs: whoever reads it, who may do no more by reading."""
    caller: Caller | None = None if by is None else by.caller
    return _HUB if caller is None else caller
