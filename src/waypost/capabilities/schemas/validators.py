"""Checks JSON values against raw JSON Schemas, within limits of time and memory and without touching the network."""

from __future__ import annotations

import json
import threading
from collections import deque
from datetime import date, datetime, time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote
from weakref import WeakValueDictionary, ref

import msgspec

from waypost.capabilities.schemas.costs import Cost, assess
from waypost.capabilities.schemas.graph import (
    FREE_CHECKS_PER_CHARACTER,
    FREE_CHECKS_PER_PLACE,
    MAX_BLAMED_BYTES,
    MAX_CHECKS,
    MAX_CHECKS_PER_PLACE,
    MAX_DEPTH,
    MAX_PATTERN_CACHE_BYTES,
    MAX_SCHEMA_BYTES,
    REFERENCES,
    Schema,
    SchemaGraph,
)
from waypost.capabilities.schemas.problems import Parts, Reasons, clipped, from_engine, listed, problem
from waypost.errors import DefinitionError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsonschema_rs


# Where several branches of a union contain the union again, the engine may try every combination: twice as many with
# each level of the value. Here it asks about such a subschema through a keyword of ours, which remembers the answer.

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
        self._calls = threading.local()  # each thread may be checking a value of its own
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


class Validator:
    """A compiled JSON Schema, 2020-12 unless its `$schema` says otherwise."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        # Compiles now: a mistake is reported where the schema is written, not at the first call.
        _ = self.check

    @classmethod
    def deferred(cls, schema: dict[str, Any]) -> Self:
        """For schemas that Waypost derived itself: compiled when first asked."""
        validator = cls.__new__(cls)
        validator.schema = schema
        return validator

    @cached_property
    def _compiled(self) -> _Compiled:
        return _compile(self.schema)

    @cached_property
    def check(self) -> Callable[[Any], bool]:
        """Whether a value fits; `ValueError` if JSON cannot express it, `TooMuchWork` if it takes too long."""
        # The engine's own function, kept as an attribute: a check costs no further call in Python.
        return self._compiled.check

    def is_valid(self, value: Any) -> bool:
        """Whether the value fits; one that JSON cannot express or that takes too long to check does not."""
        try:
            return self.check(value)
        except ValueError:
            return False

    def problems(self, value: Any) -> list[str]:
        """What is wrong, as `<path>: <message>`, in a stable order; empty when the value fits."""
        try:
            return [] if self.check(value) else self._compiled.explain(value)
        except TooMuchWork as error:
            return [str(error)]
        except ValueError as error:
            return [f"is not a JSON value: {clipped(str(error))}"]


class _Compiled:
    """What validators of the same schema share: the engine's form of it, and what it may cost."""

    def __init__(self, graph: SchemaGraph, cost: Cost, engine: Callable[[Any], bool], parts: Parts) -> None:
        self._graph = graph
        self._engine = engine
        self._parts = parts
        self._max_places = MAX_CHECKS // max(1, cost.per_place)
        self._max_characters = MAX_CHECKS // max(1, cost.per_character)
        # Each place but one takes two bytes at least, of which one is a comma or a bracket.
        self._max_bytes = min(2 * self._max_places - 1, self._max_characters)
        self._is_cheap = cost.per_place <= FREE_CHECKS_PER_PLACE and cost.per_character <= FREE_CHECKS_PER_CHARACTER

    @property
    def check(self) -> Callable[[Any], bool]:
        """Whether a value fits; `ValueError` if JSON cannot express it, `TooMuchWork` if it takes too long."""
        return self._engine if self._is_cheap else self._check_size_first

    def explain(self, value: Any) -> list[str]:
        """What is wrong with a value that does not fit."""
        return listed(one.line for one in Reasons(self._graph, self._parts).find(value))

    def _check_size_first(self, value: Any) -> bool:
        # Encoding a value takes less time than walking through it in Python, and is enough for nearly all.
        if not _is_small(value, self._max_bytes) and not _is_within(value, self._max_places, self._max_characters):
            raise TooMuchWork(
                f"is too large to be checked: this schema takes at most {self._max_places:,} values "
                f"with {self._max_characters:,} characters"
            )
        return self._engine(value)


_SHORT_BYTES: Final = 16 * 1024
MULTIPLYING: Final = (b'"$ref"', b'Ref"', b"attern", b"unevaluated")
"""Keywords of schemas whose cost may exceed their size."""
_encode = msgspec.json.Encoder().encode
_shared: WeakValueDictionary[str, _Compiled] = WeakValueDictionary()
_recent: deque[_Compiled] = deque(maxlen=32)
"""Kept for a while, as some validators are made for a single value; large ones take megabytes and are not kept."""


def check_limits(schema: dict[str, Any]) -> None:
    """Raise a `DefinitionError` that names the limit if a schema is beyond one; it need not be valid otherwise."""
    try:
        text = _encode(schema)
    except RecursionError:
        raise DefinitionError(f"invalid JSON Schema: nested deeper than {MAX_DEPTH} levels") from None
    except (TypeError, ValueError):  # whether it is JSON is not asked here
        text = b'"$ref"'
    if len(text) > MAX_SCHEMA_BYTES:
        raise DefinitionError(f"invalid JSON Schema: more than {MAX_SCHEMA_BYTES} bytes")
    # Most schemas are short and simple; what they cost exactly is measured when they are compiled.
    if len(text) > _SHORT_BYTES or any(word in text for word in MULTIPLYING):
        measure(schema)


