"""The component for documents: stored skills and prompts, shown to clients and offered to workers as functions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from waypost.capabilities.capability import Capability, Priority
from waypost.capabilities.capability import Kind as Of
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Chain, Principal
from waypost.capabilities.registry import Offer, Registry
from waypost.documents import content, records
from waypost.documents.content import FetchLimits, Prompts, Skills, fetch, list_wanted_uris, row_id
from waypost.documents.records import (
    Access,
    Asker,
    Changed,
    Data,
    DocumentStore,
    Kind,
    Op,
    Owners,
    Prompt,
    PublicationAction,
    Record,
    Skill,
    Source,
    Trigger,
    Updated,
    read_request,
)
from waypost.documents.stores import Collection, HubDocumentStore, LayeredDocumentStore
from waypost.documents.uris import INDEX_URI, skill_uri
from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, WaypostError
from waypost.execution.pipeline import Pipeline
from waypost.policy.guard import PolicyGuard
from waypost.policy.rules import Policy
from waypost.runtime.component import Component
from waypost.stores import schema
from waypost.stores.store import Store
from waypost.workers.calls import caller_of
from waypost.workers.frames import UNKNOWN
from waypost.workers.functions import DEFAULT, Call, Function, hosted
from waypost.workers.triggers import Binding, TriggerType
from waypost.workers.workers import Workers

if TYPE_CHECKING:
    from waypost.runtime.core import Core


STATE_TIMEOUT_S: Final = 10.0
_log: Final = logging.getLogger(__name__)

Name = tuple[Kind, str]


class _Known(NamedTuple):
    """What the component remembers of a published document."""

    registered_at: str
    names: tuple[str, ...]
    """The names that rules match."""


class Documents(Component):
    """The skills and prompts that workers, folders and operators published.

    Without a registry it only serves functions, as in the stand-alone worker. Skills of sources are read, listed and
    fetched like all others; their resources are registered by the source itself.
    """

    name = "documents"
    reads = (schema.SKILLS.name, schema.PROMPTS.name)

    def __init__(
        self,
        store: DocumentStore,
        trigger: Trigger,
        *,
        registry: Registry | None = None,
        changed: Changed = lambda kind, op, name, names: None,
        updated: Updated = lambda uri, also=(): None,
        owners: Owners | None = None,
        sources: Sequence[Source] = (),
        access: Access | None = None,
        within: float = STATE_TIMEOUT_S,
        limits: FetchLimits | None = None,
    ) -> None:
        layered = LayeredDocumentStore(store, sources) if sources else store
        self._store = layered
        rest = (layered, store, owners or Owners(), access or Access(), self._publish, self.is_visible)
        self.skills = Skills(Collection("skills", Skill, *rest), trigger, within)
        self.prompts = Prompts(Collection("prompts", Prompt, *rest), trigger, within)
        self._limits = limits or FetchLimits()
        self._registry = registry
        self._changed = changed
        self._updated = updated
        self._is_open = False
        self._loading = asyncio.Lock()
        self._fixed_rows: list[Capability] = []
        self._offers: dict[Name, Offer] = {}
        self._records: dict[Name, _Known] = {}
        self._revision: object = None
        """The revision of the store when it was last read."""
        self._changed_meanwhile: set[Name] | None = None
        """While the store is read: the documents that were changed here since."""

    def functions(self) -> list[Function]:
        """Return the thirteen functions."""
        return document_functions(self.skills, self.prompts, self._limits)

    async def open(self) -> None:
        """Load the store, unless that was done before."""
        if not self._is_open:
            await self.refresh()

    async def refresh(self) -> None:
        """Load the store, and announce what other replicas changed since the last time.

        It may be called often: an unchanged store is not read again.
        """
        async with self._loading:
            first, self._is_open = not self._is_open, True
            try:
                # Before the documents are read: a change in between is then seen by the next call.
                revision = await self._store.revision()
                if revision is not None and revision == self._revision:
                    return
                found, news = await self._read_changes()
            except BaseException:
                # The index and the templates are there even if the store cannot be read yet; they say what is wrong.
                if first:
                    self._add_fixed_rows()
                raise
            names = {name: self._list_names(name, found.get(name)) for name in news}
            with nullcontext() if self._registry is None else self._registry.as_one_change():
                if first:
                    self._add_fixed_rows()
                self._update_rows({name: found.get(name) for name in news})
            # Only now: if something failed above, the next call reads the same changes again.
            self._revision = revision
            if not first:
                self._announce_all(names, found)

    def _add_fixed_rows(self) -> None:
        """Register the index and the templates."""
        self._fixed_rows = content.build_fixed_rows(self.skills)
        if self._registry is not None:
            self._registry.add(self._fixed_rows)

    async def _read_changes(self) -> tuple[dict[Name, Record], list[Name]]:
        """Return the stored documents and the names of changed ones.

        Documents that were changed here while the store was read are left out: the rows read may be older.
        """
        self._changed_meanwhile = set()
        try:
            found: dict[Name, Record] = {("skills", one.id): one for one in await self.skills.collection.all()}
            found |= {("prompts", one.name): one for one in await self.prompts.collection.all()}
            for name in self._changed_meanwhile:
                found.pop(name, None)
            changed = [name for name in self._records if name not in found]
            changed += [name for name, one in found.items() if self._records.get(name) != _to_known(one)]
            return found, [name for name in changed if name not in self._changed_meanwhile]
        finally:
            self._changed_meanwhile = None

    async def start(self, core: Core) -> None:
        """Serve what was published."""
        await self.refresh()

    async def stop(self) -> None:
        """Take all rows out of the registry."""
        if self._registry is not None:
            with self._registry.as_one_change():
                self._registry.remove(self._fixed_rows)
                for name in self._offers:
                    self._registry.offer(_source(*name), (), Priority.WORKER)
        self._is_open = False
        self._fixed_rows = []
        self._offers.clear()
        self._records.clear()
        self._revision = None

    def _list_names(self, name: Name, record: Record | None) -> tuple[str, ...]:
        """Return the names that rules match, of a document that exists or was just removed."""
        if record is not None:
            return record.names
        before = self._records.get(name)
        return (row_id(*name)[1],) if before is None else before.names

    def _announce_all(self, news: dict[Name, tuple[str, ...]], found: dict[Name, Record]) -> None:
        for (kind, name), names in news.items():
            self._announce(kind, "register" if (kind, name) in found else "unregister", name, names)
        if any(kind == "skills" for kind, _ in news):
            self._updated(INDEX_URI)

    def _publish(self, kind: Kind, op: Op, name: str, record: Record | None) -> None:
        if self._changed_meanwhile is not None:
            self._changed_meanwhile.add((kind, name))
        names = self._list_names((kind, name), record)  # before the row goes, with which they would be forgotten
        self._update_rows({(kind, name): record})
        self._announce(kind, op, name, names)
        if kind == "skills":
            self._updated(INDEX_URI)

    def _announce(self, kind: Kind, op: Op, name: str, names: tuple[str, ...]) -> None:
        self._changed(kind, op, name, names)
        if kind == "skills":
            self._updated(skill_uri(name), names)

    def _update_rows(self, news: dict[Name, Record | None]) -> None:
        """Register the rows of records; None in place of a record removes its row."""
        if not self._is_open:
            return
        for name, record in news.items():
            if record is None:
                self._records.pop(name, None)
            else:
                self._records[name] = _to_known(record)
        if self._registry is None:
            return
        with self._registry.as_one_change():
            for name, record in news.items():
                if record is not None and not record.from_source:
                    row = (
                        content.build_skill_row(record, self.skills)
                        if isinstance(record, Skill)
                        else content.build_prompt_row(record, self.prompts)
                    )
                    (self._offers[name],) = self._registry.offer(_source(*name), [row], Priority.WORKER)
                elif self._offers.pop(name, None) is not None:
                    self._registry.offer(_source(*name), (), Priority.WORKER)

    def is_visible(self, kind: Kind, name: str) -> bool:
        """Return whether clients see the document of a name, and nothing else of the hub in its place."""
        if self._registry is None:
            return True
        table, key = row_id(kind, name)
        offer = self._offers.get((kind, name))
        return self._registry[table].get(key) in (None, None if offer is None else offer.row)


def _source(kind: Kind, name: str) -> str:
    return f"documents/{kind}/{name}"


def _to_known(record: Record) -> _Known:
    return _Known(record.registered_at, record.names)


HUB: Final = DetachedCaller(Principal("hub"), Chain("hub", "core", 1))
"""The caller of the hub's own requests."""


