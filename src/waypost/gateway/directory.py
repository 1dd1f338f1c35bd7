"""The directory of everything an agent can find, kept up to date by the registry's changes, and what a caller finds."""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller, DetachedCaller
from waypost.capabilities.principals import Chain, Principal
from waypost.capabilities.registry import Change, Registry
from waypost.config.models import Workflow
from waypost.errors import WorkflowRefused, shorten
from waypost.imports.sources import Pending
from waypost.loops import running_loop
from waypost.policy.guard import PolicyGuard
from waypost.policy.rules import Rule
from waypost.search.documents import Document, Found, View
from waypost.search.index import SearchIndex
from waypost.wire.definitions import PromptDefinition, ToolDefinition
from waypost.workflows.definitions import PROXY
from waypost.workflows.steps import input_schema
from waypost.workflows.views import Answer, no_instance_error

if TYPE_CHECKING:
    from waypost.search.embeddings import Matrix

SKILL: Final = "skill:"
WORKFLOW: Final = "workflow:"
PROMPT: Final = "prompt:"
MARKDOWN: Final = "text/markdown"
_MAX_TITLE_CHARACTERS: Final = 140
"""Characters of a document's name that are its title, which may be a heading of any length."""

ItemKind = Literal["workflow", "capability", "skill", "prompt", "document"]
Data = dict[str, Any]


class Item(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An entry of the catalog, and the texts it is found by."""

    id: str
    kind: ItemKind
    title: str
    description: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    text: str
    link: Data
    """The call that uses it."""
    schema: Data | None
    """The JSON Schema of what that call takes of it."""
    row: Capability

    @property
    def is_restricted(self) -> bool:
        """Whether it needs scopes or permissions."""
        return bool(self.row.scopes or self.row.permissions)

    @property
    def source(self) -> str:
        """What it comes from: an upstream server, a worker, a skill, or the hub itself."""
        return self.row.owner or "hub"

    @property
    def category(self) -> str:
        """The category it is counted under."""
        return self.row.metadata.category or "none"

    def summarise(self, *further: Data) -> Data:
        """As lists show it, with further calls that use it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "description": self.description,
            "tags": list(self.tags),
            "links": [self.link, *further],
        }

    def describe(self, *further: Data) -> Data:
        """With the schema of its link and its aliases."""
        described = self.summarise()
        described["links"] = [
            {**self.link, "input_schema": self.schema},
            *({**one, "input_schema": None} for one in further),
        ]
        if self.aliases:
            described["aliases"] = list(self.aliases)
        return described


def to_item(row: Capability, workflow: Callable[[str], Workflow | None]) -> Item | None:
    """A row of the registry as an item; `None` if agents are not to find it."""
    if row.metadata.hidden:
        return None
    if row.kind is Kind.PROMPT:
        link = {"rel": "get", "method": "prompts/get", "args": {"name": row.id, "arguments": {}}}
        return _build_item(f"{PROMPT}{row.id}", "prompt", row, link, row.id, _prompt_schema(row))
    if row.kind is Kind.RESOURCE:
        if getattr(row.definition, "mime_type", None) != MARKDOWN:
            return None
        link = {"rel": "read", "method": "resources/read", "args": {"uri": row.id}}
        return _build_item(row.id, "document", row, link, row.id)
    if row.kind is not Kind.TOOL:
        return None
    if row.id.startswith(WORKFLOW) and (model := workflow(row.id.removeprefix(WORKFLOW))) is not None:
        name = row.id.removeprefix(WORKFLOW)
        link = {"rel": "start", "method": "workflow.start", "args": {"definitionId": name, "input": {}}}
        return _build_item(name, "workflow", row, link, workflow_text(model), input_schema(model))
    kind: ItemKind = "skill" if row.id.startswith(SKILL) else "capability"
    return _build_item(row.id, kind, row, start_link(row.id), row.id, row.arguments.schema)


def start_link(capability: str, **given: Data) -> Data:
    """The call that uses one capability, at once where it is given arguments."""
    args = {"definitionId": PROXY, "input": {"capability": capability, **given}}
    return {"rel": "start", "method": "workflow.start", "args": args}


def _prompt_schema(row: Capability) -> Data:
    """The schema of a prompt's arguments, which are all text."""
    assert isinstance(row.definition, PromptDefinition)
    given = row.definition.arguments or []
    return {
        "type": "object",
        "properties": {one.name: {"type": "string", "description": one.description or ""} for one in given},
        "required": [one.name for one in given if one.required],
    }


