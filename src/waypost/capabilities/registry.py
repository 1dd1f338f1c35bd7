"""The one registry: everything an agent can reach, by kind and name, and who wants to know when it changes."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.naming import is_portable, portable, told_apart
from waypost.errors import DefinitionError, UnknownPrompt, UnknownResource, UnknownTool


class Change(msgspec.Struct, frozen=True):
    """One mutation of the registry: which lists look different now."""

    kinds: frozenset[Kind]


Listener: TypeAlias = Callable[[Change], None]

REMEMBERED: Final = 10_000
"""How many changes a table can tell one by one, at least."""
_PREFIXES: Final = (("skill:", "skill"), ("workflow:", "workflow"))


class Table:
    """The capabilities of one kind, in the order of their names."""

    def __init__(self) -> None:
        self.revision = 0
        self.scoped = 0
        self.tasked = 0
        self._rows: dict[str, Capability] = {}
        self._order: list[str] = []
        self._changed: tuple[int, list[str]] = (0, [])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Capability]:
        return (self._rows[key] for key in self._order)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def get(self, key: str) -> Capability | None:
        """The row under `key`."""
        return self._rows.get(key)

    def after(self, key: str | None) -> Iterator[Capability]:
        """The rows whose key sorts behind `key`, which itself need not exist any more."""
        start = 0 if key is None else bisect_right(self._order, key)
        return (self._rows[name] for name in self._order[start:])

    def put(self, capability: Capability) -> None:
        """Add or replace a row."""
        if capability.id in self._rows:
            self.pop(capability.id)
        insort(self._order, capability.id)
        self._rows[capability.id] = capability
        self.scoped += bool(capability.scopes)
        self.tasked += capability.task != "forbidden"
        self._note(capability.id)

    def pop(self, key: str) -> Capability | None:
        """Take a row out."""
        row = self._rows.pop(key, None)
        if row is not None:
            del self._order[bisect_left(self._order, key)]
            self.scoped -= bool(row.scopes)
            self.tasked -= row.task != "forbidden"
            self._note(key)
        return row

    def changed_since(self, revision: int) -> list[str] | None:
        """The keys of rows that came, went or were exchanged since then; `None` where that is forgotten."""
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
        self._listeners: list[Listener] = []
        self._held: set[Kind] | None = None

    def __getitem__(self, kind: Kind) -> Table:
        return self.tables[kind]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called after each change, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add(self, capabilities: Iterable[Capability]) -> None:
        """Add all or nothing; two capabilities with one name are a `DefinitionError`."""
        self.replace((), capabilities)

    def remove(self, capabilities: Iterable[Capability]) -> None:
        """Take capabilities out again."""
        self.replace(capabilities, ())

    def replace(self, old: Iterable[Capability], new: Iterable[Capability]) -> None:
        """Exchange capabilities in one step, seen from outside as one change."""
        leaving = {(capability.kind, capability.id): capability for capability in old}
        arriving = list(new)
        self._refuse_duplicates(leaving, arriving)
        for kind, key in leaving:
            self._drop(kind, key)
        for capability in arriving:
            self._put(capability)
        kinds = _different(leaving, {(capability.kind, capability.id): capability for capability in arriving})
        if kinds:
            self._publish(Change(kinds))

    def _refuse_duplicates(self, leaving: Mapping[tuple[Kind, str], Capability], arriving: list[Capability]) -> None:
        seen: set[tuple[Kind, str]] = set()
        for capability in arriving:
            key = (capability.kind, capability.id)
            if key in seen or (key not in leaving and capability.id in self.tables[capability.kind]):
                noun = capability.kind.value.rstrip("s").replace("_", " ")
                raise DefinitionError(f"There is a {noun} {capability.id!r} already; give one of them another name.")
            seen.add(key)

    def _put(self, capability: Capability) -> None:
        self.tables[capability.kind].put(capability)
        if capability.kind is Kind.TOOL:
            self._publish_portable(capability.id)

    def _drop(self, kind: Kind, key: str) -> None:
        self.tables[kind].pop(key)
        if kind is Kind.TOOL:
            self._portable.pop(self._portable_of.pop(key, key), None)

    def _publish_portable(self, name: str) -> None:
        if is_portable(name):
            # A name that is portable by itself keeps it; whoever borrowed it moves aside.
            borrower = self._portable.get(name)
            self._claim(name, name)
            if borrower is not None and borrower != name:
                self._claim(borrower, self._free(borrower))
        else:
            self._claim(name, self._free(name))

    def _claim(self, name: str, spelled: str) -> None:
        self._portable[spelled] = name
        self._portable_of[name] = spelled

    def _free(self, name: str) -> str:
        """A portable spelling of `name` that is nobody else's."""
        plain = spelled = portable(name)
        for attempt in itertools.count():
            if self._portable.get(spelled, name) == name and spelled not in self.tools:
                break
            spelled = told_apart(name, plain, attempt)
        return spelled

    @contextmanager
    def as_one_change(self) -> Iterator[None]:
        """Have everything that changes inside told as one change, when it is over."""
        if self._held is not None:
            yield
            return
        self._held = set()
        try:
            yield
        finally:
            kinds, self._held = frozenset(self._held), None
            if kinds:
                self._publish(Change(kinds))

    def _publish(self, change: Change) -> None:
        if self._held is not None:
            self._held |= change.kinds
            return
        for listener in tuple(self._listeners):
            listener(change)

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
        for prefix, noun in _PREFIXES:
            if name.startswith(prefix):
                raise UnknownTool(f"Unknown {noun}: {name.removeprefix(prefix)}")
        raise UnknownTool(f"Unknown tool: {name}")

    def prompt(self, name: str) -> Capability:
        """The prompt called `name`."""
        found = self.tables[Kind.PROMPT].get(name)
        if found is None:
            raise UnknownPrompt(f"Unknown prompt: {name}")
        return found

    def resources(self, uri: str) -> Iterator[tuple[Capability, dict[str, str]]]:
        """Whatever may answer for `uri`, the fixed resource first, then templates in the order of their names."""
        fixed = self.tables[Kind.RESOURCE].get(uri)
        if fixed is not None:
            yield fixed, {}
        for capability in sorted(self.tables[Kind.TEMPLATE], key=lambda found: found.definition.name):
            variables = capability.template.match(uri) if capability.template else None
            if variables is not None:
                yield capability, variables

    def resource(self, uri: str) -> Capability:
        """The first that may answer for `uri`."""
        for capability, _ in self.resources(uri):
            return capability
        raise UnknownResource(uri)


def _different(
    old: Mapping[tuple[Kind, str], Capability], new: Mapping[tuple[Kind, str], Capability]
) -> frozenset[Kind]:
    """The kinds whose lists look different after an exchange."""
    return frozenset(
        key[0]
        for key in {*old, *new}
        if key not in old
        or key not in new
        or old[key].definition != new[key].definition
        or old[key].hidden != new[key].hidden
    )
