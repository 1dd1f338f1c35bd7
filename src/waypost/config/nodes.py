"""YAML with places: nodes that know their file and line, how a file is composed into them, and `${NAME}` in texts."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import yaml

from waypost.config.files import MAX_FILE_BYTES
from waypost.config.findings import Finding, KeyPath, finding, quoted
from waypost.redaction import map_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from waypost.config.files import FileState, Snapshot


_REFERENCE: Final = re.compile(
    r"""
    \$\$\{                                             # an escaped one
    | \$\{ (?: (?P<name>[A-Za-z_][A-Za-z0-9_]*)
               (?: :- (?P<default>(?:(?!\$\{)[^}])*) )?
               \} )?                                   # without this part it is malformed
    """,
    re.VERBOSE,
)


class Expansion(NamedTuple):
    """A text with its variables replaced, and what could not be replaced: `None` for a malformed one."""

    text: str
    problems: list[str | None]


def expand_text(text: str, environ: Mapping[str, str]) -> Expansion:
    """Replace the variables in a text."""
    problems: list[str | None] = []

    def substitute(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$${":
            return "${"
        given = None if name is None else environ.get(name)
        if name is not None and default is not None:
            # As in a shell, `:-` replaces an empty value too.
            return given or str(default)
        if given is None:
            problems.append(name)
        return given or ""

    return Expansion(_REFERENCE.sub(substitute, text), problems)


def expand_data(value: Any, environ: Mapping[str, str], unset: set[str]) -> Any:
    """JSON data with the variables in its texts replaced; a text with one that is not set, added to `unset`, stays."""

    def expand(written: str) -> str:
        if "${" not in written:
            return written
        text, problems = expand_text(written, environ)
        unset.update(name for name in problems if name is not None)
        return written if problems else text

    return map_texts(value, expand)


def find_variables(value: Any) -> set[str]:
    """The variables that the texts of JSON data refer to."""
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return set().union(*map(find_variables, items))
    return {found["name"] for found in _REFERENCE.finditer(value) if found["name"]} if isinstance(value, str) else set()


def escape(value: Any) -> Any:
    """JSON data whose texts stand for themselves where variables are replaced."""
    return map_texts(value, lambda text: text.replace("${", "$${"))


Scalar: TypeAlias = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_NUMBER_CHARACTERS = 400


def resolve(text: str) -> Scalar:
    """The value an unquoted scalar stands for; `on`, `12:30` and dates stay text."""
    # As in YAML 1.2. In 1.1, which PyYAML reads, `on` is true and `12:30` is the number 750.
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MAX_NUMBER_CHARACTERS:  # reading a number takes the square of its length
        return text
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text


class Unknown(Enum):
    """The value of a node that was already reported, so that nothing else is said about it."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Value: TypeAlias = "dict[str, Node] | list[Node] | Scalar | Unknown"


@dataclass(frozen=True, slots=True)
class Node:
    """A value, the line of its key, the line its text begins on, and whether its text may stand for something else.

    `spelt` is its key as the file has it, where that is not how the key is usually written. `written` is its text as
    the file has it, where variables in it were replaced.
    """

    value: Value
    file: str
    line: int
    text_line: int = 1
    plain: bool = False
    spelt: str | None = None
    written: str | None = None

    @property
    def children(self) -> list[Node]:
        """The nodes of a mapping's values, or of a list's items."""
        if isinstance(self.value, dict):
            return list(self.value.values())
        return self.value if isinstance(self.value, list) else []

    def at(self, *path: str | int) -> Node | None:
        """The node at the end of a key path, if there is one."""
        node = self
        for part in path:
            child: Node | None = None
            if isinstance(node.value, dict) and isinstance(part, str):
                child = node.value.get(part)
            elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
                child = node.value[part]
            if child is None:
                return None
            node = child
        return node

    def nearest(self, path: KeyPath) -> Node:
        """The node at the end of a key path, or the last one on the way to it."""
        node = self
        for part in path:
            child = node.at(part)
            if child is None:
                break
            node = child
        return node

    @property
    def is_implied(self) -> bool:
        """Whether the key has no value in the file and only stands for an empty section or list."""
        return self.plain and isinstance(self.value, dict | list) and not self.value

    def finding(self, path: KeyPath, message: str, code: str) -> Finding:
        """A finding about this node."""
        return finding(self.file, self.line, path, message, code)


class Refused(Exception):
    """The file cannot be used at all; carries the finding that says why."""

    def __init__(self, found: Finding) -> None:
        super().__init__(str(found))
        self.found = found


MAX_NODES = 100_000
MAX_DEPTH = 64

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}


