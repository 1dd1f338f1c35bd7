"""The registry: all capabilities by kind and name, and the listeners of their changes."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.names import disambiguate, is_portable, to_portable
from waypost.errors import DefinitionError, UnknownPrompt, UnknownResource, UnknownTool, shorten
from waypost.suggestions import did_you_mean, preselect


class Change(msgspec.Struct, frozen=True):
    """One mutation of the registry: the lists that changed, and the capabilities added, removed or replaced in them."""

    kinds: frozenset[Kind]
    rows: tuple[Capability, ...] = ()


Listener: TypeAlias = Callable[[Change], None]
Rows: TypeAlias = dict[tuple[Kind, str], Capability]
"""Capabilities by kind and name."""

REMEMBERED: Final = 10_000
"""How many changes a table keeps one by one, at least."""
PREFIXES: Final = {"skill:": "skill", "workflow:": "workflow"}
"""Prefixes of names of tools that stand for something else, and what that is called in errors."""


class Table:
    """The capabilities of one kind, sorted by name."""

    def __init__(self) -> None:
        self.revision = 0
        self.scoped = 0
        self.tasked = 0
        self.headed = 0
        """How many have arguments that are repeated in headers."""
        self._rows: dict[str, Capability] = {}
        self.get: Final = self._rows.get
        """The row under a key."""
        self._order: list[str] = []
        self._changed: tuple[int, list[str]] = (0, [])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Capability]:
        return (self._rows[key] for key in self._order)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

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
        self._note(capability.id)

    def pop(self, key: str) -> Capability | None:
        """Remove a row."""
        row = self._rows.pop(key, None)
        if row is not None:
            del self._order[bisect_left(self._order, key)]
            self.scoped -= bool(row.scopes)
            self.tasked -= row.mcp.task != "forbidden"
            self.headed -= bool(row.mcp.headers)
            self._note(key)
        return row

    def changed_since(self, revision: int) -> list[str] | None:
        """The keys of rows added, removed or replaced since a revision; `None` when that is not kept any longer."""
        first, keys = self._changed
        return None if revision < first else keys[revision - first :]

    def _note(self, key: str) -> None:
        first, keys = self._changed
        keys.append(key)
        if len(keys) > 2 * REMEMBERED:
            self._changed = (first + len(keys) - REMEMBERED, keys[-REMEMBERED:])
        self.revision += 1


class Registry:
    """Tools, prompts, resources and resource templates; every mutation is one change for its listeners."""

    def __init__(self) -> None:
        self.tables: dict[Kind, Table] = {kind: Table() for kind in Kind}
        self.tools = self.tables[Kind.TOOL]
        self._portable: dict[str, str] = {}
        self._portable_of: dict[str, str] = {}
        self._waiting: Rows = {}
        """Capabilities that wait until a name becomes free."""
        self._listeners: list[Listener] = []
        self._settling: list[Callable[[], None]] = []
        self._held: list[Capability] | None = None

    def __getitem__(self, kind: Kind) -> Table:
        return self.tables[kind]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after each change, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def settle(self, arrange: Callable[[], None]) -> None:
        """Call `arrange` after each change and before it is published; what it changes is published with it."""
        self._settling.append(arrange)

    def add(self, capabilities: Iterable[Capability]) -> None:
        """Add all or nothing; two capabilities with one name are a `DefinitionError`."""
        self.replace((), capabilities)

    def remove(self, capabilities: Iterable[Capability]) -> None:
        """Remove capabilities."""
        self.replace(capabilities, ())

    def replace(self, old: Iterable[Capability], new: Iterable[Capability]) -> None:
        """Replace capabilities in one step, which listeners see as one change.

        Of two with one name, one that yields makes room for one that does not, whichever came first.
        """
        leaving: Rows = {}
        waiting: Rows = {}
        for row in old:
            (waiting if self._waiting.get(_key(row)) is row else leaving)[_key(row)] = row
        arriving = self._admitted(leaving, new)
        for key in waiting:
            del self._waiting[key]
        self._make_room(leaving, arriving)
        for key in leaving.keys() & self._waiting.keys() - arriving.keys():
            arriving[key] = self._waiting.pop(key)
        for kind, name in leaving:
            self._drop(kind, name)
        moved = [self._put(row) for row in arriving.values()]
        respelled = [row for row in moved if row is not None and not row.metadata.hidden]
        self._publish(_different(leaving, arriving) + respelled)

    def is_taken(self, kind: Kind, name: str) -> bool:
        """Whether a capability that does not give up its name has it."""
        found = self.tables[kind].get(name)
        return found is not None and found.yields is None

    def _admitted(self, leaving: Rows, new: Iterable[Capability]) -> Rows:
        arriving: Rows = {}
        for row in new:
            key = _key(row)
            other = self._staying(key, leaving)
            if key in arriving or (other is not None and (other.yields is None) == (row.yields is None)):
                noun = row.kind.value.rstrip("s").replace("_", " ")
                raise DefinitionError(f"There is a {noun} {row.id!r} already; give one of them another name.")
            arriving[key] = row
        return arriving

    def _make_room(self, leaving: Rows, arriving: Rows) -> None:
        for key, row in list(arriving.items()):
            if row.yields is not None:
                if self._staying(key, leaving) is not None:
                    del arriving[key]
                    self._step_aside(row, arriving)
                continue
            for spelled in _spellings(row):
                other = self._staying(spelled, leaving)
                if other is not None and other.yields is not None:
                    leaving[spelled] = other
                    self._step_aside(other, arriving)

    def _step_aside(self, row: Capability, arriving: Rows) -> None:
        """Offer a row elsewhere, or have it wait."""

        def is_taken(name: str) -> bool:
            return name in self.tables[row.kind] or (row.kind, name) in arriving

        assert row.yields is not None
        moved = row.yields(is_taken)
        if moved is None:
            self._waiting[_key(row)] = row
        else:
            arriving[_key(moved)] = moved

    def _staying(self, key: tuple[Kind, str], leaving: Rows) -> Capability | None:
        """What has a name and is not about to leave it."""
        return None if key in leaving else self.tables[key[0]].get(key[1])

    def _put(self, capability: Capability) -> Capability | None:
        """Add a row; gives the one that is spelled in another way from now on."""
        self.tables[capability.kind].put(capability)
        return self._publish_portable(capability.id) if capability.kind is Kind.TOOL else None

    def _drop(self, kind: Kind, key: str) -> None:
        self.tables[kind].pop(key)
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
        if self._settling:
            rows = self._settled(rows)
        if rows:
            change = Change(frozenset(row.kind for row in rows), tuple(rows))
            for listener in tuple(self._listeners):
                listener(change)

    def _settled(self, rows: list[Capability]) -> list[Capability]:
        """What changed, with what has to change because of it."""
        self._held = rows
        try:
            for arrange in self._settling:
                arrange()
        finally:
            self._held = None
        return rows

    def portable_name(self, tool: Capability) -> str:
        """The name of `tool` that every model API accepts."""
        return self._portable_of[tool.id]

    def find_tool(self, name: str) -> Capability | None:
        """The tool called `name`, canonical or portable, if there is one."""
        return self.tools.get(name) or self.tools.get(self._portable.get(name, ""))

    def tool(self, name: str) -> Capability:
        """The tool called `name`; another name is an `UnknownTool`."""
        found = self.find_tool(name)
        if found is not None:
            return found
        for prefix, noun in PREFIXES.items():
            if name.startswith(prefix) and not name.startswith(f"{prefix}:"):
                raise UnknownTool(f"Unknown {noun}: {shorten(name.removeprefix(prefix))}", name)
        raise UnknownTool(f"Unknown tool: {shorten(name)}", name)

    def prompt(self, name: str, shows: Callable[[Capability], bool] = lambda _: False) -> Capability:
        """Return the prompt called `name`; an `UnknownPrompt` suggests the nearest one for which `shows` is true."""
        found = self.tables[Kind.PROMPT].get(name)
        if found is None:
            known = {row.id: row for row in self.tables[Kind.PROMPT] if not row.metadata.hidden}
            # `shows` asks the policy, which costs too much to be done for every prompt.
            shown = (one for one in preselect(name, known) if shows(known[one]))
            hint = did_you_mean(name, shown, "; ", quote=lambda one: f'"{one}"')
            raise UnknownPrompt(f"Unknown prompt: {shorten(name)}{hint}")
        return found

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


def _key(row: Capability) -> tuple[Kind, str]:
    return row.kind, row.id


def _spellings(row: Capability) -> Iterable[tuple[Kind, str]]:
    """Every name that a row can be called by."""
    names = {row.id, to_portable(row.id)} if row.kind is Kind.TOOL else {row.id}
    return [(row.kind, name) for name in names]


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