def measure(schema: dict[str, Any]) -> tuple[SchemaGraph, Cost]:
    """The graph and the cost of a schema that is within the limits, or a `DefinitionError` that names the limit."""
    graph = SchemaGraph(schema)
    try:
        cost = assess(graph)
    except RecursionError:
        raise DefinitionError("invalid JSON Schema: its references are nested too deeply") from None
    if cost.per_place > MAX_CHECKS_PER_PLACE:
        raise DefinitionError(
            f"invalid JSON Schema: a value may need more than {MAX_CHECKS_PER_PLACE} checks, as unions and "
            "references multiply"
        )
    return graph, cost


def _compile(schema: dict[str, Any]) -> _Compiled:
    graph, cost = measure(schema)
    text = _text(schema)
    compiled = _shared.get(text)  # by text: tools of one server often take the same, and one form of it is enough
    if compiled is None:
        try:
            compiled = _shared[text] = _build(text, graph, cost)
        except RecursionError:
            raise DefinitionError("invalid JSON Schema: nested too deeply") from None
        if len(text) <= _SHORT_BYTES:
            _recent.append(compiled)
    return compiled


def _build(text: str, graph: SchemaGraph, cost: Cost) -> _Compiled:
    # Loading the engine takes 40 ms, which a hub without raw schemas need not spend.
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(dfa_size_limit=MAX_PATTERN_CACHE_BYTES)
    build = partial(
        jsonschema_rs.validator_for,
        formats=_FORMATS,
        validate_formats=True,
        pattern_options=options,
        retriever=_refuse_to_fetch,
    )
    document = json.loads(text)
    try:
        if len(text) > MAX_BLAMED_BYTES and not jsonschema_rs.meta.is_valid(document):
            raise DefinitionError("invalid JSON Schema: it does not follow the rules of its dialect")
        engine: Callable[[Any], bool] = build(document).is_valid
        if graph.unresolved is not None:
            raise DefinitionError(f"invalid JSON Schema: the reference {clipped(graph.unresolved)} is not followed")
        if cost.is_multiplying and cost.loses_annotations:
            raise DefinitionError(
                "invalid JSON Schema: it contains itself several times next to `unevaluated` keywords"
            )
        if cost.is_multiplying:
            engine = RecursiveCheck(graph, cost.heads, cost.per_head, build)
    except jsonschema_rs.ValidationError as error:
        if graph.unresolved is not None and isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
            place = clipped(graph.unresolved)
            raise DefinitionError(
                f"invalid JSON Schema: the reference {place} leads nowhere; only those within the schema are followed"
            ) from None
        raise DefinitionError(f"invalid JSON Schema: {_blame(error)}") from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise DefinitionError(f"invalid JSON Schema: {shorten(str(error))}") from None
    dialect = {key: document[key] for key in ("$schema",) if key in document}

    def build_whole(part: dict[str, Any]) -> jsonschema_rs.Validator:
        place = f"{DOCUMENT}#{quote(graph.pointers[id(part)])}"
        return build({**dialect, "$ref": place}, registry=jsonschema_rs.Registry([(DOCUMENT, document)]))

    is_plain = graph.is_one_resource and not cost.is_multiplying
    parts = Parts(lambda part: build({**dialect, **part}), build_whole if is_plain else None)
    return _Compiled(graph, cost, engine, parts)


def _text(schema: dict[str, Any]) -> str:
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DefinitionError(f"invalid JSON Schema: not expressible in JSON: {shorten(str(error))}") from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise DefinitionError(f"invalid JSON Schema: more than {MAX_SCHEMA_BYTES} bytes")
    return text


def _blame(error: jsonschema_rs.ValidationError) -> str:
    found = from_engine(error)
    if error.kind.name == "format" and error.kind.value == "regex":
        hint = "(look-around and back-references are not supported)"
        return problem(error.instance_path, f"{found[0].sentence} {hint}")
    return "; ".join(one.line for one in found) if error.instance_path else clipped(error.message)


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"the external reference {clipped(uri)} is not followed")


def _is_small(value: Any, most: int) -> bool:
    """Whether the JSON text of a value is short; a value that has none may be."""
    try:
        return len(_encode(value)) <= most
    except (TypeError, ValueError, RecursionError):
        return False


def _is_within(value: Any, places: int, characters: int) -> bool:
    """Whether a value is within limits on its parts, and on the characters in its strings and names."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        places -= 1
        if isinstance(current, str):
            characters -= len(current)
        elif isinstance(current, dict | list | tuple):
            if len(current) > places:
                return False
            if isinstance(current, dict):
                characters -= sum(len(name) for name in current if isinstance(name, str))
                waiting.extend(current.values())
            else:
                waiting.extend(current)
        if places < 0 or characters < 0:
            return False
    return True


def _parses_as(kind: type[date] | type[time]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return False
        return True

    return check


# Checked by the parser that later reads them, so that a valid date always parses; the UTC offset may be left out.
_FORMATS = {"date": _parses_as(date), "time": _parses_as(time), "date-time": _parses_as(datetime)}