class Composer:
    """Builds nodes from parser events, within bounds that hold for expanded aliases too."""

    max_nodes = MAX_NODES
    max_depth = MAX_DEPTH

    def __init__(self, file: str, findings: list[Finding]) -> None:
        self.file = file
        self.findings = findings
        self.count = 0
        self.anchors: dict[str, Node] = {}

    def document(self, events: Iterator[yaml.Event]) -> Node:
        root = Node(None, self.file, 1)
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a second YAML document starts here; use one file each"
                    self.findings.append(finding(self.file, _line(event), (), message, "CFG005"))
                    break
                root = self.node(next(events), events, ())
        return root

    def refusal(self, event: yaml.Event, path: KeyPath, message: str, code: str) -> Refused:
        return Refused(finding(self.file, _line(event), path, message, code))

    def node(self, event: yaml.Event, events: Iterator[yaml.Event], path: KeyPath, depth: int = 1) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path, depth)
        self.grow(event, path, 1, depth)
        if isinstance(event, yaml.ScalarEvent):
            node = self.scalar(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.untagged(event, path, "seq")
            node = Node(self.sequence(events, path, depth), self.file, _line(event))
        else:
            assert isinstance(event, yaml.MappingStartEvent)
            self.untagged(event, path, "map")
            node = Node(self.mapping(events, path, depth), self.file, _line(event))
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def grow(self, event: yaml.Event, path: KeyPath, nodes: int, depth: int) -> None:
        self.count += nodes
        if self.count > self.max_nodes:
            raise self.refusal(event, (), f"the file holds more than {self.max_nodes:,} values; split it", "CFG008")
        if depth > self.max_depth:
            raise self.refusal(event, path[:3], f"values are nested more than {self.max_depth} levels deep", "CFG008")

    def alias(self, event: yaml.AliasEvent, path: KeyPath, depth: int) -> Node:
        name = str(event.anchor)
        node = self.anchors.get(name)
        if node is None:
            message = f"the alias {quoted('*' + name)} has no anchor before it"
            self.findings.append(finding(self.file, _line(event), path, message, "CFG009"))
            return Node(UNKNOWN, self.file, _line(event))
        # An alias counts like what it stands for: ten levels of ten aliases each would be ten billion values.
        size, height = _measure(node)
        self.grow(event, path, size, depth + height - 1)
        return replace(node, line=_line(event))

    def scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> Node:
        text: str = event.value
        tag = None if event.tag in ("!", f"{_TAG}str") else event.tag
        plain = event.implicit[0] and not event.tag
        value: Scalar | Unknown = resolve(text) if plain or tag else text
        line = _line(event)
        if tag and type(value) not in _SCALAR_TAGS.get(tag, ()):
            message = f"the tag {quoted(tag)} cannot be used here; remove it"
            self.findings.append(finding(self.file, line, path, message, "CFG009"))
            value = UNKNOWN
        return Node(value, self.file, line, line + (event.style in ("|", ">")), plain)

    def untagged(self, event: yaml.Event, path: KeyPath, kind: str) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", _TAG + kind):
            message = f"the tag {quoted(str(tag))} cannot be used here; remove it"
            self.findings.append(finding(self.file, _line(event), path, message, "CFG009"))

    def sequence(self, events: Iterator[yaml.Event], path: KeyPath, depth: int) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self.node(event, events, (*path, len(items)), depth + 1))
        return items

    def mapping(self, events: Iterator[yaml.Event], path: KeyPath, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key_node = self.node(event, events, path, depth + 1)
            key = self.key(key_node, path)
            child_path = path if key is None else (*path, key)
            value = self.node(next(events), events, child_path, depth + 1)
            if key is None:
                continue
            # A parser that keeps the last one silently would drop a policy or a key that was pasted twice.
            if key in entries:
                message = f"the key is already given on line {entries[key].line}; remove one of the two"
                self.findings.append(key_node.finding(child_path, message, "CFG006"))
                continue
            entries[key] = replace(value, line=key_node.line)
        return entries

    def key(self, node: Node, path: KeyPath) -> str | None:
        if not isinstance(node.value, str):
            message = "a key here is not text; put it in quotes"
            self.findings.append(node.finding(path, message, "CFG007"))
            return None
        if node.value == "<<" and node.plain:
            message = "merge keys (`<<`) are not supported; repeat the keys, or use an alias for the whole value"
            self.findings.append(node.finding(path, message, "CFG007"))
            return None
        return node.value


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _measure(node: Node) -> tuple[int, int]:
    """How many nodes a node holds, itself included, and how deeply they are nested."""
    sizes = [_measure(child) for child in node.children]
    return 1 + sum(size for size, _ in sizes), 1 + max((height for _, height in sizes), default=0)


_DEFAULT_FILE = "waypost.yaml"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path, snapshot: Snapshot, findings: list[Finding]) -> Node | None:
    """Parse a YAML file as a snapshot holds it; None, with a finding, where it cannot be used."""
    file = str(path)
    try:
        text = _decode(snapshot.read(path), file)
        return Composer(file, findings).document(events(text, file))
    except Refused as refused:
        findings.append(refused.found)
        return None


