"""Edits in configuration files that people wrote: one entry is set or removed, and every other character stays.

JSON may have comments and trailing commas. The text after an edit is read again and compared with what was meant, so
that a file in an unusual form is refused and never damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import yaml

from waypost.errors import WaypostError

Path = tuple[str, ...]
_UNUSUAL: Final = "it is written in a form in which only a person can change it"


class Unreadable(WaypostError):
    """A file is not in its format, or an edit in it would change something else."""


class Format(NamedTuple):
    """How files of a format are read and edited; the functions that edit get a text that was read before."""

    name: str
    read: Callable[[str], Any]
    put: Callable[[str, Path, Any], str]
    remove: Callable[[str, Path], str]


def set_entry(text: str, form: Format, path: Path, value: Any) -> str:
    """The text with a value at the end of a key path, in place of what is there."""
    meant = _read_mapping(text, form)
    here = meant
    for key in path[:-1]:
        if here.get(key) is None:
            here[key] = {}
        here = here[key]
        if not isinstance(here, dict):
            raise Unreadable(f"{key!r} is not a mapping")
    if here.get(path[-1]) == value:
        return text  # in whatever form it is written
    here[path[-1]] = value
    return _verify(form.put(text, path, value), form, meant)


def remove_entry(text: str, form: Format, path: Path) -> str:
    """The text without the entry at the end of a key path; raises a `KeyError` if there is none."""
    meant = _read_mapping(text, form)
    here = meant
    for key in path[:-1]:
        here = here[key] or {}
    del here[path[-1]]
    return _verify(form.remove(text, path), form, meant)


def _read_mapping(text: str, form: Format) -> dict[str, Any]:
    found = form.read(text)
    if not isinstance(found, dict):
        raise Unreadable(f"its {form.name} is not a mapping")
    mapping: dict[str, Any] = _unshare(found)
    return mapping


def _unshare(value: Any) -> Any:
    """A copy in which no mapping or list stands twice, as it does behind an alias of YAML."""
    if isinstance(value, dict):
        return {key: _unshare(item) for key, item in value.items()}
    return [_unshare(item) for item in value] if isinstance(value, list) else value


def _verify(text: str, form: Format, meant: dict[str, Any]) -> str:
    try:
        found = form.read(text)
    except Unreadable:
        found = None
    # An emptied section may be left as a key without a value.
    if _without_empty(found) != _without_empty(meant):
        raise Unreadable(_UNUSUAL)
    return text


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _without_empty(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if item not in ({}, None)}


# JSON


class _Value(NamedTuple):
    """A value in a JSON text: its span, and for an object where each member begins and its value."""

    start: int
    end: int
    members: dict[str, tuple[int, _Value]] | None = None


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\]:,]|[^\s{}\[\]:,"/]+|/', re.DOTALL)
_MAX_DEPTH: Final = 200


def _strip_comments(text: str) -> str:
    """JSON without comments and without commas before a closing bracket, with the places of all else kept."""
    parts = list(text)
    comma = -1
    for found in _TOKEN.finditer(text):
        part = found[0]
        if part.startswith(("//", "/*")):
            parts[found.start() : found.end()] = re.sub(r"[^\n]", " ", part)
            continue
        if part in "]}" and comma >= 0:
            parts[comma] = " "
        comma = found.start() if part == "," else -1
    return "".join(parts)


def read_json(text: str) -> Any:
    """The data of a JSON text with comments; an empty text is an empty object."""
    plain = _strip_comments(text)
    try:
        return json.loads(plain) if plain.strip() else {}
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"it is not JSON: {error}") from None


def _locate(text: str) -> _Value:
    """Where the values of a JSON text are, which is known to be correct."""
    tokens = iter([found for found in _TOKEN.finditer(text) if not found[0].startswith(("//", "/*"))])
    return _locate_value(next(tokens), tokens, _MAX_DEPTH)


def _locate_value(first: re.Match[str], tokens: Iterator[re.Match[str]], depth: int) -> _Value:
    if first[0] not in "{[" or not depth:
        return _Value(first.start(), first.end())
    members: dict[str, tuple[int, _Value]] = {}
    for found in tokens:
        if found[0] in "}]":
            return _Value(first.start(), found.end(), members if first[0] == "{" else None)
        if found[0] == ",":
            continue
        if first[0] == "{":
            next(tokens)  # the colon
            members[json.loads(found[0])] = (found.start(), _locate_value(next(tokens), tokens, depth - 1))
        else:
            _locate_value(found, tokens, depth - 1)
    raise Unreadable("it is not JSON")


def _put_json(text: str, path: Path, value: Any) -> str:
    if not _strip_comments(text).strip():
        text = f"{text}{{}}\n"
    here, rest = _locate(text), path
    while here.members and rest and rest[0] in here.members:
        here, rest = here.members[rest[0]][1], rest[1:]
    for key in reversed(rest[1:]):
        value = {key: value}
    margin = _margin(text, here.start)
    step = found[1] if (found := re.search(r'\n([ \t]+)"', text)) else "  "
    if not rest:
        return f"{text[: here.start]}{_dump_json(value, margin, step)}{text[here.end :]}"
    member = f"{json.dumps(rest[0], ensure_ascii=False)}: "
    if not here.members:
        inside = text[here.start + 1 : here.end - 1].rstrip()
        body = f"{inside}\n{margin}{step}{member}{_dump_json(value, margin + step, step)}\n{margin}"
        return f"{text[: here.start]}{{{body}}}{text[here.end :]}"
    last_start, last = list(here.members.values())[-1]
    if "\n" not in text[here.start : last_start]:
        return f"{text[: last.end]}, {member}{json.dumps(value, ensure_ascii=False)}{text[last.end :]}"
    margin = _margin(text, last_start)
    member = f"\n{margin}{member}{_dump_json(value, margin, step)}"
    # After a comment on the line of the last member, which belongs to it, and after its comma, if it has one.
    tail = re.compile(r"(\s*,)?((?:[ \t]*/\*[^\n]*?\*/)*[ \t]*(?://[^\n]*)?)").match(text, last.end)
    comma, remark = (tail[1] or "", tail[2]) if tail else ("", "")
    after = text[last.end + len(comma) + len(remark) :]
    return f"{text[: last.end]}{comma or ','}{remark}{member}{',' if comma else ''}{after}"


def _dump_json(value: Any, margin: str, step: str) -> str:
    return json.dumps(value, indent=step, ensure_ascii=False).replace("\n", f"\n{margin}")


def _margin(text: str, place: int) -> str:
    """The white space at the beginning of a line."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _remove_json(text: str, path: Path) -> str:
    here = _locate(text)
    for key in path[:-1]:
        here = (here.members or {})[key][1]
    members = list((here.members or {}).items())
    number = [key for key, _ in members].index(path[-1])
    start, value = members[number][1]
    end = value.end
    if following := re.compile(r"\s*,[ \t]*").match(text, end):
        end = following.end()
    elif number:
        before = members[number - 1][1][1].end
        comma = next(found for found in _TOKEN.finditer(text, before) if found[0] == ",")
        text = text[: comma.start()] + text[comma.end() :]
        start, end = start - 1, end - 1
    begin = start - len(_margin(text, start)) if text[:start].rstrip(" \t").endswith("\n") else start
    if begin < start and text[end : end + 1] == "\n":
        end += 1
    opening = here.start + 1
    if len(members) == 1 and not (text[opening:begin] + text[end : here.end - 1]).strip():
        begin, end = opening, here.end - 1
    return text[:begin] + text[end:]