def build_documents(
    registry: Registry,
    workers: Workers,
    pipeline: Pipeline,
    guard: PolicyGuard,
    store: Store,
    updated: Updated,
    sources: Sequence[Source],
    limits: FetchLimits,
) -> Documents:
    """Return the documents of a hub: kept in its store, shown to its clients, offered to its workers."""
    policy = guard.policy
    access = _make_access(registry, pipeline, guard)

    def changed(kind: Kind, op: Op, name: str, names: Sequence[str]) -> None:
        # What a rule hides from a worker in lists must not be announced to it either.
        def may_see(binding: Binding) -> bool:
            caller = caller_of(binding.maker)
            return not any(_is_hidden(policy, one, caller) for one in names)

        workers.triggers.fire(TRIGGER_TYPES[kind].id, make_change_payload(kind, op, name), may_see)

    def find_namespace(call: Call) -> str | None:
        worker = workers.find(call.sender)
        return None if worker is None or worker.namespace == DEFAULT else worker.namespace

    settings = workers.settings
    documents = Documents(
        HubDocumentStore(store),
        _WorkerTrigger(workers, policy),
        registry=registry,
        changed=changed,
        updated=updated,
        owners=Owners(
            workers.owner_of,
            workers.has,
            settings.share,
            find_namespace,
            lambda owner: owner.removeprefix("worker:") in settings.tokens,
        ),
        sources=sources,
        access=access,
        within=settings.state_timeout,
        limits=limits,
    )
    workers.host(documents.functions(), TRIGGER_TYPES.values())
    return documents


