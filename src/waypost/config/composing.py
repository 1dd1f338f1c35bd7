"""Building nodes out of YAML parser events."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import yaml

from waypost.config.findings import Finding, KeyPath, finding, quoted
from waypost.config.nodes import Node, Refused
from waypost.config.scalars import Scalar, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

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
                    raise self.refusal(event, (), "a second YAML document starts here; use one file each", "CFG005")
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
        if self.count > MAX_NODES:
            raise self.refusal(event, (), f"the file holds more than {MAX_NODES:,} values; split it", "CFG008")
        if depth > MAX_DEPTH:
            raise self.refusal(event, path[:3], f"values are nested more than {MAX_DEPTH} levels deep", "CFG008")

    def alias(self, event: yaml.AliasEvent, path: KeyPath, depth: int) -> Node:
        name = str(event.anchor)
        node = self.anchors.get(name)
        if node is None:
            message = f"the alias {quoted('*' + name)} has no anchor before it"
            raise self.refusal(event, path, message, "CFG009")
        size, height = _measure(node)
        self.grow(event, path, size, depth + height - 1)
        return replace(node, line=_line(event))

    def scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> Node:
        text: str = event.value
        tag = None if event.tag in ("!", f"{_TAG}str") else event.tag
        plain = event.implicit[0] and not event.tag
        value: Scalar = resolve(text) if plain or tag else text
        if tag and type(value) not in _SCALAR_TAGS.get(tag, ()):
            raise self.refusal(event, path, f"the tag {quoted(tag)} cannot be used here; remove it", "CFG009")
        line = _line(event)
        return Node(value, self.file, line, line + (event.style in ("|", ">")), plain)

    def untagged(self, event: yaml.Event, path: KeyPath, kind: str) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", _TAG + kind):
            raise self.refusal(event, path, f"the tag {quoted(str(tag))} cannot be used here; remove it", "CFG009")

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
    if isinstance(node.value, dict):
        children = list(node.value.values())
    elif isinstance(node.value, list):
        children = node.value
    else:
        return 1, 1
    sizes = [_measure(child) for child in children]
    return 1 + sum(size for size, _ in sizes), 1 + max((height for _, height in sizes), default=0)
