"""Sample values for simulations: JSON that matches a schema and makes a difference to guards and mappings.

`Interests` finds out which paths the guards of a definition read and what they compare them with. Following the output
mappings backwards, these values are sampled for the arguments, the input and the outputs of executors.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from waypost.capabilities.schemas.validators import Validator
from waypost.workflows.definitions import ENTER, Definition
from waypost.workflows.expressions import And, Compare, Literal, Node, Not, Or
from waypost.workflows.guards import CompiledGuard
from waypost.workflows.scope import Path, is_path, parse_path

Data = dict[str, Any]
Keys = tuple[str | int, ...]
Place = tuple[str, Keys]
"""A root, qualified by the transition it belongs to, and the keys below it."""

_JUNK: Final[tuple[Any, ...]] = (None, True, False, 0, 1, -1, 0.5, "", "text", [], {})
_MAX_TRIES: Final = 20
_MAX_DEPTH: Final = 6
_MAPPING_ROUNDS: Final = 4
"""How often values are propagated through mappings: the number of moves between an input and a guard."""
_FORMATS: Final = {
    "date": "2030-01-01",
    "date-time": "2030-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "ann@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}
_LETTERS: Final = "aA0_ -~z"
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "aA0_z",
    "CATEGORY_NOT_DIGIT": "aA_ -~z",
    "CATEGORY_NOT_SPACE": "aA0_-~z",
    "CATEGORY_NOT_WORD": "-~ ",
}
"""Some characters of each category."""


def own_root(root: str, state: str, move: str) -> str:
    """The name of a root; arguments and outputs have one for each move."""
    return f"{root} of {state}.{move}" if root in ("arguments", "output") else root


class Interests:
    """The values that make a difference to guards, by the path where they do."""

    def __init__(self, definition: Definition) -> None:
        self._found: dict[Place, list[Any]] = defaultdict(list)
        mappings: list[tuple[Place, Place]] = []
        for name in definition.names:
            state = definition.state(name)
            for plan in state.transitions.values():
                guards = (*plan.guards.guards, *(guard for guard, _ in plan.branches))
                self._read_guards(guards, name, plan.name)
                mappings += _mappings(plan.model.output, name, plan.name)
            if state.model.on_enter is not None:
                mappings += _mappings(state.model.on_enter.output, name, ENTER)
        self._mapped = dict.fromkeys(source for _, source in mappings)
        for _ in range(_MAPPING_ROUNDS):
            for slot, source in mappings:
                self._propagate(slot, source)

    def _read_guards(self, guards: tuple[CompiledGuard, ...], state: str, move: str) -> None:
        for guard in guards:
            for expression in guard.expressions:
                for path, values in _find_operands(expression.tree):
                    self._add((own_root(path.root, state, move), path.keys), values)

    def _propagate(self, slot: Place, source: Place) -> None:
        """Copy the interesting values of a slot to its source, and the other way round."""
        for one, other in ((slot, source), (source, slot)):
            for (root, keys), values in list(self._found.items()):
                if root == one[0] and keys[: len(one[1])] == one[1]:
                    self._add((other[0], (*other[1], *keys[len(one[1]) :])), values)

    def _add(self, place: Place, values: list[Any]) -> None:
        known = self._found[place]
        # By type and value: to Python `True == 1`.
        seen = [(type(value), value) for value in known]
        known += [value for value in values if (type(value), value) not in seen]

    def of(self, root: str) -> dict[Keys, list[Any]]:
        """The interesting values below a root; an empty list for a path that is only read."""
        found: dict[Keys, list[Any]] = {keys: [] for place, keys in self._mapped if place == root}
        return {**found, **{keys: values for (place, keys), values in self._found.items() if place == root}}

    def sample(self, root: str, random: Random) -> Any:
        """A value for a root with something at each interesting path."""
        places = self.of(root)
        built: Any = {}
        for keys in sorted(places, key=len):
            wanted = places[keys]
            if random.random() >= 0.05:
                value = random.choice(wanted if wanted and random.random() < 0.85 else _JUNK)
                built = _put(built, keys, value)
        return built

    def sample_object(self, schema: Data | None, root: str, random: Random) -> Data | None:
        """An object for a root that matches a schema; None if none was found."""
        if schema is None:
            sampled = self.sample(root, random)
            return sampled if isinstance(sampled, dict) else {}
        validator, places = Validator(schema), self.of(root)
        for _ in range(_MAX_TRIES):
            sampled = SchemaSampler(schema, random, places).value(schema, (), 0)
            if isinstance(sampled, dict) and validator.is_valid(sampled):
                return sampled
        return None


class SchemaSampler:
    """Samples values that mostly match a schema; the caller validates them."""

    def __init__(self, root: Data, random: Random, places: dict[Keys, list[Any]] | None = None) -> None:
        self._root = root
        self._random = random
        self._places = places or {}

    def value(self, schema: Any, keys: Keys, depth: int) -> Any:
        """A value for a part of the schema."""
        random = self._random
        if not isinstance(schema, dict):
            return random.choice(_JUNK)
        wanted = self._places.get(keys)
        if wanted and random.random() < 0.75:
            validator = Validator({key: part for key, part in schema.items() if key != "$ref"})
            if valid := [value for value in wanted if validator.is_valid(value)]:
                return random.choice(valid)
        schema = self._flatten(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return random.choice(schema["enum"])
        if "default" in schema and random.random() < 0.3:
            return schema["default"]
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            kind = random.choice(kind)
        return self._of_kind(kind, schema, keys, depth)

    def _flatten(self, schema: Data, depth: int) -> Data:
        """A schema merged with what it refers to and with its parts: all of `allOf`, one of `oneOf` and `anyOf`."""
        if depth > _MAX_DEPTH:
            return schema
        parts = [schema]
        if isinstance(reference := schema.get("$ref"), str):
            parts.append(self._flatten(self._resolve_reference(reference), depth + 1))
        chosen = [self._random.choice(schema[word]) for word in ("oneOf", "anyOf") if schema.get(word)]
        parts += [self._flatten(part, depth + 1) for part in chosen if isinstance(part, dict)]
        parts += [self._flatten(part, depth + 1) for part in schema.get("allOf", ()) if isinstance(part, dict)]
        return _merge_schemas(parts) if parts[1:] else schema

    def _resolve_reference(self, reference: str) -> Data:
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def _of_kind(self, kind: Any, schema: Data, keys: Keys, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, keys, depth)
            case "array":
                return self._array(schema, keys, depth)
            case "string":
                return _sample_text(schema, self._random)
            case "integer" | "number":
                return _sample_number(schema, self._random, whole=kind == "integer")
            case "boolean":
                return self._random.random() < 0.5
            case "null":
                return None
        return self._random.choice(_JUNK)

    def _object(self, schema: Data, keys: Keys, depth: int) -> Data:
        required = schema.get("required", ())
        properties = {**{name: {} for name in required}, **schema.get("properties", {})}
        return {
            name: self.value(part, (*keys, name), depth + 1)
            for name, part in properties.items()
            if name in required or (depth < _MAX_DEPTH and self._random.random() < 0.6)
        }

    def _array(self, schema: Data, keys: Keys, depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", least + 2) if depth < _MAX_DEPTH else least
        size = self._random.randint(least, max(least, min(most, least + 2)))
        return [self.value(schema.get("items", {}), (*keys, place), depth + 1) for place in range(size)]


def _sample_text(schema: Data, random: Random) -> str:
    """A text that matches the format, the pattern or the lengths of a schema."""
    known = _FORMATS.get(schema.get("format", ""))
    if known is not None:
        return known
    if "pattern" in schema:
        return sample_pattern(schema["pattern"], random)
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 1000))
    text: str = random.choice(("text", "another", "x"))
    return (text * (least // len(text) + 1))[: min(max(least, len(text)), most)]


def sample_pattern(pattern: str, random: Random | None = None) -> str:
    """A text that matches a regular expression; empty if Python cannot parse it."""
    try:
        tree = importlib.import_module("re._parser").parse(pattern)
    except (re.error, RecursionError):
        return ""
    return "".join(_sample_tokens(tree, random or Random(0)))  # noqa: S311  # nothing secret depends on it


def _sample_tokens(tree: Any, random: Random) -> Iterator[str]:
    for code, argument in tree:
        match str(code):
            case "LITERAL":
                yield chr(argument)
            case "NOT_LITERAL":
                yield "a" if argument != ord("a") else "b"
            case "ANY":
                yield "a"
            case "IN":
                yield _sample_class(argument, random)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                for _ in range(random.randint(least, min(int(most), least + 2))):
                    yield from _sample_tokens(inner, random)
            case "SUBPATTERN":
                yield from _sample_tokens(argument[-1], random)
            case "BRANCH":
                yield from _sample_tokens(random.choice(argument[1]), random)


def _sample_class(members: Any, random: Random) -> str:
    """A character of a class."""
    if str(members[0][0]) == "NEGATE":
        others = [letter for letter in _LETTERS if not any(_is_in(letter, *member) for member in members[1:])]
        return random.choice(others) if others else ""
    code, argument = random.choice(members)
    match str(code):
        case "RANGE":
            return chr(random.randint(*argument))
        case "CATEGORY":
            return _CATEGORIES.get(str(argument), "a")[0]
        case _:
            return chr(argument)


def _is_in(letter: str, code: Any, argument: Any) -> bool:
    match str(code):
        case "RANGE":
            return bool(argument[0] <= ord(letter) <= argument[1])
        case "CATEGORY":
            return letter in _CATEGORIES.get(str(argument), _LETTERS)
        case _:
            return bool(ord(letter) == argument)


def _sample_number(schema: Data, random: Random, *, whole: bool) -> float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + ("exclusiveMinimum" in schema))
    most = schema.get("maximum", schema.get("exclusiveMaximum", least + 101) - ("exclusiveMaximum" in schema))
    step = schema.get("multipleOf")
    if step:
        return step * random.randint(-(-least // step), max(-(-least // step), most // step))  # type: ignore[no-any-return]
    if whole or random.random() < 0.5:
        return random.randint(int(-(-least // 1)), int(max(least, most // 1)))
    return round(random.uniform(least, max(least, most)), 3)


def _put(holder: Any, keys: Keys, value: Any) -> Any:
    """The holder with a value at a path; what is in the way is replaced."""
    if not keys:
        return value
    key, *rest = keys
    if isinstance(key, int):
        items = list(holder) if isinstance(holder, list) else []
        items += [None] * (key + 1 - len(items))
        items[key] = _put(items[key], tuple(rest), value)
        return items
    fields = dict(holder) if isinstance(holder, dict) else {}
    fields[key] = _put(fields.get(key), tuple(rest), value)
    return fields


def _mappings(output: Data, state: str, move: str) -> Iterator[tuple[Place, Place]]:
    """The slots of the context, each with a path that it is computed from."""
    for slot, value in output.items():
        for text in _paths_in(value):
            path = parse_path(text)
            yield ("context", (slot,)), (own_root(path.root, state, move), path.keys)


def _paths_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and is_path(value):
        yield value
    elif isinstance(value, dict) and len(value) == 1 and "set" not in value:
        for operand in next(iter(value.values())) if isinstance(next(iter(value.values())), list) else ():
            yield from _paths_in(operand)


def _find_operands(node: Node) -> Iterator[tuple[Path, list[Any]]]:
    """The paths that an expression reads, with values that make a difference there."""
    match node:
        case Path():
            yield node, [True, False]
        case And(parts) | Or(parts):
            for part in parts:
                yield from _find_operands(part)
        case Not(part):
            yield from _find_operands(part)
        case Compare(op, Path() as left, Literal(value)):
            yield left, _values_around(op, value)
        case Compare(op, Literal(value), Path() as right):
            yield right, _values_around({"in": "contains", "contains": "in"}.get(op, op), value)
        case Compare(_, Path() as left, Path() as right):
            for path in (left, right):
                yield path, [1, 2, "text", "another"]


_VALUES_AROUND: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "contains": lambda value: [[value], [], value if isinstance(value, str) else [value, value]],
    "in": lambda value: [*value, "another"] if isinstance(value, list) else [value, ""],
    "starts_with": lambda value: [value, f"{value}x", "another"],
    "matches": lambda value: [sample_pattern(str(value)), f"{sample_pattern(str(value))}!", "!"],
}


def _values_around(op: str, value: Any) -> list[Any]:
    if op in _VALUES_AROUND:
        return _VALUES_AROUND[op](value)
    if isinstance(value, bool):
        return [value, not value]
    if isinstance(value, int | float):
        return [value, value - 1, value + 1]
    return [value, f"{value}~", ""] if isinstance(value, str) else [value, "another"]


def _merge_schemas(parts: list[Data]) -> Data:
    merged: Data = {}
    for part in parts:
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", ()), *part.get("required", ())]
        merged = {**merged, **part}
        if properties:
            merged["properties"] = properties
        if required:
            merged["required"] = required
    return merged