def _build_item(
    item_id: str, kind: ItemKind, row: Capability, link: Data, text: str, schema: Data | None = None
) -> Item:
    title, description = row.definition.title, row.definition.description
    unnamed = row.definition.name[:_MAX_TITLE_CHARACTERS] if kind == "document" else item_id
    return Item(
        id=item_id,
        kind=kind,
        title=unnamed if title is UNSET or not title else title,
        description=row.metadata.about if description is UNSET else description or "",
        tags=row.metadata.tags,
        aliases=row.metadata.aliases,
        text=text,
        link=link,
        schema=schema,
        row=row,
    )


def workflow_text(workflow: Workflow) -> str:
    """The text a workflow is found by: its states, transitions, goals and guidance."""
    words: list[str] = [step.name or step.skill or step.capability or "" for step in workflow.steps]
    for name, state in workflow.states.items():
        words += [name, *state.transitions, state.goal or "", state.guidance or ""]
    return " ".join(word for word in words if word)


PAGE_SIZE: Final = 200
_BATCH_SIZE: Final = 10
"""How many items are indexed in one turn of the loop: a request waits for several turns."""
_INDEXING_DELAY_S: Final = 0.005
"""How long a change waits for others before it is indexed; what is withdrawn again meanwhile is not indexed at all."""
_KINDS: Final = (Kind.TOOL, Kind.PROMPT, Kind.RESOURCE)

Allowed = Callable[[Item], bool]
Hit = tuple[float, Item]
Key = tuple[Kind, str]


