"""The registry: all capabilities by kind and name, the listeners of their changes, and the catalog as data."""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator, Set
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from waypost.capabilities.capability import (
    Capability,
    Kind,
    Priority,
    disambiguate,
    fold_name,
    is_portable,
    to_portable,
)
from waypost.capabilities.context import Context
from waypost.capabilities.tools import Tool
from waypost.errors import DefinitionError, UnknownPrompt, UnknownResource, UnknownTool, shorten
from waypost.suggestions import did_you_mean, preselect


class Change(msgspec.Struct, frozen=True):
    """One mutation of the registry: the lists that changed, and the capabilities added, removed or replaced in them."""

    kinds: frozenset[Kind]
    rows: tuple[Capability, ...] = ()


Listener: TypeAlias = Callable[[Change], None]
RowKey: TypeAlias = tuple[Kind, str]
Rows: TypeAlias = dict[RowKey, Capability]
"""Capabilities by kind and name."""

_log: Final = logging.getLogger(__name__)
REMEMBERED: Final = 10_000
"""How many changes a table keeps one by one, at least."""
_MAX_RESERVED: Final = 100_000
_NAMED: Final = (Kind.TOOL, Kind.PROMPT)
"""The kinds whose rows have names; the others have URIs."""
PREFIXES: Final = {"skill:": "skill", "workflow:": "workflow"}
"""Name prefixes of tools that are skills or workflows, and their term in errors."""


class Table:
    """The capabilities of one kind, sorted by name."""

    def __init__(self) -> None:
        self.revision = 0
        self.scoped = 0
        self.tasked = 0
        self.headed = 0
        """How many have arguments that are repeated in headers."""
        self.hidden = 0
        self._rows: dict[str, Capability] = {}
        self.get: Final = self._rows.get  # bound once: every call looks up its tool here
        """The row under a key."""
        # Kept sorted with each change, because lists are read far more often than they change.
        self._order: list[str] = []
        self._changed: tuple[int, list[str]] = (0, [])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Capability]:
        return (self._rows[key] for key in self._order)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    @property
    def keys(self) -> Set[str]:
        """The keys of all rows, in no order."""
        return self._rows.keys()

    def after(self, key: str | None) -> Iterator[Capability]:
        """The rows whose key sorts after `key`, which need not exist."""
        start = 0 if key is None else bisect_right(self._order, key)
        return (self._rows[name] for name in self._order[start:])

    def put(self, capability: Capability) -> None:
        """Add or replace a row."""
        if capability.id in self._rows:
            self.pop(capability.id)
        insort(self._order, capability.id)
        self._rows[capability.id] = capability
        self.scoped += bool(capability.scopes)
        self.tasked += capability.mcp.task != "forbidden"
        self.headed += bool(capability.mcp.headers)
        self.hidden += capability.metadata.hidden
        self._note(capability.id)

    def pop(self, key: str) -> Capability | None:
        """Remove a row."""
        row = self._rows.pop(key, None)
        if row is not None:
            del self._order[bisect_left(self._order, key)]
            self.scoped -= bool(row.scopes)
            self.tasked -= row.mcp.task != "forbidden"
            self.headed -= bool(row.mcp.headers)
            self.hidden -= row.metadata.hidden
            self._note(key)
        return row

    def changed_since(self, revision: int) -> list[str] | None:
        """The keys of rows added, removed or replaced since a revision; `None` when that is not kept any longer."""
        first, keys = self._changed
        return None if revision < first else keys[revision - first :]

    def _note(self, key: str) -> None:
        first, keys = self._changed
        keys.append(key)
        if len(keys) > 2 * REMEMBERED:  # half of them at once, so that it is not done with every change
            self._changed = (first + len(keys) - REMEMBERED, keys[-REMEMBERED:])
        self.revision += 1


class Offer(msgspec.Struct, eq=False):
    """A row that a source offers, and the row that is published for it."""

    source: str
    own: Capability
    """The row under its own name."""
    row: Capability | None = None
    """The published row, under another name where its own is taken; `None` while it is left out."""


