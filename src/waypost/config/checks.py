"""Checking nodes against the models: unknown keys, wrong values, and what is sound in a file with mistakes."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo

from waypost.config import rules
from waypost.config.findings import listed, quoted
from waypost.config.flowgate import translated
from waypost.config.nodes import UNKNOWN, Node, escape, find_variables, resolve
from waypost.kinds import BY_MARKER, convert, name_types
from waypost.suggestions import did_you_mean, find_nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from waypost.config.findings import Finding, KeyPath


Annotation: TypeAlias = Any
"""A type as it stands in an annotation; Python has no static type for these."""


@cache
def fields(model: type[Struct]) -> tuple[FieldInfo, ...]:
    """The fields of a struct; msgspec evaluates their annotations anew each time, which was most of a load."""
    return msgspec.structs.fields(model)


def members(annotation: Annotation) -> Iterator[Annotation]:
    """The types an annotation allows, without their constraints."""
    origin = _origin(annotation)
    if origin is Annotated:
        yield from members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from members(member)
    elif annotation in BY_MARKER:
        yield from BY_MARKER[annotation].models.values()
    else:
        yield annotation


def find_model(annotation: Annotation, entries: dict[str, Node]) -> type[Struct] | None:
    """The struct a mapping is meant for; among several, the one its tag names."""
    found = [m for m in members(annotation) if isinstance(m, type) and issubclass(m, Struct)]
    if len(found) <= 1:
        return found[0] if found else None
    by_tag = {data_tag(one): one for one in found}
    tag_field = found[0].__struct_config__.tag_field
    if tag_field and tag_field in entries:
        given = snake_case(str(entries[tag_field].value))
        # A misspelt tag is reported, and what is nearest to it is checked.
        near = [given] if given in by_tag else find_nearest(given, by_tag)
        return by_tag[near[0]] if near else None
    fitting = [one for one in found if _is_meant(one, entries)] or [one for one in found if {*entries} <= _keys(one)]
    return fitting[0] if len(fitting) == 1 else None


def _is_meant(candidate: type[Struct], entries: dict[str, Node]) -> bool:
    """Whether a mapping without a tag has all keys that a struct cannot do without."""
    required = {field.encode_name for field in fields(candidate) if field.required}
    return bool(required) and required <= set(entries) and candidate.__struct_config__.tag_field not in entries


def _keys(model: type[Struct]) -> set[str]:
    """The keys that a struct has, in both of their spellings."""
    return {name for one in fields(model) for name in (one.name, one.encode_name)}


def tags_of(annotation: Annotation) -> dict[str, str]:
    """The tags that distinguish the structs of an annotation, each with its key."""
    configs = [m.__struct_config__ for m in members(annotation) if isinstance(m, type) and issubclass(m, Struct)]
    return {str(config.tag): config.tag_field for config in configs if config.tag_field}


def data_tag(model: type[Struct]) -> str:
    """The tag of a struct, as data has it."""
    return str(model.__struct_config__.tag)


def camel_case(text: str) -> str:
    """The name of a field as it is usually written in files."""
    return re.sub("_([a-z])", lambda found: found[1].upper(), text)


def snake_case(text: str) -> str:
    """The tag as it is spelled in the models."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in text)


def item_type(annotation: Annotation) -> Annotation | None:
    """The annotation of a list's items."""
    arguments = _arguments(annotation, list)
    return arguments[0] if arguments else None


def entry_types(annotation: Annotation) -> tuple[Annotation, Annotation] | None:
    """The annotations of a mapping's keys and values."""
    arguments = _arguments(annotation, dict)
    return (arguments[0], arguments[1]) if arguments else None


def empty(annotation: Annotation) -> dict[str, Node] | list[Node] | None:
    """What a key without a value stands for, where a section or list is meant."""
    if find_model(annotation, {}) is not None or entry_types(annotation) is not None:
        return {}
    return [] if item_type(annotation) is not None else None


