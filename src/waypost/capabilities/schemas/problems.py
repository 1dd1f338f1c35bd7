"""What is wrong with a value, in short sentences that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waypost.capabilities.schemas.limits import MAX_PROBLEMS, MAX_PROBLEMS_BYTES

if TYPE_CHECKING:
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
    "minimum": lambda limit, got: f"must be at least {limit}, got {got}",
    "maximum": lambda limit, got: f"must be at most {limit}, got {got}",
    "exclusiveMinimum": lambda limit, got: f"must be greater than {limit}, got {got}",
    "exclusiveMaximum": lambda limit, got: f"must be less than {limit}, got {got}",
    "multipleOf": lambda factor, got: f"must be a multiple of {factor}, got {got}",
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
    near = [index for index, branch in enumerate(branches) if not _is_of_another_type(branch[0], path)]
    wrong_tags = {index: _wrong_tags(branches[index], path) for index in near}
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


def _is_of_another_type(first: Problem, path: Path) -> bool:
    return first.keyword == "type" and first.path == path


def _wrong_tags(branch: Sequence[Problem], path: Path) -> set[Any]:
    """The properties by which a value shows that it is of another form."""
    broken = [one for one in branch if one.keyword in ("const", "enum") and len(one.path) == len(path) + 1]
    return {one.path[-1] for one in broken}


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
