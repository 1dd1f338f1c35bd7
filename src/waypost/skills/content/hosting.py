"""The registry of skills and prompts as a part of a hub, offered to its workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from waypost.capabilities.capability import Capability
from waypost.capabilities.capability import Kind as Of
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Chain, Principal
from waypost.capabilities.registry import Registry
from waypost.errors import InvocationFailed
from waypost.execution.pipeline import Pipeline
from waypost.policy.decisions import Policy
from waypost.skills.content.access import Access
from waypost.skills.content.content import Content
from waypost.skills.content.functions import TRIGGER_TYPES, told_on_change
from waypost.skills.content.owning import Owners
from waypost.skills.content.ports import Asker, Kind, Op, Source, Updated
from waypost.skills.content.store_shelf import StoreShelf
from waypost.stores.store import Store
from waypost.workers.calls import caller_of
from waypost.workers.frames import UNKNOWN
from waypost.workers.functions import DEFAULT, Call
from waypost.workers.triggers import Binding
from waypost.workers.triggers import Kind as TriggerKind
from waypost.workers.workers import Workers

HUB: Final = DetachedCaller(Principal("hub"), Chain("hub", "core", 1))
"""On whose behalf the hub asks where nobody else does."""


def hosted_content(
    registry: Registry,
    workers: Workers,
    pipeline: Pipeline,
    policy: Policy,
    store: Store,
    updated: Updated,
    sources: Sequence[Source] = (),
) -> Content:
    """The registry of a hub: kept in its store, shown to its clients, offered to its workers."""

    access = _access(registry, pipeline, policy)

    def changed(kind: Kind, op: Op, name: str, known_by: Sequence[str]) -> None:
        def may_hear(binding: Binding) -> bool:
            caller = caller_of(binding.maker)
            return not any(_is_hidden(policy, one, caller) for one in known_by)

        workers.triggers.fire(TRIGGER_TYPES[kind].id, told_on_change(kind, op, name), may_hear)

    settings = workers.settings
    content = Content(
        StoreShelf(store),
        _Reach(workers, policy),
        registry=registry,
        changed=changed,
        updated=updated,
        owners=Owners(workers.owner_of, workers.has, settings.share, partial(_namespace, workers)),
        sources=sources,
        access=access,
        within=settings.state_timeout,
    )
    kinds = [TriggerKind(kind.id, kind.description) for kind in TRIGGER_TYPES.values()]
    workers.host(content.functions(), kinds)
    return content


class _Reach:
    """Runs functions of workers: those of a namespace first, then those of the default one."""

    def __init__(self, workers: Workers, policy: Policy) -> None:
        self._workers = workers
        self._policy = policy

    async def __call__(
        self, function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        """What a function answers; where it is looked for in vain, the one other place that has it is told."""
        caller, functions = _caller(by), self._workers.functions
        if namespace is None or functions.find(function_id, namespace) is None:
            namespace = DEFAULT
        try:
            return await self._workers.trigger(function_id, payload, caller, within, namespace)
        except InvocationFailed as error:
            if error.code != UNKNOWN or functions.find(function_id, namespace) is not None:
                raise
            raise InvocationFailed(error.message + self._elsewhere(function_id, caller), UNKNOWN) from None

    def _elsewhere(self, function_id: str, caller: Caller) -> str:
        shown = [
            one.namespace
            for one in self._workers.functions
            if one.id == function_id and one.capability and not _is_hidden(self._policy, one.capability.id, caller)
        ]
        return f" The namespace {shown[0]} has one." if len(shown) == 1 else ""


def _namespace(workers: Workers, call: Call) -> str | None:
    worker = workers.find(call.sender)
    return None if worker is None or worker.namespace == DEFAULT else worker.namespace


def _access(registry: Registry, pipeline: Pipeline, policy: Policy) -> Access:
    """What the rules of a hub come to for its skills and prompts."""

    def shows(name: str, by: Asker) -> bool:
        return not _is_hidden(policy, name, _caller(by))

    def admit(kind: Kind, name: str, by: Asker) -> None:
        if by is None:
            return
        row = _row(registry, kind, name)
        if row is not None:
            pipeline.check(row, name, _caller(by), "read" if kind == "skills" else "prompt")

    return Access(shows, admit)


def _is_hidden(policy: Policy, name: str, caller: Caller) -> bool:
    """Whether somebody does not find a name: clients as in all lists, workers by the rules that are about workers."""
    chain = caller.chain if caller.chain.type == "worker" else FROM_OUTSIDE
    return policy.hides and policy.is_hidden(caller.principal, name, chain)


def _row(registry: Registry, kind: Kind, name: str) -> Capability | None:
    """What stands for a URI or a prompt in the pipeline."""
    if kind == "prompts":
        return registry[Of.PROMPT].get(name)
    return next((row for row, _ in registry.resources(name)), None)


def _caller(by: Asker) -> Caller:
    """On whose behalf a section or the handler of a prompt runs: whoever reads it, who may do no more by reading."""
    caller: Caller | None = None if by is None else by.caller
    return HUB if caller is None else caller