def choices(annotation: Annotation) -> list[str]:
    """The words an annotation allows."""
    return [str(word) for m in members(annotation) if _origin(m) is Literal for word in get_args(m)]


def path_kind(annotation: Annotation) -> str | None:
    """How a text that names a file is written: the `path` its `Meta` carries."""
    return _extra(annotation, "path")


def expected_form(annotation: Annotation) -> str | None:
    """What a text with a pattern looks like, for people: the `form` its `Meta` carries."""
    return _extra(annotation, "form")


def _extra(annotation: Annotation, key: str) -> str | None:
    origin = _origin(annotation)
    if origin in (Union, UnionType):
        return next((found for m in get_args(annotation) if (found := _extra(m, key))), None)
    if origin is not Annotated:
        return None
    inner, *notes = get_args(annotation)
    carried = (note.extra[key] for note in notes if isinstance(note, Meta) and note.extra and key in note.extra)
    return next(carried, None) or _extra(inner, key)


def _arguments(annotation: Annotation, origin: type) -> tuple[Annotation, ...] | None:
    return next((get_args(m) for m in members(annotation) if _origin(m) is origin), None)


def _origin(annotation: Annotation) -> Any:
    return get_origin(annotation)


_WHERE = re.compile(r" - at `([^`]*)`$")


def recognise(node: Node, annotation: Annotation, findings: list[Finding], path: KeyPath = ()) -> Node:
    """The node with keys in their canonical spelling, unknown ones reported and dropped, and absolute file names."""
    value = node.value
    if value is None and (nothing := empty(annotation)) is not None:
        return replace(node, value=nothing)
    if isinstance(value, dict):
        if model := find_model(annotation, value):
            meant = translated(model, value, findings, path)
            return replace(node, value=_known_entries(meant, model, findings, path))
        if entry := entry_types(annotation):
            return replace(node, value={k: recognise(v, entry[1], findings, (*path, k)) for k, v in value.items()})
    if isinstance(value, list) and (item := item_type(annotation)) is not None:
        return replace(node, value=[recognise(v, item, findings, (*path, i)) for i, v in enumerate(value)])
    if isinstance(value, str) and value and (kind := path_kind(annotation)) is not None:
        return replace(node, value=_absolute(value, kind, os.path.dirname(node.file)))
    return node


def _absolute(value: str, kind: str, folder: str) -> str:
    """What names a file of some kind, relative to where it is written."""
    if kind == "toolkit":
        return rules.absolute(value, folder)
    path = os.path.abspath(os.path.join(folder, value))
    is_command_line = kind == "command" and " " in value and not os.path.exists(path)
    if is_command_line or (kind == "command" and "/" not in value):
        return value  # which is looked for on the PATH
    return value if kind == "file or url" and "://" in value else path


def _known_entries(
    entries: dict[str, Node], model: type[msgspec.Struct], findings: list[Finding], path: KeyPath
) -> dict[str, Node]:
    spellings = {
        name: field for field in fields(model) for name in (field.name, field.encode_name, camel_case(field.name))
    }
    tag_field = model.__struct_config__.tag_field
    known: dict[str, Node] = {}
    unknown: dict[str, Node] = {}
    written: dict[str, str] = {}
    for key, child in entries.items():
        field = spellings.get(key)
        if key == tag_field:
            known[key] = child
        elif field is None:
            unknown[key] = child
        elif field.encode_name in known:
            message = f"the key is also given as {quoted(written[field.encode_name])}; keep one of the two"
            findings.append(child.finding((*path, key), message, "CFG011"))
        else:
            written[field.encode_name] = key
            one = recognise(child, field.type, findings, (*path, key))
            known[field.encode_name] = one if key == field.encode_name else replace(one, spelt=key)
    for key, child in unknown.items():
        others = {_extra(f.type, "other name"): f.encode_name for f in fields(model)}
        hint, near = _find_meant(others.get(key, key), [f.encode_name for f in fields(model)])
        outdented = [
            f.encode_name for f in fields(model) if f.encode_name in known and _lacks(known[f.encode_name], f.type, key)
        ]
        if near is None and outdented:
            hint = f"indent it if it belongs to {quoted(outdented[0])}"
        elif parameters := [f.encode_name for f in fields(model) if _extra(f.type, "holds") == "parameters"]:
            hint += f"{' Put' if near else '; put'} a parameter of the type below {quoted(parameters[0])}"
        findings.append(child.finding((*path, key), f"the key {quoted(key)} is unknown; {hint}", "CFG010"))
        if near is not None and near != tag_field:
            # What is meant is checked too, so that a misspelt key hides nothing below it and is not missed.
            within: list[Finding] = []
            one = recognise(child, spellings[near].type, within, (*path, key))
            if Decoder([]).decode(one, spellings[near].type) is not UNKNOWN:  # it has the form that is expected
                findings += within
                known.setdefault(near, replace(one, spelt=key))
    return known