JSON: Final = Format("JSON", read_json, _put_json, _remove_json)


# TOML: an entry is a table with its header, as `[servers.name]`, and the tables below it


def read_toml(text: str) -> Any:
    """The data of a TOML text."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"it is not TOML: {error}") from None


def _read_header(line: str) -> Path:
    """The keys in the header of a table; none for any other line."""
    if not line.lstrip().startswith("["):
        return ()
    try:
        found, keys = tomllib.loads(line), []
    except tomllib.TOMLDecodeError:
        return ()
    while isinstance(found, dict) and found:
        [(key, found)] = found.items()
        keys.append(key)
    return tuple(keys)


def _find_tables(lines: list[str], path: Path) -> tuple[int, int]:
    """The lines from the table at a path to the end of those below it; the end of all lines if there is none."""
    headers = [(number, keys) for number, line in enumerate(lines) if (keys := _read_header(line))]
    own = [number for number, keys in headers if keys[: len(path)] == path]
    if not own:
        return len(lines), len(lines)
    end = next((number for number, _ in headers if number > own[-1]), len(lines))
    while end > own[-1] and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return own[0], end


def _put_toml(text: str, path: Path, value: Any) -> str:
    lines = text.splitlines(keepends=True)
    start, end = _find_tables(lines, path)
    header = ".".join(map(_toml_key, path))
    body = [f"[{header}]\n", *(f"{_toml_key(key)} = {_dump_toml(item)}\n" for key, item in value.items())]
    if start == len(lines):
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        body[:0] = ["\n"] if lines and lines[-1].strip() else []
        start = end = len(lines)
    return "".join([*lines[:start], *body, *lines[end:]])


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)


def _dump_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_dump_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_dump_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)  # of texts, numbers and booleans TOML has the same notation


def _remove_toml(text: str, path: Path) -> str:
    lines = text.splitlines(keepends=True)
    start, end = _find_tables(lines, path)
    while start and not lines[start - 1].strip():
        start -= 1
    return "".join([*lines[:start], *lines[end:]])


TOML: Final = Format("TOML", read_toml, _put_toml, _remove_toml)


# YAML


def read_yaml(text: str) -> Any:
    """The data of a YAML text; an empty text is an empty mapping."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise Unreadable(f"it is not YAML: {getattr(error, 'problem', None) or error}{where}") from None
    return {} if found is None else found


