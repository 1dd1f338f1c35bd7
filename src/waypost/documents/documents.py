"""The component for documents: records as resources and prompts of the hub, offered to its workers as functions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waypost.capabilities.capability import Capability, Priority
from waypost.capabilities.capability import Kind as Of
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Chain, Principal
from waypost.capabilities.registry import Offer, Registry
from waypost.documents.content import Prompts, Skills, prompt_row, row_id, skill_row, standing_rows
from waypost.documents.functions import TRIGGER_TYPES, document_functions, told_on_change
from waypost.documents.ports import Access, Asker, Changed, DocumentStore, Kind, Op, Owners, Source, Trigger, Updated
from waypost.documents.records import Prompt, Record, Skill
from waypost.documents.stores import Collection, HubDocumentStore, LayeredDocumentStore
from waypost.documents.uris import INDEX_URI, skill_uri
from waypost.errors import InvocationFailed
from waypost.execution.pipeline import Pipeline
from waypost.policy.decisions import Policy
from waypost.runtime.component import Component
from waypost.stores.store import Store
from waypost.workers.calls import caller_of
from waypost.workers.frames import UNKNOWN
from waypost.workers.functions import DEFAULT, Call, Function
from waypost.workers.triggers import Binding, TriggerType
from waypost.workers.workers import Workers

if TYPE_CHECKING:
    from waypost.runtime.core import Core


STATE_TIMEOUT: Final = 10.0
_log: Final = logging.getLogger(__name__)

Name = tuple[Kind, str]


class _Seen(NamedTuple):
    """What is remembered of something that is there."""

    registered_at: str
    names: tuple[str, ...]
    """What rules know it by."""


class Documents(Component):
    """Everything that workers, folders and people published.

    Without a registry it only serves functions, as it does where it is a worker itself. Skills of sources are read,
    listed and fetched like all others; as resources of the hub they are whatever their source makes of them.
    """

    name = "documents"

    def __init__(
        self,
        shelf: DocumentStore,
        trigger: Trigger,
        *,
        registry: Registry | None = None,
        changed: Changed = lambda kind, op, name, names: None,
        updated: Updated = lambda uri, also=(): None,
        owners: Owners | None = None,
        sources: Sequence[Source] = (),
        access: Access | None = None,
        within: float = STATE_TIMEOUT,
    ) -> None:
        kept = shelf
        shelf = LayeredDocumentStore(kept, sources) if sources else kept
        self.owners, self._access = owners or Owners(), access or Access()
        rights = (self.owners, self._access)
        self._shelf = shelf
        self._skills = Collection("skills", Skill, shelf, kept, *rights, self._written, self._is_free)
        self._prompts = Collection("prompts", Prompt, shelf, kept, *rights, self._written, self._is_free)
        self.skills = Skills(self._skills, trigger, within)
        self.prompts = Prompts(self._prompts, trigger, within)
        self._registry = registry
        self._changed = changed
        self._updated = updated
        self._is_open = False
        self._loading = asyncio.Lock()
        self._standing: list[Capability] = []
        self._offers: dict[Name, Offer] = {}
        self._records: dict[Name, _Seen] = {}
        self._mark: object = None
        """What the shelf was like when it was read."""
        self._meanwhile: set[Name] | None = None
        """What changed here while the shelf is read."""

    def functions(self) -> list[Function]:
        """The thirteen functions."""
        return document_functions(self.skills, self.prompts, self.owners, self._access)

    def stands(self, kind: Kind, name: str) -> bool:
        """Whether clients find what is published under a name, and not something else that the hub has there."""
        return self._is_free(kind, name)

    async def open(self) -> None:
        """Have what is on the shelf, unless that was done before."""
        if not self._is_open:
            await self.load()

    async def load(self) -> None:
        """Have what is on the shelf; what others put there or took away since the last time is told.

        Nothing is read again where nothing can have changed, so that it may be called often.
        """
        async with self._loading:
            first, self._is_open = not self._is_open, True
            try:
                mark = await self._shelf.mark()  # before it is read: what changes meanwhile is read the next time
                if mark is not None and mark == self._mark:
                    return
                found, news = await self._seen()
            except BaseException:
                if first:
                    self._stand()
                raise
            known_by = {name: self._known_by(name, found.get(name)) for name in news}
            with nullcontext() if self._registry is None else self._registry.as_one_change():
                if first:
                    self._stand()
                self._have({name: found.get(name) for name in news})
            self._mark = mark
            if not first:
                self._tell(known_by, found)

    def _stand(self) -> None:
        """Have what is there whatever is published."""
        self._standing = standing_rows(self.skills)
        if self._registry is not None:
            self._registry.add(self._standing)

    async def _seen(self) -> tuple[dict[Name, Record], list[Name]]:
        """What is on the shelf, and what of it was not so before; what changes here meanwhile is known better here."""
        self._meanwhile = set()
        try:
            found: dict[Name, Record] = {("skills", one.id): one for one in await self._skills.all()}
            found |= {("prompts", one.name): one for one in await self._prompts.all()}
            for name in self._meanwhile:
                found.pop(name, None)
            return found, [name for name in self._differences(found) if name not in self._meanwhile]
        finally:
            self._meanwhile = None

    async def start(self, core: Core) -> None:
        """Serve what was published."""
        await self.load()

    async def refresh(self) -> None:
        """Serve what other replicas published."""
        await self.load()

    async def stop(self) -> None:
        """Take all rows out of the registry."""
        self.close()

    def close(self) -> None:
        """Take all rows out of the registry."""
        if self._registry is not None:
            with self._registry.as_one_change():
                self._registry.remove(self._standing)
                for name in self._offers:
                    self._registry.offer(_source(*name), (), Priority.WORKER)
        self._is_open = False
        self._standing = []
        self._offers.clear()
        self._records.clear()
        self._mark = None

    def _differences(self, found: dict[Name, Record]) -> list[Name]:
        gone = [name for name in self._records if name not in found]
        return [*gone, *(name for name, one in found.items() if self._records.get(name) != _seen(one))]

    def _known_by(self, name: Name, record: Record | None) -> tuple[str, ...]:
        """What rules know something by that is there now, or was until now."""
        if record is not None:
            return record.names
        before = self._records.get(name)
        return (row_id(*name)[1],) if before is None else before.names

    def _tell(self, news: dict[Name, tuple[str, ...]], found: dict[Name, Record]) -> None:
        for (kind, name), known_by in news.items():
            self._announce(kind, "register" if (kind, name) in found else "unregister", name, known_by)
        if any(kind == "skills" for kind, _ in news):
            self._updated(INDEX_URI)

    def _written(self, kind: Kind, op: Op, name: str, record: Record | None) -> None:
        if self._meanwhile is not None:
            self._meanwhile.add((kind, name))
        known_by = self._known_by((kind, name), record)
        self._have({(kind, name): record})
        self._announce(kind, op, name, known_by)
        if kind == "skills":
            self._updated(INDEX_URI)

    def _announce(self, kind: Kind, op: Op, name: str, known_by: tuple[str, ...]) -> None:
        self._changed(kind, op, name, known_by)
        if kind == "skills":
            self._updated(skill_uri(name), known_by)

    def _have(self, news: dict[Name, Record | None]) -> None:
        """Have the rows of these from now on; nothing in the place of a record takes its row out."""
        if not self._is_open:
            return
        for name, record in news.items():
            if record is None:
                self._records.pop(name, None)
            else:
                self._records[name] = _seen(record)
        if self._registry is None:
            return
        with self._registry.as_one_change():
            for name, record in news.items():
                if record is not None and not record.borrowed:
                    (self._offers[name],) = self._registry.offer(_source(*name), [self._row(record)], Priority.WORKER)
                elif self._offers.pop(name, None) is not None:
                    self._registry.offer(_source(*name), (), Priority.WORKER)

    def _row(self, record: Record) -> Capability:
        return skill_row(record, self.skills) if isinstance(record, Skill) else prompt_row(record, self.prompts)

    def _is_free(self, kind: Kind, name: str) -> bool:
        if self._registry is None:
            return True
        table, key = row_id(kind, name)
        offer = self._offers.get((kind, name))
        return self._registry[table].get(key) in (None, None if offer is None else offer.row)


def _source(kind: Kind, name: str) -> str:
    return f"documents/{kind}/{name}"


def _seen(record: Record) -> _Seen:
    return _Seen(record.registered_at, record.names)


HUB: Final = DetachedCaller(Principal("hub"), Chain("hub", "core", 1))
"""On whose behalf the hub asks where nobody else does."""


def build_documents(
    registry: Registry,
    workers: Workers,
    pipeline: Pipeline,
    policy: Policy,
    store: Store,
    updated: Updated,
    sources: Sequence[Source] = (),
) -> Documents:
    """The registry of a hub: kept in its store, shown to its clients, offered to its workers."""

    access = _access(registry, pipeline, policy)

    def changed(kind: Kind, op: Op, name: str, known_by: Sequence[str]) -> None:
        def may_hear(binding: Binding) -> bool:
            caller = caller_of(binding.maker)
            return not any(_is_hidden(policy, one, caller) for one in known_by)

        workers.triggers.fire(TRIGGER_TYPES[kind].id, told_on_change(kind, op, name), may_hear)

    settings = workers.settings
    documents = Documents(
        HubDocumentStore(store),
        _Reach(workers, policy),
        registry=registry,
        changed=changed,
        updated=updated,
        owners=Owners(workers.owner_of, workers.has, settings.share, partial(_namespace, workers)),
        sources=sources,
        access=access,
        within=settings.state_timeout,
    )
    kinds = [TriggerType(kind.id, kind.description) for kind in TRIGGER_TYPES.values()]
    workers.host(documents.functions(), kinds)
    return documents


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