def _lacks(node: Node, annotation: Annotation, key: str) -> bool:
    """Whether a section is empty and could have a key."""
    model = find_model(annotation, {}) if node.is_implied else None
    return model is not None and key in _keys(model)


def _find_meant(key: str, known: list[str]) -> tuple[str, str | None]:
    """What to use instead of an unknown key, as a sentence, and the one key that is probably meant."""
    by_plain = {name.lower(): name for name in known}
    near = find_nearest(key.replace("_", "").lower(), by_plain)
    if not near:
        return f"use {listed(known)}", None
    return f"did you mean {quoted(by_plain[near[0]])}?", by_plain[near[0]]


class Decoder:
    """Turns nodes into plain data that fits the models.

    What does not fit is reported, and the least that fits takes its place, so that a mistake hides no other. `doubts`
    holds the keys, in the spelling of the models, whose values are not those of the file. With `as_written`, texts keep
    their variables wherever any text is valid; names, files and words of a fixed set are the replaced ones.
    """

    def __init__(self, findings: list[Finding], *, as_written: bool = False) -> None:
        self.findings = findings
        self.doubts: set[KeyPath] = set()
        self._as_written = as_written

    def decode(self, node: Node, annotation: Annotation, path: KeyPath = (), shown: KeyPath = ()) -> Any:
        """The node as plain data, `UNKNOWN` where it does not fit; `shown` is the path as the file spells it."""
        value = node.value
        if isinstance(value, dict):
            if model := find_model(annotation, value):
                return self._struct(node, value, model, annotation, path, shown)
            if entry := entry_types(annotation):
                return self._mapping(node, value, entry, path, shown)
            if tags := tags_of(annotation):
                return self._doubt(path, _no_tag(node, value, tags, shown, None))
        if isinstance(value, list) and (item := item_type(annotation)) is not None:
            items = [
                _or_stand_in(self.decode(child, item, (*path, index), (*shown, index)), item)
                for index, child in enumerate(value)
            ]
            return self._fit(replace(node, plain=False), [items], annotation, path, shown)
        if value is UNKNOWN:
            return self._doubt(path, None)
        candidates = [self._data(node, path)] if isinstance(value, dict | list) else [value]
        # A variable may stand for a number or a boolean where text does not fit.
        if isinstance(value, str) and node.plain:
            candidates.append(resolve(value))
        return self._restore(node, self._fit(node, candidates, annotation, path, shown), annotation)

    def _data(self, node: Node, path: KeyPath) -> Any:
        """A node for which there is no model; a variable in it that is not set leaves nothing."""
        if isinstance(node.value, dict):
            return {key: self._data(child, (*path, key)) for key, child in node.value.items()}
        if isinstance(node.value, list):
            return [self._data(child, (*path, index)) for index, child in enumerate(node.value)]
        if node.value is UNKNOWN:
            self.doubts.add(path)
            return None
        return self._restore(node, node.value, str)

    def _restore(self, node: Node, found: Any, annotation: Annotation) -> Any:
        """The text of a node as it is written, if that is wanted; what stays replaced is escaped like a literal."""
        if not self._as_written or not isinstance(found, str):
            return found
        with suppress(msgspec.ValidationError):
            # A type that fits the empty text fits every text, and so the one with variables.
            convert("", annotation)
            return escape(found) if node.written is None else node.written
        return escape(found)

    def _doubt(self, path: KeyPath, found: Finding | None) -> Any:
        self.doubts.add(path)
        if found is not None:
            self.findings.append(found)
        return UNKNOWN

    def _mapping(
        self,
        node: Node,
        entries: dict[str, Node],
        types: tuple[Annotation, Annotation],
        path: KeyPath,
        shown: KeyPath,
    ) -> dict[str, Any]:
        data = {}
        for key, child in entries.items():
            # Names are checked like values, at the line of their entry.
            name = replace(node, value=key, line=child.line, plain=False)
            value = self.decode(child, types[1], (*path, key), (*shown, key))
            if self.decode(name, types[0], (*path, key), (*shown, key)) is not UNKNOWN:
                data[key] = _or_stand_in(value, types[1])
        return data

    def _struct(
        self,
        node: Node,
        entries: dict[str, Node],
        model: type[Struct],
        annotation: Annotation,
        path: KeyPath,
        shown: KeyPath,
    ) -> Any:
        known = len(self.findings), len(self.doubts)
        tag_field = model.__struct_config__.tag_field
        given = entries.get(tag_field) if tag_field else None
        if tag_field and not (
            _is_meant(model, entries) if given is None else snake_case(str(given.value)) == data_tag(model)
        ):
            self._doubt((*path, tag_field), _no_tag(node, entries, tags_of(annotation), shown, model))
        data: dict[str, Any] = {tag_field: data_tag(model)} if tag_field else {}
        for one in fields(model):
            name = one.encode_name
            value: Any = UNKNOWN
            if name in entries:
                value = self.decode(entries[name], one.type, (*path, name), (*shown, entries[name].spelt or name))
            elif one.required:
                form = expected_form(one.type)
                hint = f"add it: {form}" if form else "add it"
                found = node.finding((*shown, name), f"the key {quoted(name)} is missing; {hint}", "CFG014")
                self._doubt((*path, name), found)
            if value is not UNKNOWN:
                data[name] = value
            elif one.required:
                data[name] = stand_in(one.type)
        # A rule about the whole is checked only where all parts are sound; its error would repeat theirs.
        if known == (len(self.findings), len(self.doubts)) and hasattr(model, "__post_init__"):
            try:
                convert(data, model)
            except msgspec.ValidationError as error:
                self._doubt(path, _misfit(node, error, model, shown))
                return stand_in(model)
        return data

    def _fit(self, node: Node, candidates: list[Any], annotation: Annotation, path: KeyPath, shown: KeyPath) -> Any:
        for candidate in candidates:
            try:
                convert(candidate, annotation)
            except msgspec.ValidationError as error:
                problem = _misfit(node, error, annotation, shown)
            else:
                if isinstance(candidate, str) and path_kind(annotation) == "command":
                    self._check_command(node, candidate, shown)
                return candidate
        return self._doubt(path, problem)

    def _check_command(self, node: Node, command: str, shown: KeyPath) -> None:
        """Report a command line where only the program is meant; programs with spaces in their names exist."""
        program, *words = command.split() or [""]
        if _SHELL.search(command):
            hint = "no shell runs it: put the line in a script, and name that"
        elif "\\" in command:
            hint = "check the path"
        else:
            hint = f"write `command: {program}` and `args: [{', '.join(words)}]`"
        if words and not os.path.exists(command) and shutil.which(command) is None:
            message = f"there is no program {quoted(command)}; {hint}"
            self.findings.append(node.finding(shown, message, "CFG076"))


