"""What is wrong with a value, in short sentences that a model can act on; the search for them has a budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from time import thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waypost.capabilities.schemas.costs import own_checks
from waypost.capabilities.schemas.graph import (
    MAX_PROBLEM_SECONDS,
    MAX_PROBLEM_STEPS,
    MAX_PROBLEMS,
    MAX_PROBLEMS_BYTES,
    REFERENCES,
    Schema,
    SchemaGraph,
    measure_pattern,
)

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema_rs import ValidationError


ECHO: Final = 80
"""How many characters of a value a sentence repeats."""

MAX_SENTENCE: Final = 4 * ECHO
"""What is kept of a sentence from another library, which may repeat a whole value."""

Path = tuple[str | int, ...]

_SENTENCES: dict[str, Callable[[Any, str], str]] = {
    "type": lambda types, got: f"must be of type {' or '.join(sorted(types, key='null'.__eq__))}, got {got}",
    "enum": lambda options, got: f"must be one of {clipped(', '.join(map(shown, options[:ECHO])))}, got {got}",
    "const": lambda expected, _: f"must be {shown(expected)}",
    "minimum": lambda limit, got: f"must be at least {_bound(limit)}, got {got}",
    "maximum": lambda limit, got: f"must be at most {_bound(limit)}, got {got}",
    "exclusiveMinimum": lambda limit, got: f"must be greater than {_bound(limit)}, got {got}",
    "exclusiveMaximum": lambda limit, got: f"must be less than {_bound(limit)}, got {got}",
    "multipleOf": lambda factor, got: f"must be a multiple of {_bound(factor)}, got {got}",
    "minLength": lambda limit, _: f"must have at least {counted(limit, 'character')}",
    "maxLength": lambda limit, _: f"must have at most {counted(limit, 'character')}",
    "minItems": lambda limit, _: f"must have at least {counted(limit, 'item')}",
    "maxItems": lambda limit, _: f"must have at most {counted(limit, 'item')}",
    "minProperties": lambda limit, _: f"must have at least {counted(limit, 'property', 'properties')}",
    "maxProperties": lambda limit, _: f"must have at most {counted(limit, 'property', 'properties')}",
    "pattern": lambda pattern, got: f"must match the pattern {clipped(pattern)}, got {got}",
    "format": lambda name, got: f"must be a valid {name}, got {got}",
    "uniqueItems": lambda _, __: "must not hold an item twice",
    "contentEncoding": lambda name, _: f"must be encoded as {clipped(name)}",
    "contentMediaType": lambda name, _: f"must be of the media type {clipped(name)}",
    "contains": lambda _, __: "must contain a fitting item",
    "not": lambda _, __: "has a form that is not allowed",
    "falseSchema": lambda _, __: "is not allowed",
}


class Problem(NamedTuple):
    """One thing that is wrong: where, what, and which keyword says so."""

    path: Path
    sentence: str
    keyword: str = ""
    expected: Any = None

    @property
    def line(self) -> str:
        """Where, and what."""
        return problem(self.path, self.sentence)


def counted(count: float, singular: str, plural: str | None = None) -> str:
    """`1 item`, `2 items`."""
    return f"{int(count)} {singular if count == 1 else plural or singular + 's'}"


def _bound(limit: float) -> str:
    """A limit as people write it; a whole number has no fraction, whatever a schema's type for it."""
    return str(int(limit) if isinstance(limit, float) and limit.is_integer() else limit)


def clipped(text: str) -> str:
    """The text, cut where it would drown the message."""
    return text if len(text) <= ECHO else text[: ECHO - 3] + "..."


def shown(value: Any) -> str:
    """A value as JSON text of limited length; large containers are only named."""
    if isinstance(value, dict) and len(value) > ECHO:
        return f"an object of {counted(len(value), 'property', 'properties')}"
    if isinstance(value, list) and len(value) > ECHO:
        return f"an array of {counted(len(value), 'item')}"
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > ECHO:
            break
    return clipped(text)


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield json.dumps(value[:ECHO], ensure_ascii=False)
    elif isinstance(value, dict):
        for number, (key, part) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{json.dumps(str(key)[:ECHO], ensure_ascii=False)}: "
            yield from _pieces(part)
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield ", " if number else "["
            yield from _pieces(part)
        yield "]" if value else "[]"
    else:
        yield json.dumps(value, ensure_ascii=False, default=str)


