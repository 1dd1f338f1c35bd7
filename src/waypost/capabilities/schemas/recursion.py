"""Checks values against schemas that contain themselves, each part of a value once.

Where several branches of a union contain the union again, the engine may try every combination: twice as many with
each level of the value. Here it asks about such a subschema through a keyword of ours, which remembers the answer.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from weakref import ref

from waypost.capabilities.schemas.graph import REFERENCES, Schema, SchemaGraph
from waypost.capabilities.schemas.limits import MAX_CHECKS
from waypost.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsonschema_rs

_KEYWORD: Final = "waypost:recursion"
DOCUMENT: Final = "urn:waypost:schema"
"""The URI under which the engine knows the whole schema when it checks a part."""
_NOT_APPLIED: Final = frozenset(("$schema", "$id", "id", "$defs", "definitions"))
_CALL_CHECKS: Final = 500
"""The cost of one call from the engine, including the memory for the answer."""
_MAX_DEPTH: Final = 200
"""Recursive subschemas within each other; each takes two of the 1,000 calls that Python nests."""


class TooMuchWork(ValueError):
    """A value that takes too long to check; the message says why."""


class RecursiveCheck:
    """A schema whose recursive subschemas, the `heads`, are applied to each part of a value once.

    `checks` is what one application costs at most.
    """

    def __init__(
        self, graph: SchemaGraph, heads: dict[int, Schema], checks: int, build: Callable[..., jsonschema_rs.Validator]
    ) -> None:
        import jsonschema_rs

        if not graph.is_one_resource:
            raise DefinitionError("invalid JSON Schema: it contains itself several times and embeds other `$id`s")
        self._most = MAX_CHECKS // (checks + _CALL_CHECKS)
        self._calls = threading.local()
        self._graph = graph
        self._indexes = {head: index for index, head in enumerate(heads)}
        document = self._rewrite(graph.root)
        registry = jsonschema_rs.Registry([(DOCUMENT, document)])
        shared = {"$schema": document["$schema"]} if "$schema" in document else {}
        # The engine owns the keywords, and they must not own the engine: nothing would ever free such a cycle.
        owner = ref(self)
        keywords = {_KEYWORD: lambda _parent, index, _path: _Recursion(owner, index)}
        self._root, *self._heads = [
            build({**shared, "$ref": f"{DOCUMENT}#{quote(pointer)}"}, registry=registry, keywords=keywords)
            for pointer in ("", *(graph.pointers[head] for head in heads))
        ]

    def __call__(self, value: Any) -> bool:
        """Whether a value fits; `TooMuchWork` if that takes too long to find out."""
        self._calls.answers, self._calls.depth, self._calls.is_exhausted = {}, 0, False
        try:
            is_valid = self._root.is_valid(value)
        finally:
            del self._calls.answers
        if self._calls.is_exhausted:
            raise TooMuchWork("is too large or too deeply nested to be checked: its schema contains itself")
        return is_valid

    def fits(self, index: int, value: Any) -> bool:
        """Whether a part of the current value fits a recursive subschema."""
        calls, key = self._calls, (index, id(value))
        known = calls.answers.get(key)
        if known is not None:
            is_known: bool = known[0]
            return is_known
        if len(calls.answers) >= self._most or calls.depth >= _MAX_DEPTH:
            calls.is_exhausted = True
            return False
        # A subschema that leads back to itself in place asks for nothing more.
        calls.answers[key] = True, value
        calls.depth += 1
        is_valid = self._heads[index].is_valid(value)
        calls.depth -= 1
        # The value stays alive with its answer, as its identity is the key.
        calls.answers[key] = is_valid, value
        return is_valid

    def _rewrite(self, value: Any) -> Any:
        """A copy of a schema that asks us instead of following references to recursive subschemas."""
        if isinstance(value, list | tuple):
            return [self._rewrite(one) for one in value]
        if not isinstance(value, dict):
            return value
        copy = {key: self._rewrite(part) for key, part in value.items() if key != _KEYWORD}
        if id(value) in self._graph.pointers:
            for keyword in REFERENCES:
                if isinstance(value.get(keyword), str):
                    self._replace(copy, keyword, value[keyword])
        return copy

    def _replace(self, copy: Schema, keyword: str, reference: str) -> None:
        targets = self._graph.targets({keyword: reference})
        index = next((self._indexes[id(one)] for one in targets if id(one) in self._indexes), None)
        if index is None:
            return
        if _KEYWORD in copy:
            raise DefinitionError("invalid JSON Schema: two references side by side lead back to what contains them")
        if keyword == "$ref" and self._graph.ignores_siblings:
            for other in copy.keys() - _NOT_APPLIED:
                del copy[other]
        copy.pop(keyword, None)
        copy[_KEYWORD] = index


class _Recursion:
    """The keyword that replaces a reference to a recursive subschema."""

    def __init__(self, owner: ref[RecursiveCheck], index: int) -> None:
        self._owner = owner
        self._index = index

    def validate(self, instance: Any) -> None:
        """Raise `ValueError` if the instance does not fit."""
        owner = self._owner()
        if owner is None or not owner.fits(self._index, instance):
            raise ValueError