_SHELL: Final = re.compile(r"(^|\s)([|;&<]|&&|\|\||\d?>>?)(\s|$)|[$]\(|`")
"""What only a shell understands."""
_STAND_INS: Final[tuple[Any, ...]] = (
    "unknown",
    "http://unknown",
    1,
    False,
    {},
    [],
    "0" * 64,
    f"sha256:{'0' * 64}",
)


def stand_in(annotation: Annotation) -> Any:
    """The least data that fits an annotation; a configuration that holds it has errors and is never used."""
    structs = [one for one in members(annotation) if isinstance(one, type) and issubclass(one, Struct)]
    for candidate in (None, *choices(annotation), *_STAND_INS):
        with suppress(msgspec.ValidationError):
            # Of a struct only null is tried here; a mapping is made below.
            if not structs or candidate is None:
                convert(candidate, annotation)
                return candidate
    if structs:
        model = min(structs, key=lambda one: (sum(f.required for f in fields(one)), len(fields(one))))
        tag_field = model.__struct_config__.tag_field
        data = {tag_field: data_tag(model)} if tag_field else {}
        return {**data, **{one.encode_name: stand_in(one.type) for one in fields(model) if one.required}}
    return [stand_in(item_type(annotation))]


def _or_stand_in(value: Any, annotation: Annotation) -> Any:
    return stand_in(annotation) if value is UNKNOWN else value