def location(path: Sequence[str | int | None]) -> str:
    """A path as people write it: `address.street`, `rows[0].id`, `headers["x.y"]`; None is any item, `rows[].id`."""
    written = ""
    for part in path:
        if part is None or isinstance(part, int):
            written += f"[{'' if part is None else part}]"
        elif part.replace("_", "a").replace("-", "a").replace("$", "a").isalnum():
            written += f".{clipped(part)}"
        else:
            written += f"[{shown(part)}]"
    return written.removeprefix(".")


def problem(path: Sequence[str | int], text: str) -> str:
    """One line: where, and what."""
    return f"{location(path)}: {text}" if path else text


def listed(lines: Iterable[str], more: int = 0) -> list[str]:
    """Different lines in order, as many as a caller should read; `more` are known of but not given."""
    different = list(dict.fromkeys(lines))
    kept: list[str] = []
    room = MAX_PROBLEMS_BYTES
    for line in different[:MAX_PROBLEMS]:
        room -= len(line)
        if kept and room < 0:
            break
        kept.append(line)
    more += len(different) - len(kept)
    return [*kept, f"and {more} more problems"] if more else kept


def describe(path: Path, keyword: str, expected: Any, value: Any) -> Problem:
    """What one broken keyword asks for."""
    write = _SENTENCES.get(keyword)
    sentence = f"does not fit `{keyword}`" if write is None else write(expected, shown(value))
    return Problem(path, sentence, keyword, expected)


def choose(
    path: Path, branches: Sequence[Sequence[Problem]], value: Any, tags: Sequence[Collection[str]] = ()
) -> list[Problem]:
    """What is wrong with a value that fits no branch of a union or too many: what the branch says that was meant.

    `tags` are the properties of each branch that have one value only there, such as `{"kind": {"const": "circle"}}`.
    """
    if not all(branches):
        return [Problem(path, "fits more than one of the allowed forms")]
    # A branch whose first problem is the type of the value itself is not the one that was meant.
    firsts = [(branch[0].keyword, branch[0].path) for branch in branches]
    near = [index for index, first in enumerate(firsts) if first != ("type", path)]
    # The properties by which a value shows that it is of another form.
    depth = len(path) + 1
    wrong_tags = {
        index: {one.path[-1] for one in branches[index] if one.keyword in ("const", "enum") and len(one.path) == depth}
        for index in near
    }
    tagged = [index for index in near if not wrong_tags[index]]
    is_clear = (
        len(tagged) == 1
        and bool(tags)
        and all(wrong_tags[one] & set(tags[tagged[0]]) for one in near if one not in tagged)
    )
    if len(near) == 1 or is_clear:
        return list(branches[tagged[0] if is_clear else near[0]])
    if near:
        return [Problem(path, f"fits none of the allowed forms, got {shown(value)}")]
    types = dict.fromkeys(name for branch in branches for name in branch[0].expected)
    return [Problem(path, _SENTENCES["type"](types, shown(value)))]


def from_engine(error: ValidationError) -> list[Problem]:
    """The problems in an error of the engine."""
    keyword, path, expected = error.kind.name, tuple(error.instance_path), error.kind.value
    if keyword == "required":
        return [Problem((*path, expected), "is required")]
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        return [Problem((*path, name), "is not allowed") for name in expected]
    if keyword in ("anyOf", "oneOf"):
        branches = [[one for inner in branch for one in from_engine(inner)] for branch in expected]
        return choose(path, branches, error.instance)
    if keyword not in _SENTENCES:
        return [Problem(path, clipped(error.message))]
    return [describe(path, keyword, expected, error.instance)]


_LEAVES: Final = (
    "type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "pattern", "format", "contentEncoding", "contentMediaType", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties",
)  # fmt: skip
_CHECKS_PER_STEP: Final = 1_000
"""Keeps all steps together within the available processor time."""
_MANY: Final = 16
"""Above this number of items the engine skips the valid ones."""
_MAX_WHOLES: Final = 8
_LOOKS_AT_CLOCK: Final = 64
_UNEXPLAINED: Final = "does not fit its schema"


class _OutOfSteps(Exception):
    pass


class _Leaf(NamedTuple):
    is_valid: Callable[[Any], bool]
    steps: int
    per_character: int