class Registry:
    """Tools, prompts, resources and resource templates; every mutation is one change for its listeners."""

    def __init__(self) -> None:
        self.tables: dict[Kind, Table] = {kind: Table() for kind in Kind}
        self.tools = self.tables[Kind.TOOL]
        self._portable: dict[str, str] = {}
        self._portable_of: dict[str, str] = {}
        self._offers: dict[str, list[Offer]] = {}
        """By their sources."""
        self._holders: dict[tuple[Kind, str], Offer] = {}
        """The offers that are published, by kind and published name."""
        self._waiting: dict[tuple[Kind, str], list[Offer]] = {}
        """The offers whose names are taken, by kind and their own name: in the order in which they get them."""
        self._reserved: dict[tuple[Kind, str], str] = {}
        """The sources of tools of workers that are away, by kind and published name; the oldest are first."""
        self._looks: dict[tuple[Kind, str], set[str]] = {}
        """The names of tools and prompts, by kind and how they look."""
        self._hidden: frozenset[RowKey] = frozenset()
        self._covered: Rows = {}
        """The rows that an operator hides, as their sources gave them."""
        self._listeners: list[Listener] = []
        self._held: list[Capability] | None = None

    def __getitem__(self, kind: Kind) -> Table:
        return self.tables[kind]

    @property
    def covered(self) -> list[Capability]:
        """The rows that an operator hides, as their sources gave them."""
        return list(self._covered.values())

    def hide(self, keys: Iterable[RowKey]) -> None:
        """Hide the rows with these keys and no others, also rows that arrive later, on top of what hides itself."""
        # Only what differs is looked at, however many rows are hidden.
        before, self._hidden = self._hidden, frozenset(keys)
        changed: list[Capability] = []
        for key in sorted(before ^ self._hidden, key=lambda one: (one[0].value, one[1])):
            row = self._covered.get(key) or self.tables[key[0]].get(key[1])
            if row is not None and not row.metadata.hidden:
                self.tables[key[0]].put(self._cover(row))
                changed.append(row)
        self._publish(changed)

    def _cover(self, row: Capability) -> Capability:
        """A row as the tables have it: hidden where an operator hides it."""
        key = _key(row)
        if key not in self._hidden or row.metadata.hidden:
            self._covered.pop(key, None)
            return row
        self._covered[key] = row
        return msgspec.structs.replace(row, metadata=msgspec.structs.replace(row.metadata, hidden=True))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after each change, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add(self, capabilities: Iterable[Capability]) -> None:
        """Add all or nothing; two capabilities with one name are a `DefinitionError`."""
        self.replace((), capabilities)

    def remove(self, capabilities: Iterable[Capability]) -> None:
        """Remove capabilities."""
        self.replace(capabilities, ())

    def replace(self, old: Iterable[Capability], new: Iterable[Capability]) -> None:
        """Exchange rows of the hub itself in one step, seen from outside as one change.

        A new row takes its name from one that is offered; any other clash is a `DefinitionError`.
        """
        leaving = {_key(row): row for row in old}
        arriving = self.check_names(new, leaving)
        displaced = self._displace(arriving.values(), leaving)
        self._move(displaced, leaving, arriving)
        self._publish(self._apply(leaving, arriving))

    def check_names(self, new: Iterable[Capability], leaving: Container[tuple[Kind, str]] = ()) -> Rows:
        """Rows of the hub itself by their keys; two with one name are a `DefinitionError`, as in `replace`."""
        arriving: Rows = {}
        for row in new:
            key = _key(row)
            other = None if key in leaving else self.tables[row.kind].get(row.id)
            if key in arriving or (other is not None and not _outranks(row, other)):
                noun = row.kind.value.rstrip("s").replace("_", " ")
                raise DefinitionError(f"There is a {noun} {row.id!r} already; give one of them another name.")
            arriving[key] = row
        return arriving

    def offer(self, source: str, rows: Iterable[Capability], priority: Priority) -> list[Offer]:
        """Publish the rows of a source in place of those that it offered before, as one change.

        A name that agents may hold never changes what it calls while that is offered: of two rows with one name the
        later tool gets a suffix, which depends only on its source, and the later row of another kind is left out until
        the name is free. Only a row of the hub itself takes a name that is in use, and gives it back when it goes.
        The rows of a source have different names.
        """
        # By the rows' own names, because what is published may have another name.
        before = {_key(offer.own): offer for offer in self._offers.pop(source, ())}
        leaving: Rows = {}
        arriving: Rows = {}
        offers: list[Offer] = []
        fresh: list[Offer] = []
        for given in rows:
            row = given if given.priority is priority else msgspec.structs.replace(given, priority=priority)
            offer = before.pop(_key(row), None)
            if offer is None:
                offer = Offer(source, row)
                fresh.append(offer)
            offer.own = row
            offers.append(offer)
            if offer.row is not None:  # offered again: it keeps the name that agents know
                leaving[_key(offer.row)] = offer.row
                self._show(offer, offer.row.id, arriving)
        for gone in before.values():
            self._stop_waiting(gone)
            if gone.row is not None:
                leaving[_key(gone.row)] = gone.row
                del self._holders[_key(gone.row)]
                if priority is Priority.WORKER and gone.row.kind is Kind.TOOL:
                    self._reserve(gone.row, source)
        for offer in fresh:
            self._place(offer, leaving, arriving)
        if offers:
            self._offers[source] = offers
        self._publish(self._apply(leaving, arriving))
        return offers

    def is_taken(self, kind: Kind, name: str) -> bool:
        """Whether the hub itself has a row of this name, which no other row can take."""
        found = self.tables[kind].get(name)
        return found is not None and found.priority is Priority.HUB

    def _place(self, offer: Offer, leaving: Rows, arriving: Rows) -> None:
        """Publish a new offer under its own name, or under another where that is taken."""
        rival = self._find_rival(offer.own, leaving, arriving)
        if rival is not None:
            gets_name = _outranks(offer.own, rival)
        else:
            is_reserved = self._reserved.get(_key(offer.own), offer.source) != offer.source
            gets_name = not is_reserved or offer.own.priority is Priority.HUB
        if gets_name:
            displaced = self._displace([offer.own], leaving)
            self._show(offer, offer.own.id, arriving)
            self._move(displaced, leaving, arriving)
            return
        self._set_aside(offer, leaving, arriving)
        # The names of tools only move when the hub itself takes or frees them: a worker that reconnects finds the name
        # free that its agents know.
        if rival is not None and (offer.own.kind is not Kind.TOOL or rival.priority is Priority.HUB):
            self._waiting.setdefault(_key(offer.own), []).append(offer)

    def _reserve(self, row: Capability, source: str) -> None:
        """Keep the name of a tool for its source while that is away: agents that hold it must not call another."""
        self._reserved.pop(_key(row), None)
        self._reserved[_key(row)] = source
        if len(self._reserved) > _MAX_RESERVED:
            del self._reserved[next(iter(self._reserved))]

    def _displace(self, rows: Iterable[Capability], leaving: Rows) -> list[Offer]:
        """Take the names of arriving rows of the hub from those that only offer them."""
        displaced: list[Offer] = []
        for row in rows:
            # A tool can be called by its portable name too, which must not lead to another tool.
            for name in {row.id, to_portable(row.id)} if row.kind is Kind.TOOL else {row.id}:
                key = row.kind, name
                holder = None if key in leaving else self.tables[key[0]].get(key[1])
                if holder is not None and _outranks(row, holder):
                    leaving[key] = holder
                    displaced.append(self._holders.pop(key))
        return displaced

    def _move(self, displaced: Iterable[Offer], leaving: Rows, arriving: Rows) -> None:
        for offer in displaced:
            self._stop_waiting(offer)
            self._set_aside(offer, leaving, arriving)
            self._waiting.setdefault(_key(offer.own), []).insert(0, offer)
            if offer.row is not None:
                _log.warning("%s of %s is %s now: its name was taken", offer.own.id, offer.source, offer.row.id)

    def _set_aside(self, offer: Offer, leaving: Rows, arriving: Rows) -> None:
        """Publish a tool whose name is taken under one with a suffix; leave a row of another kind out."""
        kind, name = _key(offer.own)
        if kind is Kind.TOOL:
            # The suffix is a digest of the source: in whatever order workers connect, agents find the same names.
            names = (disambiguate(offer.source, name, attempt) for attempt in itertools.count())
            free = next(one for one in names if self._holder((kind, one), leaving, arriving) is None)
            self._show(offer, free, arriving)
        else:
            offer.row = None
            _log.warning("%s: %s of %s is left out as long as its name is taken", kind.value, name, offer.source)

    def _show(self, offer: Offer, name: str, arriving: Rows) -> None:
        own = offer.own
        offer.row = row = own if name == own.id else _rename(own, name)
        arriving[_key(row)] = row
        self._holders[_key(row)] = offer

    def _holder(self, key: tuple[Kind, str], leaving: Rows, arriving: Rows) -> Capability | None:
        """The row that is called by a name, of a tool also the portable one, once the change is made."""
        kind, name = key
        row = arriving.get(key) or (None if key in leaving else self.tables[kind].get(name))
        if row is None and kind is Kind.TOOL and (borrower := self._portable.get(name, name)) != name:
            return self._holder((kind, borrower), leaving, arriving)
        return row

    def _find_rival(self, row: Capability, leaving: Rows, arriving: Rows) -> Capability | None:
        """The row that keeps another from its own name; it may be of the same source only by that very name.

        The names and URIs of imports are chosen by servers outside the hub's control. So theirs must not look like
        those of others either, nor may a template answer for URIs of others.
        """
        holder = self._holder(_key(row), leaving, arriving)
        if holder is not None or row.priority is not Priority.IMPORT:
            return holder
        if row.kind in _NAMED:
            names = self._looks.get((row.kind, fold_name(row.id)), set())
            others = (self.tables[row.kind].get(name) for name in names if (row.kind, name) not in leaving)
        else:
            others = (found for found in self.tables[Kind.TEMPLATE] if _key(found) not in leaving)
        return next((one for one in others if one is not None and one.owner != row.owner and _overlaps(one, row)), None)

    def _stop_waiting(self, offer: Offer) -> None:
        waiting = self._waiting.get(_key(offer.own), [])
        if offer in waiting:
            waiting.remove(offer)
            if not waiting:
                del self._waiting[_key(offer.own)]

    def _give_back(self) -> list[Capability]:
        """Give names that are free now to those that wait for them; returns what looks different."""
        leaving: Rows = {}
        arriving: Rows = {}
        for key, waiting in list(self._waiting.items()):
            rivals = {one: self._find_rival(one.own, leaving, arriving) for one in waiting}
            offer = next((one for one, rival in rivals.items() if rival is None), None)
            # Prompts and resources wait until the name is free; a tool has another name, and waits for the hub only.
            waits_for_hub = key[0] is Kind.TOOL
            blocked = [one for one, rival in rivals.items() if rival is not None and rival.priority is Priority.HUB]
            left = [one for one in (blocked if waits_for_hub else waiting) if one is not offer]
            if left:
                self._waiting[key] = left
            else:
                del self._waiting[key]
            if offer is None:
                continue
            if offer.row is not None:
                leaving[_key(offer.row)] = offer.row
                del self._holders[_key(offer.row)]
            self._show(offer, offer.own.id, arriving)
            _log.info("%s of %s has its name again", offer.own.id, offer.source)
        return self._apply(leaving, arriving)

    def _apply(self, leaving: Rows, arriving: Rows) -> list[Capability]:
        """Change the tables; returns the rows that make lists look different."""
        # A row that is exchanged stays in place, so that it keeps its portable name.
        for kind, name in leaving.keys() - arriving.keys():
            self._drop(kind, name)
        moved = [self._put(row) for row in arriving.values()]
        return _different(leaving, arriving) + [row for row in moved if row is not None and not row.metadata.hidden]

    def _put(self, capability: Capability) -> Capability | None:
        """Add a row; gives the one that is spelled in another way from now on."""
        self.tables[capability.kind].put(self._cover(capability))
        if capability.kind in _NAMED:
            self._looks.setdefault((capability.kind, fold_name(capability.id)), set()).add(capability.id)
        if capability.kind is not Kind.TOOL or capability.id in self._portable_of:
            return None  # a row that is exchanged keeps its spelling
        return self._publish_portable(capability.id)

    def _drop(self, kind: Kind, key: str) -> None:
        self.tables[kind].pop(key)
        self._covered.pop((kind, key), None)
        if kind in _NAMED:
            names = self._looks[kind, fold_name(key)]
            names.discard(key)
            if not names:
                del self._looks[kind, fold_name(key)]
        if kind is Kind.TOOL:
            self._portable.pop(self._portable_of.pop(key, key), None)

    def _publish_portable(self, name: str) -> Capability | None:
        if is_portable(name):
            # A name that is portable by itself keeps it; a tool that borrowed it gets another spelling.
            borrower = self._portable.get(name)
            self._claim(name, name)
            if borrower is not None and borrower != name:
                self._claim(borrower, self._free(borrower))
                return self.tools.get(borrower)
        else:
            self._claim(name, self._free(name))
        return None

    def _claim(self, name: str, spelled: str) -> None:
        self._portable[spelled] = name
        self._portable_of[name] = spelled

    def _free(self, name: str) -> str:
        """A portable spelling of `name` that no other tool has."""
        plain = spelled = to_portable(name)
        for attempt in itertools.count():
            if self._portable.get(spelled, name) == name and spelled not in self.tools:
                break
            spelled = disambiguate(name, plain, attempt)
        return spelled

    @contextmanager
    def as_one_change(self) -> Iterator[None]:
        """Publish everything that changes inside as one change at the end."""
        if self._held is not None:
            yield
            return
        self._held = []
        try:
            yield
        finally:
            rows, self._held = self._held, None
            self._publish(rows)

    def _publish(self, rows: list[Capability]) -> None:
        if self._held is not None:
            self._held += rows
            return
        # Only now, when all changes of a block are made: a name that is free in between may be taken again at its end.
        if self._waiting:
            rows = rows + self._give_back()
        if rows:
            change = Change(frozenset(row.kind for row in rows), tuple(rows))
            for listener in tuple(self._listeners):  # one may unsubscribe while it is called
                listener(change)

    def portable_name(self, tool: Capability) -> str:
        """The name of `tool` that every model API accepts."""
        return self._portable_of[tool.id]

    def find_tool(self, name: str) -> Capability | None:
        """The tool called `name`, canonical or portable, if there is one."""
        return self.tools.get(name) or self.tools.get(self._portable.get(name, ""))

    def tool(self, name: str) -> Capability:
        """The tool called `name`; another name is an `UnknownTool`."""
        found = self.tools.get(name) or self.find_tool(name)  # every call asks: the usual case needs no second function
        if found is None:
            raise unknown_tool(name)
        return found

    def prompt(self, name: str, shows: Callable[[Capability], bool] = lambda _: False) -> Capability:
        """Return the prompt called `name`; an `UnknownPrompt` suggests the nearest one for which `shows` is true."""
        found = self.tables[Kind.PROMPT].get(name)
        if found is None:
            raise self.unknown_prompt(name, shows)
        return found

    def unknown_prompt(self, name: str, shows: Callable[[Capability], bool]) -> UnknownPrompt:
        """The error for a prompt that does not exist, with the nearest one for which `shows` is true."""
        return UnknownPrompt(f"Unknown prompt: {shorten(name)}{self._suggest(name, Kind.PROMPT, shows)}")

    def unknown_resource(self, uri: str, shows: Callable[[Capability], bool]) -> UnknownResource:
        """The error for a resource that does not exist, with the nearest one for which `shows` is true."""
        return UnknownResource(uri, hint=self._suggest(uri, Kind.RESOURCE, shows))

    def _suggest(self, name: str, kind: Kind, shows: Callable[[Capability], bool]) -> str:
        known = {row.id: row for row in self.tables[kind] if not row.metadata.hidden}
        # `shows` asks the policy, which costs too much to be done for every row.
        shown = (one for one in preselect(name, known) if shows(known[one]))
        return did_you_mean(name, shown, "; ", quote=lambda one: f'"{one}"')

    def resources(self, uri: str) -> Iterator[tuple[Capability, dict[str, str]]]:
        """Whatever may answer for `uri`, the fixed resource first, then templates in the order of their names."""
        fixed = self.tables[Kind.RESOURCE].get(uri)
        if fixed is not None:
            yield fixed, {}
        for capability in sorted(self.tables[Kind.TEMPLATE], key=lambda found: found.definition.name):
            variables = capability.mcp.template.match(uri) if capability.mcp.template else None
            if variables is not None:
                yield capability, variables

    def resource(self, uri: str) -> Capability:
        """The first that may answer for `uri`."""
        for capability, _ in self.resources(uri):
            return capability
        raise UnknownResource(uri)