class _WorkerTrigger:
    """Runs functions of workers; a given namespace is searched first, then the default one."""

    def __init__(self, workers: Workers, policy: Policy) -> None:
        self._workers = workers
        self._policy = policy

    async def __call__(
        self, function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        """Return a function's answer; if it is unknown, the error names the one other namespace that has it."""
        caller, functions = _to_caller(by), self._workers.functions
        # The worker that registered a prompt may be in a namespace, and its function in the one that all share.
        if namespace is None or functions.find(function_id, namespace) is None:
            namespace = DEFAULT
        try:
            return await self._workers.trigger(function_id, payload, caller, within, namespace)
        except InvocationFailed as error:
            # Where the function exists, the error is about another one, which it called.
            if error.code != UNKNOWN or functions.find(function_id, namespace) is not None:
                raise
            raise InvocationFailed(error.message + self._suggest_namespace(function_id, caller), UNKNOWN) from None

    def _suggest_namespace(self, function_id: str, caller: Caller) -> str:
        visible = [
            one.namespace
            for one in self._workers.functions
            if one.id == function_id and one.capability and not _is_hidden(self._policy, one.capability.id, caller)
        ]
        return f" The namespace {visible[0]} has one." if len(visible) == 1 else ""


def _make_access(registry: Registry, pipeline: Pipeline, guard: PolicyGuard) -> Access:
    """Return the access to documents under the policy of a hub."""
    policy = guard.policy

    def shows(name: str, by: Asker) -> bool:
        return not _is_hidden(policy, name, _to_caller(by))

    def admit(kind: Kind, name: str, by: Asker) -> None:
        if by is None:
            return
        row = _find_row(registry, kind, name)
        if row is not None:
            pipeline.check(row, name, _to_caller(by), "read" if kind == "skills" else "prompt")

    def record(action: PublicationAction, name: str, call: Call) -> None:
        caller = _to_caller(call)
        guard.record_act(action, caller.principal.id, "worker" if caller.chain.type == "worker" else "mcp", name)

    return Access(shows, admit, record)


def _is_hidden(policy: Policy, name: str, caller: Caller) -> bool:
    """Return whether a name is hidden: from clients as in all lists, from workers by the rules about workers."""
    chain = caller.chain if caller.chain.type == "worker" else FROM_OUTSIDE
    return policy.hides and policy.is_hidden(caller.principal, name, chain)


def _find_row(registry: Registry, kind: Kind, name: str) -> Capability | None:
    """Return the capability of a URI or a prompt."""
    if kind == "prompts":
        return registry[Of.PROMPT].get(name)
    return next((row for row, _ in registry.resources(name)), None)


def _to_caller(by: Asker) -> Caller:
    """Return the caller that a section or prompt function runs as: the reader, who gains no rights by reading."""
    caller: Caller | None = None if by is None else by.caller
    return HUB if caller is None else caller


FETCH: Final = "skill::fetch"
"""The function that agents use."""
_MAX_URI_BYTES: Final = 2 * 1024
"""What a URI takes in a payload, on average of as many as one call may name."""
_FETCH_DESCRIPTION: Final = (
    "Fetches the content of one or more skill resources identified by iii:// URIs. When you encounter iii:// links in "
    "skill instructions, use this tool to retrieve their contents (batch with `uris` when helpful)."
)
Answer: TypeAlias = Callable[[Data, Call], Awaitable[Any]]


TRIGGER_TYPES: Final[dict[Kind, TriggerType]] = {
    "skills": TriggerType(
        "skills::on-change", "Fires after any mutation of the skills registry (register / unregister)."
    ),
    "prompts": TriggerType(
        "prompts::on-change", "Fires after any mutation of the prompts registry (register / unregister)."
    ),
}


def make_change_payload(kind: Kind, op: Op, name: str) -> Data:
    """Return the payload of an on-change trigger."""
    return {"op": op, "id" if kind == "skills" else "name": name}


# The function, its description, and the JSON Schemas of its request and response.
_SKILL_FUNCTIONS: Final[dict[str, tuple[str, Data, Data]]] = {
    "skills::register": (
        "Register a markdown skill so it appears as iii://{id} in resources/list.",
        records.REGISTER_SKILL,
        records.SKILL_REGISTERED,
    ),
    "skills::unregister": (
        "Remove a registered skill by id.",
        records.UNREGISTER_SKILL,
        records.SKILL_UNREGISTERED,
    ),
    "skills::list": (
        "List registered skills (id, body length, registered_at) without bodies.",
        records.LIST_SKILLS,
        records.SKILLS,
    ),
    "skills::resources-list": (
        "Internal: returns the MCP resources/list envelope with the iii://skills index + one iii://{id} entry per "
        "registered skill.",
        records.EMPTY,
        records.ANY,
    ),
    "skills::resources-read": (
        "Internal: resolves an iii:// URI and returns the MCP resources/read contents envelope.",
        records.READ,
        records.ANY,
    ),
    "skills::resources-templates": (
        "Internal: returns the MCP resources/templates/list envelope.",
        records.EMPTY,
        records.ANY,
    ),
    "skills::fetch_skill": (_FETCH_DESCRIPTION, records.FETCH, records.FETCHED),
    FETCH: (_FETCH_DESCRIPTION, records.FETCH, records.FETCHED),
}
_PROMPT_FUNCTIONS: Final[dict[str, tuple[str, Data, Data]]] = {
    "prompts::register": (
        "Register a slash-command prompt; clients call prompts/get to render it.",
        records.REGISTER_PROMPT,
        records.PROMPT_REGISTERED,
    ),
    "prompts::unregister": (
        "Remove a registered prompt by name.",
        records.UNREGISTER_PROMPT,
        records.PROMPT_UNREGISTERED,
    ),
    "prompts::list": (
        "List registered prompts (name, function_id, arg count, registered_at).",
        records.LIST_PROMPTS,
        records.PROMPTS,
    ),
    "prompts::mcp-list": (
        "Internal: returns the MCP prompts/list envelope (full arguments schema for each registered prompt).",
        records.EMPTY,
        records.ANY,
    ),
    "prompts::mcp-get": (
        "Internal: dispatches a registered prompt handler and normalizes the result for MCP prompts/get.",
        records.GET_PROMPT,
        records.ANY,
    ),
}


def document_functions(skills: Skills, prompts: Prompts, limits: FetchLimits) -> list[Function]:
    """Return all thirteen functions."""
    answers = {**_answer_for_skills(skills, limits), **_answer_for_prompts(prompts)}
    # Decoding a hundred thousand URIs takes many milliseconds, only to count them.
    most = dict.fromkeys((FETCH, "skills::fetch_skill"), limits.max_uris * _MAX_URI_BYTES)
    return [
        _make_function(function_id, answers[function_id], *declared, most.get(function_id))
        for function_id, declared in (*_SKILL_FUNCTIONS.items(), *_PROMPT_FUNCTIONS.items())
    ]


def _answer_for_skills(skills: Skills, limits: FetchLimits) -> dict[str, Answer]:
    owners, access = skills.collection.owners, skills.collection.access

    async def register(given: Data, call: Call) -> Data:
        answer = await skills.register(given["id"], given["skill"], owners.owner_of(call))
        access.record("document.published", given["id"], call)
        return answer

    async def list_templates(given: Data, call: Call) -> Data:
        return skills.templates(call)

    async def read(given: Data, call: Call) -> Data:
        # The guard has seen the call of this function; which URI it reads is only in the payload.
        await skills.admit(given["uri"], call)
        return await skills.read(given["uri"], call)

    async def fetch_all(given: Data, call: Call) -> str:
        uris = list_wanted_uris(given["uri"], given["uris"], limits.max_uris)
        # All of them before the first is read, which may run a function.
        for uri in dict.fromkeys(uris):
            await skills.admit(uri, call)
        return await fetch(skills, uris, call, limits.max_bytes)

    return {
        "skills::register": register,
        "skills::unregister": _make_unregister(skills, "id"),
        "skills::list": lambda given, call: skills.list(call),
        "skills::resources-list": lambda given, call: skills.resources(call),
        "skills::resources-read": read,
        "skills::resources-templates": list_templates,
        "skills::fetch_skill": fetch_all,
        FETCH: fetch_all,
    }


def _make_unregister(documents: Skills | Prompts, key: str) -> Answer:
    async def unregister(given: Data, call: Call) -> Data:
        answer = await documents.unregister(given[key], documents.collection.owners.owner_of(call))
        if answer["removed"]:
            documents.collection.access.record("document.removed", given[key], call)
        return answer

    return unregister


def _answer_for_prompts(prompts: Prompts) -> dict[str, Answer]:
    owners, access = prompts.collection.owners, prompts.collection.access

    async def register(given: Data, call: Call) -> Data:
        answer = await prompts.register(**given, owner=owners.owner_of(call), namespace=owners.namespace_of(call))
        access.record("document.published", given["name"], call)
        return answer

    async def get(given: Data, call: Call) -> Data:
        await prompts.admit(given["name"], call)
        return await prompts.get(given["name"], given["arguments"], call)

    return {
        "prompts::register": register,
        "prompts::unregister": _make_unregister(prompts, "name"),
        "prompts::list": lambda given, call: prompts.list(call),
        "prompts::mcp-list": lambda given, call: prompts.list_entries(call),
        "prompts::mcp-get": get,
    }


def _make_function(
    function_id: str, answer: Answer, description: str, request: Data, response: Data, max_bytes: int | None
) -> Function:
    async def handle(payload: Any, call: Call) -> Any:
        try:
            return await answer(read_request(payload, request) if "properties" in request else {}, call)
        except (InvocationFailed, PolicyDenied, ProtocolError):
            raise
        except WaypostError as error:
            raise InvocationFailed(error.message) from error

    return hosted(
        function_id,
        handle,
        description=description,
        request=request,
        response=response,
        metadata={},
        max_bytes=max_bytes,
    )
