"""Fitting nodes to the models: known keys, then values."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from waypost.config import references, shapes
from waypost.config.findings import listed, quoted
from waypost.config.flowgate import translated
from waypost.config.nodes import UNKNOWN, Node
from waypost.config.scalars import resolve
from waypost.kinds import convert
from waypost.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waypost.config.findings import Finding, KeyPath
    from waypost.config.shapes import Annotation

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
    if value is None and (nothing := shapes.empty(annotation)) is not None:
        return replace(node, value=nothing)
    if isinstance(value, dict):
        if model := shapes.model(annotation, value):
            meant = translated(model, value, findings, path)
            return replace(node, value=_known_entries(meant, model, findings, path))
        if entry := shapes.entry(annotation):
            return replace(node, value={k: recognise(v, entry[1], findings, (*path, k)) for k, v in value.items()})
    if isinstance(value, list) and (item := shapes.item(annotation)) is not None:
        return replace(node, value=[recognise(v, item, findings, (*path, i)) for i, v in enumerate(value)])
    if isinstance(value, str) and value and (kind := shapes.path_kind(annotation)) is not None:
        return replace(node, value=_absolute(value, kind, os.path.dirname(node.file)))
    return node


def _absolute(value: str, kind: str, folder: str) -> str:
    """What names a file of some kind, relative to where it is written."""
    if kind == "toolkit":
        return references.absolute(value, folder)
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
        if model := shapes.model(annotation, value):
            return _plain_struct(node, value, model, findings, path)
        if entry := shapes.entry(annotation):
            for key in value:
                _fit(replace(node, value=key, line=value[key].line, plain=False), entry[0], findings, (*path, key))
            return {k: plain(v, entry[1], findings, (*path, k)) for k, v in value.items()}
        if tags := shapes.tags(annotation):
            findings.append(_no_tag(node, value, tags, path))
            return None
    if isinstance(value, list) and (item := shapes.item(annotation)) is not None:
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
    told = len(findings)
    tag_field = model.__struct_config__.tag_field
    if tag_field:
        data[tag_field] = model.__struct_config__.tag
    for field in msgspec.structs.fields(model):
        name = field.encode_name
        if name in entries:
            spelt = entries[name].spelt or name
            data[name] = plain(entries[name], field.type, findings, (*path, spelt))
        elif field.required:
            findings.append(node.finding((*path, name), f"the key {quoted(name)} is missing; add it", "CFG014"))
    if told == len(findings) and hasattr(model, "__post_init__"):
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
    words = shapes.choices(annotation)
    if sentence.startswith("Invalid enum value"):
        hint = did_you_mean(str(node.value), words, "; ", quote=quoted)
        return node.finding(path, f"expected {listed(words)}{hint}", "CFG013")
    if "matching regex" in sentence and (form := shapes.form(annotation)):
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