def _decode(state: FileState, file: str) -> str:
    if state.error == errno.ENOENT:
        missing = "the file does not exist; check the path"
        if file == _DEFAULT_FILE:
            missing = f"there is no such file in {os.getcwd()}; run `waypost init`, or name another"
        raise Refused(finding(file, 1, (), missing, "CFG001"))
    if state.error:
        raise Refused(finding(file, 1, (), f"the file cannot be read: {os.strerror(state.error)}", "CFG001"))
    if not state.is_readable:
        kind = "a directory" if stat.S_ISDIR(state.mode) else "not a regular file"
        raise Refused(finding(file, 1, (), f"the path is {kind}; give the path of a YAML file", "CFG002"))
    if len(state.content) > MAX_FILE_BYTES:
        raise Refused(finding(file, 1, (), "the file is larger than 4 MiB; split it with `include`", "CFG002"))
    try:
        return state.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = state.content.count(b"\n", 0, error.start) + 1
        raise Refused(finding(file, line, (), "the file is not UTF-8 text; save it as UTF-8", "CFG003")) from None


def events(text: str, file: str) -> Iterator[yaml.Event]:
    """Yield the parser events of a YAML text; raises `Refused` where it is not valid YAML."""
    try:
        yield from yaml.parse(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise Refused(finding(file, line, (), _syntax_problem(error, text, line), "CFG004")) from None
    except yaml.reader.ReaderError as error:
        line = len(_LINE_BREAK.findall(text, 0, error.position)) + 1
        message = "the file holds a control character that YAML does not allow; remove it"
        raise Refused(finding(file, line, (), message, "CFG004")) from None


_LINE_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""What ends a line for the parser, which gives the numbers of lines."""
_KEY_AND_VALUE: Final = re.compile(r"( *)[^\s#:]+: +[^\s#|>]")
_BEGINNINGS: Final = (
    *("while scanning for the next token", "while scanning an alias", "while scanning an anchor"),
    "while scanning a block scalar",
)
"""Where the parser is after a first character with a meaning of its own: `@scope/package`, `*`, `>= 1`."""
_HINTS: Final = {
    "found unknown escape character": "; put text with backslashes in single quotes",
    "sequence entries are not allowed": "; put each `- ` on a line of its own, below the key",
}
"""What to do, by what the parser says."""


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    lines = _LINE_BREAK.split(text, line)
    content = lines[line - 1] if line <= len(lines) else ""
    indentation = content[: len(content) - len(content.lstrip())]
    if "\t" in indentation:
        return "the line is indented with a tab; use spaces"
    context = f" {error.context}" if error.context else ""
    begun = error.context_mark.line + 1 if error.context_mark else line
    if begun < line:
        context += f" that begins on line {begun}"
    mark = error.context_mark or error.problem_mark
    if error.context in _BEGINNINGS and mark is not None and mark.line + 1 == line:
        first = content[mark.column : mark.column + 1]
        if first.strip():
            return f"text that begins with `{first}` must be in quotes"
    hint = next((hint for words, hint in _HINTS.items() if words in (error.problem or "")), "")
    if "${" in content:
        hint = "; put a value with `${` in quotes here"
    if error.problem == "mapping values are not allowed in this context":
        above = next((number for number in range(line - 1, 0, -1) if lines[number - 1].strip()), 0)
        found = _KEY_AND_VALUE.match(lines[above - 1]) if above else None
        if found is not None and len(found[1]) < len(indentation):
            return f"the line is indented deeper than line {above}, which has a value already; align the two"
        hint = "; check for a missing colon on the line before, or put a value with a colon in quotes"
    return f"the YAML is not valid: {error.problem}{context}{hint}"