def unknown_tool(name: str) -> UnknownTool:
    """The error for a tool that does not exist."""
    for prefix, noun in PREFIXES.items():
        if name.startswith(prefix) and not name.startswith(f"{prefix}:"):
            return UnknownTool(f"Unknown {noun}: {shorten(name.removeprefix(prefix))}", name)
    return UnknownTool(f"Unknown tool: {shorten(name)}", name)


def _key(row: Capability) -> tuple[Kind, str]:
    return row.kind, row.id


def _outranks(row: Capability, holder: Capability) -> bool:
    """Whether a row takes a name that another has."""
    return row.priority is Priority.HUB and holder.priority is not Priority.HUB


def _overlaps(one: Capability, row: Capability) -> bool:
    """Whether an imported row may stand for the same as another, which has another name."""
    if row.kind in _NAMED:
        return True
    template = one.mcp.template
    if template is None or row.kind is Kind.RESOURCE:
        return template is not None and template.match(row.id) is not None
    # Whether two templates have a URI in common is not decided: a common beginning is enough to refuse the import.
    mine, other = row.id.partition("{")[0], template.template.partition("{")[0]
    return mine.startswith(other) or other.startswith(mine)


def _rename(row: Capability, name: str) -> Capability:
    """Return a tool under another name, with its own as title and alias."""
    definition = msgspec.structs.replace(row.definition, name=name, title=row.definition.title or row.id)
    metadata = msgspec.structs.replace(row.metadata, aliases=row.metadata.aliases or (row.id,))
    return msgspec.structs.replace(row, id=name, definition=definition, metadata=metadata)