class Parts:
    """Parts of a schema that the engine is asked about, compiled when they are first needed."""

    def __init__(
        self,
        build: Callable[[Schema], jsonschema_rs.Validator],
        build_whole: Callable[[Schema], jsonschema_rs.Validator] | None,
    ) -> None:
        self._build = build
        self._build_whole = build_whole
        # By the identity of subschemas, which the graph of the schema keeps alive.
        self._known: dict[tuple[int, str], _Leaf] = {}
        self._patterns: dict[str, Schema] = {}
        self._wholes: dict[int, Callable[[Any], bool]] = {}

    def whole(self, schema: Any) -> Callable[[Any], bool] | None:
        """Whether a value fits a subschema with all its keywords, if the engine can be asked that cheaply."""
        if self._build_whole is None or not isinstance(schema, dict):
            return None
        if id(schema) not in self._wholes and len(self._wholes) < _MAX_WHOLES:
            self._wholes[id(schema)] = self._build_whole(schema).is_valid
        return self._wholes.get(id(schema))

    def pattern(self, pattern: str) -> _Leaf:
        """A pattern that names are held to."""
        return self.get(self._patterns.setdefault(pattern, {"pattern": pattern}))

    def get(self, schema: Schema, keyword: str = "") -> _Leaf:
        """One keyword of a subschema; all of them without a name."""
        known = self._known.get((id(schema), keyword))
        if known is not None:
            return known
        names = (keyword,) if keyword else _LEAVES
        part = {name: schema[name] for name in names if name in schema}
        for name in ("minimum", "maximum"):  # flags of their neighbours in draft 4
            flag = f"exclusive{name.title()}"
            if schema.get(flag) is True and name in part:
                part[flag] = True
        checks = measure_pattern(part["pattern"]).checks if "pattern" in part else 0
        leaf = _Leaf(self._build(part).is_valid, 1 + own_checks(part) // _CHECKS_PER_STEP, checks)
        self._known[id(schema), keyword] = leaf
        return leaf


class _Place:
    """A place in a value, the same object whichever way leads to it."""

    __slots__ = ("_inner", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inner: dict[str | int, _Place] = {}

    def inner(self, key: str | int) -> _Place:
        """The place of a member or an item."""
        found = self._inner.get(key)
        if found is None:
            found = self._inner[key] = _Place((*self.path, key))
        return found


class Reasons:
    """The walk through one value."""

    def __init__(self, graph: SchemaGraph, parts: Parts) -> None:
        self.steps = 0
        self._looks = 0
        self._deadline = thread_time() + MAX_PROBLEM_SECONDS
        self._graph = graph
        self._parts = parts
        self._known: dict[tuple[int, int], list[Problem]] = {}
        self._first: Problem | None = None
        self._tentative = 0
        """How many unions and conditions the walk is in, where a problem need not be one of the value."""

    def find(self, value: Any) -> list[Problem]:
        """At least one problem of a value that does not fit; only the first if the steps do not suffice for all."""
        try:
            return self._list(self._graph.root, value, _Place(())) or [Problem((), _UNEXPLAINED)]
        except (_OutOfSteps, RecursionError):
            return [self._first or Problem((), f"{_UNEXPLAINED}, and is too large to say where")]

    def _spend(self, steps: int = 1) -> None:
        self.steps += steps
        self._looks += 1
        # A step may be an expensive one, so that counting alone does not bound the time; asking the clock costs too.
        is_late = self._looks % _LOOKS_AT_CLOCK == 0 and thread_time() > self._deadline
        if self.steps > MAX_PROBLEM_STEPS or is_late:
            raise _OutOfSteps

    def _list(self, schema: Any, value: Any, at: _Place) -> list[Problem]:
        """The problems with a subschema, sought once for each place; none while they are sought."""
        self._spend()
        schema = self._follow_alone(schema)
        key = (id(schema), id(at))
        known = self._known.get(key)
        if known is not None:
            return known
        self._known[key] = []  # a schema that leads back to itself at the same place asks for nothing more
        found: list[Problem] = []
        for one in self._walk(schema, value, at):
            self._spend()
            found.append(one)
            if self._first is None and not self._tentative:
                self._first = one
        self._known[key] = found
        return found

    def _follow_alone(self, schema: Any) -> Any:
        """What a schema refers to that says nothing else."""
        while isinstance(schema, dict) and len(schema) == 1 and len(targets := self._graph.targets(schema)) == 1:
            self._spend()
            schema = targets[0]
        return schema

    def _try(self, schema: Any, value: Any, at: _Place) -> list[Problem]:
        """The problems with a subschema that a value need not fit."""
        self._tentative += 1
        found = self._list(schema, value, at)
        self._tentative -= 1
        return found

    def _walk(self, schema: Any, value: Any, at: _Place) -> Iterator[Problem]:
        if schema is False:
            yield describe(at.path, "falseSchema", None, value)
        if not isinstance(schema, dict):
            return
        if "$ref" in schema and self._graph.ignores_siblings:
            yield from self._follow(None, schema, value, at)
            return
        # All keywords together first: most subschemas fit, and one question to the engine shows it.
        if any(keyword in schema for keyword in _LEAVES) and not self._fits(self._parts.get(schema), value):
            yield from self._broken(schema, value, at)
        for keyword, look in _LOOKS.items():
            if keyword in schema:
                yield from look(self, schema[keyword], schema, value, at)

    def _fits(self, leaf: _Leaf, value: Any) -> bool:
        characters = len(value) * leaf.per_character if isinstance(value, str) else 0
        self._spend(leaf.steps + characters // _CHECKS_PER_STEP)
        try:
            return leaf.is_valid(value)
        except ValueError:  # JSON cannot express it
            return False

    def _broken(self, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        for keyword in _LEAVES:
            expected = schema.get(keyword)
            is_flag = isinstance(expected, bool) and keyword.startswith("exclusive")
            if keyword in schema and not is_flag and not self._fits(self._parts.get(schema, keyword), value):
                flag = f"exclusive{keyword.title()}"
                wanted = [expected] if keyword == "type" and isinstance(expected, str) else expected
                yield describe(at.path, flag if schema.get(flag) is True else keyword, wanted, value)

    def _follow(self, _: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        for target in self._graph.targets(schema):
            yield from self._list(target, value, at)

    def _all_of(self, parts: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        for part in parts:
            yield from self._list(part, value, at)

    def _any_of(self, parts: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        branches = [self._try(part, value, at) for part in parts]
        if all(branches):
            yield from choose(at.path, branches, value, [self._tags(part) for part in parts])

    def _one_of(self, parts: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        branches = [self._try(part, value, at) for part in parts]
        if sum(not branch for branch in branches) != 1:
            yield from choose(at.path, branches, value, [self._tags(part) for part in parts])

    def _tags(self, branch: Any) -> list[str]:
        """The properties of a branch that have one value only."""
        branch = self._follow_alone(branch)
        properties = branch.get("properties", {}) if isinstance(branch, dict) else {}
        self._spend(len(properties) // _MANY)
        return [name for name, part in properties.items() if isinstance(part, dict) and _is_constant(part)]

    def _not(self, part: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if not self._try(part, value, at):
            yield describe(at.path, "not", None, value)

    def _if(self, condition: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        outcome = "else" if self._try(condition, value, at) else "then"
        if outcome in schema:
            yield from self._list(schema[outcome], value, at)

    def _required(self, names: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if isinstance(value, dict) and isinstance(names, list | tuple):
            for name in names:
                self._spend()
                if name not in value:
                    yield Problem(at.inner(name).path, "is required")

    def _dependent(self, needs: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        for name, need in needs.items() if isinstance(value, dict) else ():
            self._spend()
            if name in value:
                is_list = isinstance(need, list | tuple)
                yield from self._required(need, schema, value, at) if is_list else self._list(need, value, at)

    def _properties(self, parts: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if isinstance(value, dict):
            self._spend(len(value) // _MANY)
            for name in [name for name in value if name in parts]:
                yield from self._list(parts[name], value[name], at.inner(name))

    def _pattern_properties(self, parts: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        for name in value if isinstance(value, dict) else ():
            for pattern, part in parts.items():
                if self._fits(self._parts.pattern(pattern), name):
                    yield from self._list(part, value[name], at.inner(name))

    def _additional_properties(self, part: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if isinstance(value, dict):
            surplus = [name for name in value if not self._is_named(schema, name)]
            yield from self._each(part, value, surplus, at)

    def _is_named(self, schema: Schema, name: str) -> bool:
        self._spend()
        patterns = schema.get("patternProperties", ())
        return name in schema.get("properties", ()) or any(
            self._fits(self._parts.pattern(pattern), name) for pattern in patterns
        )

    def _property_names(self, part: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        for name in value if isinstance(value, dict) else ():
            # A place of its own: answers are remembered by place, and `at.inner(name)` is that of the value.
            for one in self._try(part, name, at.inner(name).inner("")):
                yield Problem(at.path, f"has a property name that does not fit: {one.sentence}")

    def _items(self, part: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if not isinstance(value, list | tuple):
            return
        if isinstance(part, list | tuple):
            yield from self._prefix_items(part, schema, value, at)
            return
        yield from self._each(part, value, range(len(schema.get("prefixItems", ())), len(value)), at)

    def _each(self, part: Any, value: Any, keys: Sequence[Any], at: _Place) -> Iterator[Problem]:
        """The problems with those of many members or items that do not fit."""
        fits = self._parts.whole(part) if len(keys) > _MANY else None
        for key in keys:
            if fits is not None:
                # No step, but a look at the clock: the engine skips valid items quickly.
                self._spend(0)
                try:
                    if fits(value[key]):
                        continue
                except ValueError:  # JSON cannot express it
                    pass
            yield from self._list(part, value[key], at.inner(key))

    def _prefix_items(self, parts: Any, _: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if isinstance(value, list | tuple):
            for index, (part, item) in enumerate(zip(parts, value, strict=False)):
                yield from self._list(part, item, at.inner(index))

    def _additional_items(self, part: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        first = schema.get("items")
        if isinstance(value, list | tuple) and isinstance(first, list | tuple):
            for index in range(len(first), len(value)):
                yield from self._list(part, value[index], at.inner(index))

    def _contains(self, part: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if isinstance(value, list | tuple):
            count = len(self._contained(part, value, at))
            if count < schema.get("minContains", 1):
                yield describe(at.path, "contains", None, value)
            elif count > schema.get("maxContains", count):
                yield Problem(at.path, "contains too many fitting items")

    def _contained(self, part: Any, value: Any, at: _Place) -> set[int]:
        return {index for index, item in enumerate(value) if not self._try(part, item, at.inner(index))}

    def _unevaluated_properties(self, part: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if isinstance(value, dict):
            seen = self._seen(schema, value, at, is_asking=True)
            yield from self._each(part, value, [name for name in value if name not in seen], at)

    def _unevaluated_items(self, part: Any, schema: Schema, value: Any, at: _Place) -> Iterator[Problem]:
        if isinstance(value, list | tuple):
            seen = self._seen(schema, value, at, is_asking=True)
            yield from self._each(part, value, [index for index in range(len(value)) if index not in seen], at)

    def _seen(self, schema: Any, value: Any, at: _Place, *, is_asking: bool = False) -> set[Any]:
        """The names or indexes that a schema applies its keywords to, except the keyword that asks."""
        self._spend()
        if not isinstance(schema, dict):
            return set()
        if isinstance(value, dict):
            is_all = "additionalProperties" in schema or ("unevaluatedProperties" in schema and not is_asking)
            seen = set(value) if is_all else {name for name in value if self._is_named(schema, name)}
        else:
            is_all = isinstance(schema.get("items"), dict | bool) or "additionalItems" in schema
            is_all = is_all or ("unevaluatedItems" in schema and not is_asking)
            first = schema.get("prefixItems") or schema.get("items", ())
            seen = set(range(len(value) if is_all else len(first)))
            seen |= self._contained(schema["contains"], value, at) if "contains" in schema else set()
        for part in self._parts_in_place(schema, value, at):
            if not self._try(part, value, at):
                seen |= self._seen(part, value, at)
        return seen

    def _parts_in_place(self, schema: Schema, value: Any, at: _Place) -> Iterator[Any]:
        yield from self._graph.targets(schema)
        for keyword in ("allOf", "anyOf", "oneOf"):
            yield from schema.get(keyword, ())
        if "if" in schema:
            yield schema["if"]
            yield schema.get("else" if self._try(schema["if"], value, at) else "then", True)
        dependent = schema.get("dependentSchemas", {}) if isinstance(value, dict) else {}
        yield from (part for name, part in dependent.items() if name in value)


def _is_constant(part: Schema) -> bool:
    return "const" in part or (isinstance(part.get("enum"), list) and len(part["enum"]) == 1)


# In the order in which the engine looks, cheap and near keywords first.
_LOOKS: Final[dict[str, Callable[[Reasons, Any, Schema, Any, _Place], Iterator[Problem]]]] = {
    "required": Reasons._required,
    "dependentRequired": Reasons._dependent,
    "properties": Reasons._properties,
    "patternProperties": Reasons._pattern_properties,
    "additionalProperties": Reasons._additional_properties,
    "propertyNames": Reasons._property_names,
    "items": Reasons._items,
    "prefixItems": Reasons._prefix_items,
    "additionalItems": Reasons._additional_items,
    "contains": Reasons._contains,
    "dependentSchemas": Reasons._dependent,
    "dependencies": Reasons._dependent,
    "allOf": Reasons._all_of,
    "anyOf": Reasons._any_of,
    "oneOf": Reasons._one_of,
    "not": Reasons._not,
    "if": Reasons._if,
    **dict.fromkeys(REFERENCES, Reasons._follow),
    "unevaluatedProperties": Reasons._unevaluated_properties,
    "unevaluatedItems": Reasons._unevaluated_items,
}
