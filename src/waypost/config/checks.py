"""Checking nodes against the models: unknown keys, wrong values, and what is sound in a file with mistakes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from waypost.config import rules
from waypost.config.findings import dotted, listed, quoted
from waypost.config.flowgate import translated
from waypost.config.nodes import UNKNOWN, Node, resolve
from waypost.kinds import BY_MARKER, convert
from waypost.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from waypost.config.findings import Finding, KeyPath


Annotation: TypeAlias = Any
"""A type as it stands in an annotation; Python has no static type for these."""


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
    for candidate in found:
        config = candidate.__struct_config__
        tag = entries.get(config.tag_field) if config.tag_field else None
        if tag is not None and isinstance(tag.value, str) and snake_case(tag.value) == config.tag:
            return candidate
    fitting = [candidate for candidate in found if _is_meant(candidate, entries)]
    return fitting[0] if len(fitting) == 1 else None


def _is_meant(candidate: type[Struct], entries: dict[str, Node]) -> bool:
    """Whether a mapping without a tag has all keys that a struct cannot do without."""
    required = {field.encode_name for field in fields(candidate) if field.required}
    return bool(required) and required <= set(entries) and candidate.__struct_config__.tag_field not in entries


def tags_of(annotation: Annotation) -> dict[str, str]:
    """The tags that distinguish the structs of an annotation, each with its key."""
    configs = [m.__struct_config__ for m in members(annotation) if isinstance(m, type) and issubclass(m, Struct)]
    return {str(config.tag): config.tag_field for config in configs if config.tag_field}


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


_WORDS = {
    "str": "text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "object": "a mapping",
    "array": "a list",
}
_TYPES = re.compile(r"`([a-z| ]+)`")
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
    if kind == "command" and "/" not in value:
        return value  # which is looked for on the PATH
    return value if kind == "file or url" and "://" in value else os.path.join(os.path.abspath(folder), value)


def _known_entries(
    entries: dict[str, Node], model: type[msgspec.Struct], findings: list[Finding], path: KeyPath
) -> dict[str, Node]:
    fields = msgspec.structs.fields(model)
    spellings = {name: field for field in fields for name in (field.name, field.encode_name, _camel(field.name))}
    tag_field = model.__struct_config__.tag_field
    known: dict[str, Node] = {}
    written: dict[str, str] = {}
    for key, child in entries.items():
        field = spellings.get(key)
        if key == tag_field:
            known[key] = child
        elif field is None:
            message = _unknown_key(key, [f.encode_name for f in fields])
            findings.append(child.finding((*path, key), message, "CFG010"))
        elif field.encode_name in known:
            message = f"the key is also given as {quoted(written[field.encode_name])}; keep one of the two"
            findings.append(child.finding((*path, key), message, "CFG011"))
        else:
            written[field.encode_name] = key
            one = recognise(child, field.type, findings, (*path, key))
            known[field.encode_name] = one if key == field.encode_name else replace(one, spelt=key)
    return known


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _unknown_key(key: str, known: list[str]) -> str:
    by_plain = {name.lower(): name for name in known}
    meant = key.replace("_", "").lower()
    hint = did_you_mean(meant, by_plain, quote=lambda plain: quoted(by_plain[plain])) or f"use {listed(known)}"
    return f"the key {quoted(key)} is unknown; {hint}"


def plain(node: Node, annotation: Annotation, findings: list[Finding], path: KeyPath = ()) -> Any:
    """The node as plain data that fits the annotation; whatever does not fit is reported."""
    value = node.value
    if isinstance(value, dict):
        if model := find_model(annotation, value):
            return _plain_struct(node, value, model, findings, path)
        if entry := entry_types(annotation):
            for key in value:
                _fit(replace(node, value=key, line=value[key].line, plain=False), entry[0], findings, (*path, key))
            return {k: plain(v, entry[1], findings, (*path, k)) for k, v in value.items()}
        if tags := tags_of(annotation):
            findings.append(_no_tag(node, value, tags, path))
            return None
    if isinstance(value, list) and (item := item_type(annotation)) is not None:
        return [plain(v, item, findings, (*path, i)) for i, v in enumerate(value)]
    return _fit(node, annotation, findings, path)


def _no_tag(node: Node, entries: dict[str, Node], tags: dict[str, str], path: KeyPath) -> Finding:
    """What to say about a mapping that is meant for none of several models."""
    field = next(iter(tags.values()))
    if field not in entries:
        return node.finding((*path, field), f"the key {quoted(field)} is missing; add it", "CFG014")
    given = entries[field]
    hint = did_you_mean(str(given.value), tags, quote=quoted) or f"use {listed(list(tags))}"
    return given.finding((*path, field), f"the {field} {quoted(str(given.value))} is unknown; {hint}", "CFG013")


def _plain_struct(
    node: Node, entries: dict[str, Node], model: type[msgspec.Struct], findings: list[Finding], path: KeyPath
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    known = len(findings)
    tag_field = model.__struct_config__.tag_field
    if tag_field:
        data[tag_field] = model.__struct_config__.tag
    for one in msgspec.structs.fields(model):
        name = one.encode_name
        if name in entries:
            spelt = entries[name].spelt or name
            data[name] = plain(entries[name], one.type, findings, (*path, spelt))
        elif one.required:
            findings.append(node.finding((*path, name), f"the key {quoted(name)} is missing; add it", "CFG014"))
    if known == len(findings) and hasattr(model, "__post_init__"):
        try:
            convert(data, model)
        except msgspec.ValidationError as error:
            findings.append(_misfit(node, error, model, path))
    return data


def _fit(node: Node, annotation: Annotation, findings: list[Finding], path: KeyPath) -> Any:
    if node.value is UNKNOWN:
        return None
    value = _unwrapped(node)
    candidates = [value]
    # A variable may stand for a number or a boolean where text does not fit.
    if isinstance(value, str) and node.plain:
        candidates.append(resolve(value))
    for candidate in candidates:
        try:
            convert(candidate, annotation)
            return candidate
        except msgspec.ValidationError as error:
            problem = _misfit(node, error, annotation, path)
    findings.append(problem)
    return None


def build(root: Node, data: Any, model: type[msgspec.Struct], findings: list[Finding]) -> Any:
    """The finished struct; a rule that only whole structs have is reported at the node its error names."""
    try:
        return convert(data, model)
    except msgspec.ValidationError as error:
        node = root
        path: KeyPath = ()
        for part in _path_of(error):
            child = node.at(part)
            if child is None:
                break
            node, path = child, (*path, part)
        findings.append(_misfit(node, error, model, path))
        return None


def _path_of(error: msgspec.ValidationError) -> Iterable[str | int]:
    where = _WHERE.search(str(error))
    for name, index in re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", where[1] if where else ""):
        yield name or int(index)


def _misfit(node: Node, error: msgspec.ValidationError, annotation: Annotation, path: KeyPath) -> Finding:
    sentence = _WHERE.sub("", str(error))
    words = choices(annotation)
    if sentence.startswith("Invalid enum value"):
        hint = did_you_mean(str(node.value), words, "; ", quote=quoted)
        return node.finding(path, f"expected {listed(words)}{hint}", "CFG013")
    if "matching regex" in sentence and (form := expected_form(annotation)):
        return node.finding(path, f"expected {form}", "CFG013")
    code = "CFG012" if ", got `" in sentence else "CFG013"
    sentence = _TYPES.sub(_in_words, sentence)
    if sentence.startswith("Expected text, got") and isinstance(node.value, int | float):
        sentence += "; put the value in quotes"
    return node.finding(path, sentence[:1].lower() + sentence[1:], code)


def _in_words(match: re.Match[str]) -> str:
    return " or ".join(_WORDS.get(name, name) for name in match[1].split(" | "))


def _unwrapped(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: _unwrapped(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [_unwrapped(child) for child in node.value]
    return None if node.value is UNKNOWN else node.value


_BY_NAME: Final = ("prompts", "connections", "capabilities", "workflows")
_BY_PLACE: Final = ("toolkits", "policies")
_HALF_READ: Final = frozenset(
    {"CFG001", "CFG002", "CFG003", "CFG004", "CFG005", "CFG007", "CFG008", "CFG009", "CFG030", "CFG032", "CFG033"}
)
"""Findings about files whose content is not known."""
_OFFERING: Final = ("toolkits", "skills", "proxy", "workers", "connections")
"""Sections that say what can be called by a name."""
_BUILT_OF_CAPABILITIES: Final = frozenset(
    {
        *("WF012", "WF013", "WF016", "WF017", "WF021", "WF023", "WF030", "WF060", "WF061", "WF062"),
        *("WF050", "WF051", "WF052", "WF053", "WF054", "WF055", "WF056", "WF057", "WF058"),
    }
)
_NAMES: Final = {"WF010": "connections", "CFG070": "connections", "WF014": "workflows"}
"""What is said about a name of a section that is not there."""
_TOP: Final = re.compile(r"([^.\[]*)(?:\.|(?=\[)|$)(.*)", re.DOTALL)
_PLACE: Final = re.compile(r"\[([0-9]+)\]")


@dataclass(slots=True)
class LeftOut:
    """What was left out of a configuration: sections, or entries of them by name or place."""

    sections: set[str] = field(default_factory=set)
    entries: dict[str, set[str]] = field(default_factory=dict)
    is_half_read: bool = False

    def lacks(self, section: str) -> bool:
        """Whether a section is not all there."""
        return self.is_half_read or section in self.sections or bool(self.entries.get(section))

    @property
    def hides_names(self) -> bool:
        """Whether something may be offered that is not known."""
        return any(map(self.lacks, _OFFERING))

    def explains(self, found: Finding) -> bool:
        """Whether something is only found because of what was left out."""
        if found.code in _BUILT_OF_CAPABILITIES and self.lacks("capabilities"):
            return True
        section = _NAMES.get(found.code)
        if section is None:
            return False
        names = self.entries.get(section, ())
        return (
            self.is_half_read or section in self.sections or any(f" {quoted(name)};" in found.message for name in names)
        )


@dataclass(slots=True)
class Sound:
    """The part of a configuration, as data, that nothing is wrong with; `places` are where entries of lists were."""

    data: dict[str, Any]
    left_out: LeftOut = field(default_factory=LeftOut)
    places: dict[str, list[int]] = field(default_factory=dict)

    def leave_out(self, findings: Iterable[Finding], known: Iterable[str]) -> None:
        """Leave out what errors are about: as little as makes sense without them."""
        sections = set(known)
        for found in findings:
            if found.severity == "error":
                self._leave_out(found, sections)

    def _leave_out(self, found: Finding, known: set[str]) -> None:
        matched = _TOP.fullmatch(found.key)
        section, rest = matched.groups() if matched else ("", "")
        if found.code in _HALF_READ or section not in known:
            self.left_out.is_half_read = True
            return
        value = self.data.get(section)
        name = _entry(value, rest) if section in _BY_NAME and isinstance(value, dict) else None
        place = _PLACE.match(rest) if section in _BY_PLACE and isinstance(value, list) else None
        if name is not None:
            self.data[section] = {key: entry for key, entry in self.data[section].items() if key != name}
            self.left_out.entries.setdefault(section, set()).add(name)
        elif place is not None:
            self._leave_place_out(section, int(place[1]))
        elif not self._is_gone(section, rest):
            self.data.pop(section, None)
            self.left_out.sections.add(section)

    def _leave_place_out(self, section: str, place: int) -> None:
        places = self.places.setdefault(section, list(range(len(self.data[section]))))
        if place in places:
            index = places.index(place)
            del places[index]
            self.data[section] = [entry for at, entry in enumerate(self.data[section]) if at != index]
            self.left_out.entries.setdefault(section, set()).add(f"[{place}]")

    def _is_gone(self, section: str, rest: str) -> bool:
        """Whether it is about an entry that was left out before."""
        return any(_leads_to(name, rest) for name in self.left_out.entries.get(section, ()))


def _entry(entries: dict[str, Any], rest: str) -> str | None:
    """The name of the entry that the rest of a key leads to."""
    names = [name for name in entries if _leads_to(name, rest)]
    return max(names, key=len, default=None)


def _leads_to(name: str, rest: str) -> bool:
    shown = dotted((name,))
    return rest == shown or rest.startswith((f"{shown}.", f"{shown}["))