class Directory:
    """Items by id, and the index they are found by."""

    def __init__(
        self,
        registry: Registry,
        workflow: Callable[[str], Workflow | None],
        index: SearchIndex,
        leaves_out: Callable[[Capability], bool],
    ) -> None:
        self._registry = registry
        self._workflow = workflow
        self._leaves_out = leaves_out
        self.index = index
        self._items: dict[str, Item] = {}
        self._order: list[str] = []
        self._rows: dict[Key, Item | None] = {}
        self._aside: dict[Key, str] = {}
        """The ids that rows would have, where another item has them."""
        self._known: dict[Kind, dict[str, Capability]] = {kind: {} for kind in _KINDS}
        self._revisions = dict.fromkeys(_KINDS, -1)
        self._fresh: dict[str, Item] = {}
        """Items that are not indexed yet; that is done in small batches, at the latest before a search."""
        self._stale: dict[str, None] = {}
        """The ids of items that are gone, or replaced, and still in the index."""
        self._is_indexing = False
        self._restricted = 0
        self._counted: tuple[dict[Kind, int], dict[str, Counter[str]]] = ({}, {})
        """How many items there are in each group, and the revisions at which they were counted."""

    @property
    def has_restricted(self) -> bool:
        """Whether there are items that need scopes or permissions."""
        return self._restricted > 0

    def _catch_up(self) -> None:
        """Apply the changes of the registry since the last time."""
        for kind in _KINDS:
            table, known = self._registry[kind], self._known[kind]
            revision, since = table.revision, self._revisions[kind]
            if revision == since:
                continue
            self._revisions[kind] = revision
            changed = table.changed_since(since)
            # None means that the registry no longer knows what changed since then, so that everything is compared.
            for name in sorted({*known, *(row.id for row in table)} if changed is None else set(changed)):
                row = table.get(name)
                if row is not None and known.get(name) is row:
                    continue
                self._forget((kind, name))
                if row is not None and not self._leaves_out(row):
                    self._learn((kind, name), row)

    def _learn(self, key: Key, row: Capability) -> None:
        item = to_item(row, self._workflow)
        other = None if item is None else self._items.get(item.id)
        if item is not None and other is not None:
            if _rank(item) < _rank(other):
                self._leave(other)
                self._place(_key(other), self._renamed(other, item.id))
            else:
                item = self._renamed(item)
        self._known[key[0]][key[1]] = row
        self._place(key, item)

    def _place(self, key: Key, item: Item | None) -> None:
        self._rows[key] = item
        if item is not None:
            self._items[item.id] = item
            self._restricted += item.is_restricted
            insort(self._order, item.id)
            self._fresh[item.id] = item

    def _renamed(self, item: Item, taken: str = "") -> Item:
        """An item with its kind before its id, because another item has the id; it waits for that."""
        self._aside.setdefault(_key(item), item.id)
        name = f"{item.kind}:{item.id}"
        while name in self._items or name == taken:
            name = f"{item.kind}:{name}"
        return msgspec.structs.replace(item, id=name)

    def _forget(self, key: Key) -> None:
        self._known[key[0]].pop(key[1], None)
        self._aside.pop(key, None)
        item = self._rows.pop(key, None)
        if item is None:
            return
        self._leave(item)
        waiting = [found for one, wanted in self._aside.items() if wanted == item.id and (found := self._rows[one])]
        if waiting:
            renamed = min(waiting, key=_rank)
            self._leave(renamed)
            del self._aside[_key(renamed)]
            self._learn(_key(renamed), renamed.row)

    def _leave(self, item: Item) -> None:
        del self._items[item.id]
        self._restricted -= item.is_restricted
        del self._order[bisect_right(self._order, item.id) - 1]
        if self._fresh.pop(item.id, None) is None:
            self._stale[item.id] = None

    def _index(self, most: int | None = None) -> None:
        """Bring the index up to date; at most `most` items are removed, or added, at a time."""
        for item_id in list(islice(self._stale, most)):
            del self._stale[item_id]
            self.index.remove(item_id)
        if self._stale:  # one of them may have been replaced by a new item
            return
        for item_id in list(islice(self._fresh, most)):
            self.index.add(_to_document(self._fresh.pop(item_id)))

    def index_later(self) -> None:
        """Index new items in the background, in small batches that do not block the loop."""
        self._catch_up()
        if (self._fresh or self._stale) and not self._is_indexing:
            self._is_indexing = True
            running_loop().call_soon(self._index_some)

    def _index_some(self) -> None:
        self._is_indexing = False
        self._index(_BATCH_SIZE)
        if self._fresh or self._stale:
            self.index_later()
        else:
            self.index.start()  # so that the vectors of new items are there before the next search

    def follow(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call a function after each change of the registry, until the returned one is called."""
        return self._registry.subscribe(listener)

    def replace_index(self, index: SearchIndex) -> None:
        """Index everything again, in another index."""
        self.index.close()
        self.index, self._fresh, self._stale = index, dict(self._items), {}

    def get(self, item_id: str) -> Item | None:
        """The item with that id, or with that name as a tool."""
        self._catch_up()
        found = self._items.get(item_id)
        if found is None and (row := self._registry.find_tool(item_id)) is not None:
            return self._rows.get((Kind.TOOL, row.id))
        return found

    def list_hidden(self) -> list[Item]:
        """What operators hide, by id."""
        found = (to_item(row, self._workflow) for row in self._registry.covered)
        return sorted((item for item in found if item is not None), key=lambda item: item.id)

    def __iter__(self) -> Iterator[Item]:
        self._catch_up()
        return iter(self._items.values())

    def count_groups(self) -> dict[str, Counter[str]]:
        """How many items there are of each kind, source and category; counted again only after a change."""
        self._catch_up()
        if self._counted[0] != self._revisions:
            items = self._items.values()
            counts: dict[str, Counter[str]] = {
                "kind": Counter(item.kind for item in items),
                "source": Counter(item.source for item in items),
                "category": Counter(item.category for item in items),
            }
            self._counted = (dict(self._revisions), counts)
        return self._counted[1]

    def page(self, after: str | None, allowed: Allowed, most: int = PAGE_SIZE) -> tuple[list[Item], str | None]:
        """Items in the order of their ids after one, and the id to go on from."""
        self._catch_up()
        found: list[Item] = []
        start = 0 if after is None else bisect_right(self._order, after)
        for item in (self._items[item_id] for item_id in islice(self._order, start, None)):
            if not allowed(item):
                continue
            if len(found) == most:
                return found, found[-1].id
            found.append(item)
        return found, None

    def counts(self, allowed: Allowed) -> dict[str, dict[str, int]]:
        """How many there are of each kind and category."""
        shown = [item for item in self._items.values() if allowed(item)]
        return {
            "kind": dict(Counter(item.kind for item in shown)),
            "category": dict(Counter(item.category for item in shown)),
        }

    def catch_up(self) -> None:
        """Apply the changes of the registry, and index what is new."""
        self._catch_up()
        self._index()

    def search(
        self, query: str, kind: str | None, limit: int, view: View | None, embedded: Matrix | None = None
    ) -> tuple[Found, list[Hit]]:
        """What ranked, and the items that answer a query best, with their scores.

        With a view, what changed since it was updated is not searched: it would not know who may find that.
        """
        if view is None:
            self.catch_up()
        found = self.index.search(query, kind, limit, view, embedded=embedded)
        return found, [(score, self._items[item_id]) for score, item_id in found.results if item_id not in self._stale]

    def view(self, allowed: Allowed) -> View:
        """The items that are allowed, as a set for `search` that follows the index."""
        return self.index.view(lambda item_id: item_id not in self._stale and allowed(self._items[item_id]))

    def find_nearest(self, item_id: str, allowed: Allowed) -> list[str]:
        """Return ids similar to an unknown one, of items that are allowed."""
        self.catch_up()
        return self.index.find_nearest(item_id.removeprefix(WORKFLOW), allowed=lambda near: allowed(self._items[near]))


def _key(item: Item) -> Key:
    return item.row.kind, item.row.id


def _rank(item: Item) -> tuple[bool, int, int]:
    """Which of several items has an id: a workflow, else a row of the hub itself, of an import, of a worker."""
    return item.kind != "workflow", -item.row.priority, _KINDS.index(item.row.kind)


def _to_document(item: Item) -> Document:
    """An item as the search index takes it."""
    return Document(
        id=item.id,
        kind=item.kind,
        title=item.title,
        description=item.description,
        tags=item.tags,
        aliases=item.aliases,
        text=item.text,
        parameters=tuple(_describe_parameters(item.schema)),
    )


def _describe_parameters(given: dict[str, Any] | None) -> Iterator[str]:
    """The names of an item's parameters with their descriptions."""
    properties = (given or {}).get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        description = schema.get("description") if isinstance(schema, dict) else None
        yield f"{name} {description}" if isinstance(description, str) else name


_MAX_VIEWS: Final = 256
"""Callers whose sets of items are kept, of one bit for each item."""
_UNLISTED: Final = Capability(
    kind=Kind.TOOL, id="", definition=ToolDefinition(""), handler=lambda _, __: None, is_async=False
)
"""Stands for the tools of a server that never said what it offers."""


class Lookup:
    """What callers find in the directory, and the answers about what they do not find.

    An item that is hidden from a caller takes the same way as one that does not exist, so that neither the answer nor
    its time says more than that.
    """

    def __init__(self, directory: Directory, guard: PolicyGuard, list_pending: Callable[[], Iterable[Pending]]) -> None:
        self.directory = directory
        self._guard = guard
        self._list_pending = list_pending
        self._views: dict[tuple[Principal, Chain], View] = {}
        self._viewed: tuple[SearchIndex, tuple[Rule, ...]] = (directory.index, ())
        """What the views belong to."""
        self._stop_following: Callable[[], None] | None = None
        self._is_behind = False

    def close(self) -> None:
        """No longer follow the registry, until the next search."""
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None

    def _follow(self) -> None:
        """Index what changes from now on in the background.

        A worker may offer and withdraw hundreds of functions a second, and the next search would wait until all of
        them are indexed. Before the first search nothing is followed: a hub that is never searched needs no index.
        """
        loop = running_loop()

        def note(_: Change) -> None:
            if not self._is_behind and not loop.is_closed():
                self._is_behind = True
                # Handlers change the registry from their threads too.
                loop.call_soon_threadsafe(loop.call_later, _INDEXING_DELAY_S, self._index)

        self._is_behind = False
        self._stop_following = self.directory.follow(note)

    def _index(self) -> None:
        self._is_behind = False
        if self._stop_following is not None:
            self.directory.index_later()

    async def search(
        self, query: str, kind: str | None, limit: int, found_by: Caller | Allowed | None
    ) -> tuple[Found, list[Hit]]:
        """What ranked, and the items that answer a query best, with their scores.

        Only those that a caller may use, or that pass a test; with `None`, of all items.
        """
        directory = self.directory
        if self._stop_following is None:
            self._follow()
        directory.catch_up()
        # Milliseconds of numpy, which the event loop does not wait for.
        is_slow = directory.index.needs_vectors(query)
        embedded = await asyncio.to_thread(directory.index.embed, query) if is_slow else None
        view = None
        if found_by is not None:
            view = await (self._select(found_by) if callable(found_by) else self._view(found_by))
        return directory.search(query, kind, limit, view, embedded)

    async def _select(self, allowed: Allowed) -> View:
        view = self.directory.view(allowed)
        # A part in each turn of the loop: a catalog may have many thousands of items.
        for _ in view.update():
            await asyncio.sleep(0)
        return view

    async def _view(self, caller: Caller) -> View | None:
        """What the caller may find; None where that is everything."""
        policy, index = self._guard.policy, self.directory.index
        if not (policy.is_steady or self.directory.has_restricted or caller.chain.depth):
            return None
        # Identity is enough: a reload of the policies replaces the rules as a whole.
        if self._viewed[0] is not index or self._viewed[1] is not policy.rules:
            self._viewed = (index, policy.rules)
            self._views.clear()
        # The last one used is the last to be dropped. Which instance a call belongs to makes no difference.
        key = (caller.principal, msgspec.structs.replace(caller.chain, run="", key=""))
        # Without the caller itself, which the kept view would keep alive.
        view = self._views.pop(key, None) or self.directory.view(self.allows(DetachedCaller(*key)))
        self._views[key] = view
        if len(self._views) > _MAX_VIEWS:
            del self._views[next(iter(self._views))]
        for _ in view.update():
            await asyncio.sleep(0)
        return view

    def may(self, row: Capability, name: str, caller: Caller) -> bool:
        """Whether a caller may use a capability under a name, now or later; other items are not listed to it."""
        guard = self._guard
        if not (guard.policy.rules or row.scopes or row.permissions or caller.chain.depth):
            return True
        if not row.is_open_to(caller.principal.scopes) or guard.policy.is_hidden(caller.principal, row.id):
            return False
        return guard.decide(row, name, caller, counts=False, steady=True).allowed

    def allows(self, caller: Caller) -> Allowed:
        """The test whether a caller may use an item."""
        return lambda item: self.may(item.row, item.row.id, caller)

    def find(self, item_id: str, caller: Caller) -> Item | None:
        """An item that the caller may use."""
        item = self.directory.get(item_id)
        return item if item is not None and self.may(item.row, item.row.id, caller) else None

    def pending(self, caller: Caller) -> list[Data]:
        """The upstream servers that are connecting or down, of those whose tools the caller may use."""
        shown: list[Data] = []
        for one in self._list_pending():
            rows = [(row, row.id) for row in one.rows] or [(_UNLISTED, f"{prefix}.tool") for prefix in one.prefixes]
            if any(self.may(row, name, caller) for row, name in rows):
                entry = {"connection": one.connection, "status": one.status}
                shown.append(entry | ({"reason": one.reason} if one.reason else {}))
        return shown

    def _find_nearest(self, name: str, caller: Caller, is_called: bool) -> list[str]:
        """Similar ids, of all items or only of those that can be called by their names."""
        allowed = self.allows(caller)
        if not is_called:
            return self.directory.find_nearest(name, allowed)
        near = self.directory.find_nearest(name, lambda item: item.kind in ("capability", "skill") and allowed(item))
        return [item.row.id for one in near if (item := self.directory.get(one)) is not None]

    def answer_unknown(self, name: str, caller: Caller, what: str, given: Data | None = None, **about: Any) -> Answer:
        """The answer about a name that the caller finds nothing under: similar ids, servers to wait for, links.

        `given` is the input with which a workflow was to be started: a capability has to be started in another way.
        """
        found = None if given is None else self.find(name, caller)
        near = [name] if found is not None else self._find_nearest(name, caller, what == "no capability")
        if found is not None:
            message = f"{shorten(name)!r} is a {found.kind}, not a workflow; the first link uses it."
        else:
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            message = f"There is {what} {shorten(name)!r}.{hint}"
        details: Data = {"nearest": near}
        if pending := self.pending(caller):
            details["pending"] = pending
        answer = no_instance_error(WorkflowRefused(message, "UNKNOWN_ID", **details), **about)
        links = [{"rel": "describe", "method": "gateway.describe", "args": {"id": one}} for one in near]
        if found is not None:
            is_called = given and found.kind in ("capability", "skill")
            links.insert(0, start_link(found.id, arguments=given) if given and is_called else found.link)
        links.append({"rel": "search", "method": "gateway.search", "args": {"query": shorten(name)}})
        return Answer({**answer.data, "links": links}, refused=True)