_KINDS: Final = {
    **dict.fromkeys(("stdio", "sse", "streamable-http"), "mcp"),
    **dict.fromkeys(("http", "https", "api", "request"), "rest"),
    **dict.fromkeys(("shell", "bash", "sh", "exec", "command"), "cli"),
    **dict.fromkeys(("approval", "approve", "manual"), "human"),
    "tool": "capability",
}
"""Words of other systems for kinds of connections and executors."""


def _no_tag(
    node: Node, entries: dict[str, Node], tags: dict[str, str], path: KeyPath, model: type[Struct] | None
) -> Finding:
    """What to say about a mapping that is meant for none of several models, or only nearly for `model`."""
    field = next(iter(tags.values()))
    if field not in entries:
        hint = f"write `{field}: {data_tag(model)}`" if model is not None else f"use {listed(list(tags))}"
        return node.finding((*path, field), f"the key {quoted(field)} is missing; {hint}", "CFG014")
    given = entries[field]
    word = str(given.value).lower()
    # Files of MCP clients say `http` for a server at a URL; tags with `human` are those of executors.
    meant = "mcp" if word == "http" and "url" in entries and "human" not in tags else _KINDS.get(word)
    hint = did_you_mean(meant if meant in tags else word, tags, quote=quoted) or f"use {listed(list(tags))}"
    return given.finding((*path, field), f"the {field} {quoted(str(given.value))} is unknown; {hint}", "CFG013")


def build(root: Node, data: Any, model: type[msgspec.Struct], findings: list[Finding]) -> Any:
    """The finished struct; a rule that only whole structs have is reported at the node its error names."""
    try:
        return convert(data, model)
    except msgspec.ValidationError as error:
        node = root
        path: KeyPath = ()
        where = _WHERE.search(str(error))
        # msgspec names places as in `$.toolkits[0].use`.
        for name, index in re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", where[1] if where else ""):
            part = name or int(index)
            child = node.at(part)
            if child is None:
                break
            node, path = child, (*path, part)
        findings.append(_misfit(node, error, model, path))
        return None


def _misfit(node: Node, error: msgspec.ValidationError, annotation: Annotation, path: KeyPath) -> Finding:
    sentence = _WHERE.sub("", str(error))
    words = choices(annotation)
    if sentence.startswith("Invalid enum value"):
        hint = did_you_mean(str(node.value), words, "; ", quote=quoted)
        return node.finding(path, f"expected {listed(words)}{hint}", "CFG013")
    if "matching regex" in sentence and (form := expected_form(annotation)):
        return node.finding(path, f"expected {form}", "CFG013")
    if node.value == "" and node.written is not None and (names := sorted(find_variables(node.written))):
        is_one = len(names) == 1
        sentence = f"{listed(names)} {'is' if is_one else 'are'} set but empty; give it a value, or a default: "
        return node.finding(path, sentence + quoted(f"${{{names[0]}:-...}}"), "CFG012")
    code = "CFG012" if ", got `" in sentence else "CFG013"
    sentence = name_types(sentence)
    if isinstance(node.value, str) and code == "CFG012":
        sentence += _find_intention(node.value, str(path[-1]) if path else "", sentence, annotation)
    elif "a mapping, got a list" in sentence and (name := _find_first_name(node)):
        sentence += f"; write {quoted(f'{name}: ...')} in place of {quoted(f'- name: {name}')}"
    elif sentence.startswith("Expected text, got") and isinstance(node.value, int | float):
        sentence += "; put the value in quotes"
    return node.finding(path, sentence[:1].lower() + sentence[1:], code)