def _different(old: Rows, new: Rows) -> list[Capability]:
    """The rows that differ in lists after a replacement, before and after."""
    before, after = _listed(old), _listed(new)
    return [
        row
        for key in {*before, *after}
        if key not in before or key not in after or before[key].definition != after[key].definition
        for row in (before.get(key), after.get(key))
        if row is not None
    ]


def _listed(rows: Rows) -> Rows:
    return {key: row for key, row in rows.items() if not row.metadata.hidden}


_SECTIONS: Final = {kind.value: kind for kind in Kind}


class Catalog(Tool, name="catalog", annotations={"read_only_hint": True}):
    """List everything this server offers, with full schemas, including items that the ordinary lists leave out."""

    type: Annotated[Literal["tools", "prompts", "resources", "resource_templates", "all"], "Which section to list"] = (
        "all"
    )
    query: Annotated[str, "Text to find in names, descriptions and URIs"] = ""
    category: Annotated[str | None, "Only entries of this category"] = None
    include_hidden: Annotated[bool, "Whether entries that lists leave out are shown"] = True

    async def execute(self, ctx: Context) -> dict[str, Any]:
        """The requested sections, filtered."""
        sections = list_everything(ctx.registry, lambda row: ctx.shows(row) and self._shows(row))
        return sections if self.type == "all" else {self.type: sections[self.type]}

    def _shows(self, row: Capability) -> bool:
        if row.metadata.hidden and not self.include_hidden:
            return False
        texts = (row.id, row.definition.name, row.definition.description or "")
        if not any(self.query.casefold() in text.casefold() for text in texts):
            return False
        if self.category is None:
            return True
        return row.metadata.category is not None and row.metadata.category.casefold() == self.category.casefold()


def list_everything(
    registry: Registry, shows: Callable[[Capability], bool] = lambda _: True
) -> dict[str, list[dict[str, Any]]]:
    """The definitions of everything in a registry, by section."""
    return {section: [_entry(row) for row in registry[kind] if shows(row)] for section, kind in _SECTIONS.items()}


def _entry(row: Capability) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(row.definition)
    entry["hidden"] = row.metadata.hidden
    if row.kind is Kind.TOOL and row.metadata.category is not None:
        entry["category"] = row.metadata.category
    return entry