class _Lines:
    """The lines of a YAML text, each with its end."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        if self.lines and not self.lines[-1].endswith("\n"):
            self.lines[-1] += "\n"

    def end_of(self, node: yaml.Node, indent: int) -> int:
        """The line after the last one of a node: blank lines and comments that stand further left are not its own."""
        end = node.end_mark.line
        # A block ends before the next key, which stands further left; a value ends within its line.
        if end < len(self.lines) and self.lines[end][: node.end_mark.column].strip():
            end += 1
        while end > node.start_mark.line + 1:
            line = self.lines[end - 1]
            is_comment = line.lstrip().startswith("#") and len(line) - len(line.lstrip()) < indent
            if line.strip() and not is_comment:
                break
            end -= 1
        return end

    def insert(self, line: int, text: str, indent: int) -> str:
        """All lines, with a text that is indented."""
        margin = " " * indent
        block = [f"{margin}{part}" if part.strip() else part for part in text.splitlines(keepends=True)]
        return "".join([*self.lines[:line], *block, *self.lines[line:]])


def _pairs(node: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): (key, value) for key, value in node.value}


def _dump_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)


def _put_yaml(text: str, path: Path, value: Any) -> str:
    node = yaml.compose(text, yaml.SafeLoader)
    if not _pairs(node):
        return text + ("" if not text or text.endswith("\n") else "\n") + _dump_yaml(_nest(path, value))
    rest, owner = path, None
    while rest and rest[0] in _pairs(node):
        owner, node = _pairs(node)[rest[0]]
        rest = rest[1:]
    assert node is not None
    if not rest:
        return _put_yaml(_remove_yaml(text, path), path, value)
    missing = _nest(rest, value)
    if _pairs(node) and node.flow_style:
        place = node.end_mark.index - 1
        return f"{text[:place].rstrip()}, {json.dumps(missing, ensure_ascii=False)[1:-1]}{text[place:]}"
    lines = _Lines(text)
    if _pairs(node):
        indent = node.start_mark.column
        return lines.insert(lines.end_of(node, indent), _dump_yaml(missing), indent)
    assert owner is not None
    # The key has no value, or `{}`; a comment on its line stays there.
    number, column = node.end_mark.line, node.end_mark.column
    remark = lines.lines[number][column:].rstrip()
    lines.lines[number] = f"{lines.lines[number][: owner.end_mark.column]}:{remark}\n"
    return lines.insert(number + 1, _dump_yaml(missing), owner.start_mark.column + 2)


def _nest(path: Path, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _remove_yaml(text: str, path: Path) -> str:
    owner: yaml.Node | None = None
    node = yaml.compose(text, yaml.SafeLoader)
    for key in path[:-1]:
        owner, node = _pairs(node)[key]
    assert node is not None
    key_node, value = _pairs(node)[path[-1]]
    if node.flow_style:
        raise Unreadable(_UNUSUAL)
    lines = _Lines(text)
    del lines.lines[key_node.start_mark.line : lines.end_of(value, key_node.start_mark.column + 1)]
    if owner is not None and len(node.value) == 1:
        line, column = lines.lines[owner.end_mark.line], owner.end_mark.column + 1
        lines.lines[owner.end_mark.line] = f"{line[:column]} {{}}{line[column:]}"
    return "".join(lines.lines)


YAML: Final = Format("YAML", read_yaml, _put_yaml, _remove_yaml)


def append_items(text: str, path: Path, items: list[Any]) -> str:
    """A YAML text with more items at the end of the list at a key path, which is made if it is missing."""
    meant = _read_mapping(text, YAML)
    here: Any = meant
    for key in path:
        here = (here or {}).get(key)
    if not here:
        return set_entry(text, YAML, path, items)
    if not isinstance(here, list):
        raise Unreadable(f"{path[-1]!r} is not a list")
    node = yaml.compose(text, yaml.SafeLoader)
    for key in path:
        node = _pairs(node)[key][1]
    assert node is not None
    lines = _Lines(text)
    if node.flow_style:
        place = node.end_mark.index - 1
        changed = f"{text[:place].rstrip().rstrip(',')}, {json.dumps(items, ensure_ascii=False)[1:-1]}{text[place:]}"
    else:
        indent = node.start_mark.column
        changed = lines.insert(lines.end_of(node, indent), _dump_yaml(items), indent)
    here.extend(items)
    return _verify(changed, YAML, meant)