def _find_first_name(node: Node) -> str | None:
    """The name of the first entry of a list, where its entries carry their names."""
    named = node.at(0, "name") if isinstance(node.value, list) else None
    return named.value if named is not None and isinstance(named.value, str) else None


_UNITS: Final = {
    "Ms": {"ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
    "Bytes": {
        **{"b": 1, "g": 2**30, "gb": 2**30},
        **dict.fromkeys(("k", "kb", "kib"), 2**10),
        **dict.fromkeys(("m", "mb", "mib"), 2**20),
    },
}
_AMOUNT: Final = re.compile(r"([0-9]+) ?([A-Za-z]+)")
_SWITCHES: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def _find_intention(text: str, key: str, sentence: str, annotation: Annotation) -> str:
    """How to write what a text seems to mean where none is expected: a switch, an amount, a mapping, a list."""
    if "true or false" in sentence and text.lower() in _SWITCHES:
        return f"; write `{_SWITCHES[text.lower()]}`"
    amount = _AMOUNT.fullmatch(text)
    units = next((units for ending, units in _UNITS.items() if key.endswith(ending)), {})
    if amount is not None and (factor := units.get(amount[2].lower())):
        return f"; write `{int(amount[1]) * factor}`"
    if "a mapping" in sentence and (name := _find_only_key(annotation, text)):
        return f"; write `{{{name}: {text}}}`"
    if "a mapping" in sentence and re.match(r"\w+:(?!//)\S", text):
        return "; put a space after each colon"
    if "a list" in sentence and (name := _find_only_key(item_type(annotation), text)):
        return f"; write `[{', '.join(f'{{{name}: {word}}}' for word in text.split())}]`"
    if "a list" in sentence and text.strip():
        return f"; write `{json.dumps(text.split(), ensure_ascii=False)}`"
    return ""


def _find_only_key(annotation: Annotation, text: str) -> str | None:
    """The key of a mapping that a text is probably the value of: `url` of an address, or the only required key.

    None where the text itself may stand.
    """
    model = find_model(annotation, {}) if text.strip() and str not in members(annotation) else None
    if model is None:
        return None
    required = [one.encode_name for one in fields(model) if one.required]
    if "://" in text:
        return "url" if "url" in _keys(model) and set(required) <= {"url"} else None
    return required[0] if len(required) == 1 and re.fullmatch(r"[\w.-]+", text) else None


_HALF_READ: Final = frozenset(
    {"CFG001", "CFG002", "CFG003", "CFG004", "CFG005", "CFG008", "CFG030", "CFG032", "CFG033"}
)
"""Findings about files whose content is not known."""
_NAMING: Final[dict[str, frozenset[str]]] = {
    "toolkits": frozenset({"toolkits", "use", "name"}),
    "skills": frozenset({"core", "dynamic"}),
    "proxy": frozenset({"expose", "name", "as", "capability", "import", "connection", "prefix", "include", "exclude"}),
    "connections": frozenset({"kind", "openapi"}),
    "workers": frozenset(),
}
"""Sections that say what can be called by a name, and the keys in them that decide it."""
_SECTIONS_OF_NAMES: Final = {
    **dict.fromkeys(("WF010", "WF011", "CFG070"), "connections"),
    **{"WF012": "capabilities", "WF014": "workflows"},
}
"""What is said about a name of a section that is not there, or is of another kind."""
_DERIVED: Final = frozenset(
    {
        *("WF008", "WF013", "WF017", "WF023", "WF044", "WF045", "WF050", "WF051", "WF052", "WF053"),
        *("WF054", "WF055", "WF056", "WF057", "WF058", "WF061", "WF062"),
    }
)
"""Findings that follow from a workflow or capability as a whole."""
_DESCRIBING: Final = frozenset({"title", "description", "aliases", "examples", "goal", "guidance", "category"})


@dataclass(frozen=True, slots=True)
class Doubts:
    """Where a configuration is not what its file means, so that findings there may only follow from other findings."""

    root: Node = field(default_factory=lambda: Node({}, "", 1))
    paths: frozenset[KeyPath] = frozenset()
    """The keys whose values were left out or replaced."""
    incomplete: frozenset[KeyPath] = frozenset()
    """The mappings in which an entry has no usable name."""
    is_half_read: bool = False
    """Whether a file, or a section under an unknown name, could not be read."""

    @classmethod
    def of(cls, root: Node, paths: Iterable[KeyPath], findings: Iterable[Finding]) -> Doubts:
        """The doubts that follow from findings, apart from the values at `paths`."""
        errors = [found for found in findings if found.severity == "error"]
        unnamed = frozenset(found.path for found in errors if found.code == "CFG007")
        # A section that was recognised by a similar name is read all the same.
        recognised = {one.spelt for one in root.value.values()} if isinstance(root.value, dict) else set()
        dropped = [found for found in errors if found.code == "CFG010" and found.path[1:] == ()]
        unread = any(found.code in _HALF_READ for found in errors) or any(
            found.path[0] not in recognised for found in dropped
        )
        return cls(root, frozenset(paths), unnamed, unread or () in unnamed)

    def cover(self, path: KeyPath) -> bool:
        """Whether the value at a path is in doubt as a whole."""
        return any(path[:length] in self.paths for length in range(len(path) + 1))

    def concern(self, section: str) -> bool:
        """Whether something in a section is in doubt."""
        return self.is_half_read or any(path[:1] == (section,) for path in (*self.paths, *self.incomplete))

    @property
    def hide_names(self) -> bool:
        """Whether something may be offered under a name that is not known."""
        return self.is_half_read or any(map(_names_something, (*self.paths, *self.incomplete)))

    def explain(self, found: Finding) -> bool:
        """Whether a finding may only follow from what is in doubt: the key itself, a key of it, or a name it uses."""
        path = found.path
        if self.cover(path) or any(len(one) == len(path) + 1 and one[:-1] == path for one in self.paths):
            return True
        if found.code == "WF003":
            return self._lack_name((*path[:2], "states"), path)
        if found.code in _SECTIONS_OF_NAMES:
            return self.is_half_read or self._lack_name((_SECTIONS_OF_NAMES[found.code],), path)
        if found.code not in _DERIVED:
            return False
        return self.is_half_read or any(
            one[:2] == path[:2] or one[:1] == ("capabilities",)
            for one in (*self.paths, *self.incomplete)
            if _last_key(one) not in _DESCRIBING
        )

    def _lack_name(self, names: KeyPath, path: KeyPath) -> bool:
        """Whether the name that stands at a path may be one of a mapping, or of another kind than it seems."""
        node = self.root.at(*path)
        entry = (*names, str(node.value).rpartition(":")[2] if node is not None else "")
        return names in self.incomplete or self.cover(entry) or (*entry, "kind") in self.paths


def _last_key(path: KeyPath) -> str:
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _names_something(path: KeyPath) -> bool:
    """Whether it depends on a key what can be called by a name."""
    keys = _NAMING.get(str(path[0])) if path else frozenset()
    is_entry = len(path) == 1 or (len(path) == 2 and path[0] == "connections")
    return keys is not None and (is_entry or _last_key(path) in keys)
