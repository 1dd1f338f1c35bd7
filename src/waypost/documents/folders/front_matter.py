"""Front matter: the block of YAML that a Markdown file begins with, read strictly."""

from __future__ import annotations

import math
import re
from typing import Any, Final, NamedTuple

import yaml

from waypost.config.findings import Finding, KeyPath
from waypost.config.nodes import Composer, Node, Refused, events
from waypost.documents.folders.files import Unfit

MAX_FRONT_MATTER_CHARACTERS: Final = 65_536
MAX_NAME_CHARACTERS: Final = 64
MAX_DESCRIPTION_CHARACTERS: Final = 1024
MAX_COMPATIBILITY_CHARACTERS: Final = 500
RESERVED: Final = "io.modelcontextprotocol/"
_MAX_INTEGER: Final = 2**53
_BLOCK: Final = re.compile(
    r"\ufeff?---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*(?:\r?\n|\Z)(?P<body>.*)", re.DOTALL | re.MULTILINE
)
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Parts(NamedTuple):
    """A Markdown file: its front matter as data, and the text after it."""

    fields: dict[str, Any]
    body: str


class _Strict(Composer):
    """Builds nodes of YAML without aliases."""

    def alias(self, event: yaml.AliasEvent, path: KeyPath, depth: int) -> Node:
        raise self.refusal(event, path, "an alias cannot be used in front matter; write the value out", "CFG009")


def split(data: bytes) -> Parts:
    """Split a Markdown file into its two parts."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Unfit("is not UTF-8 text") from None
    found = _BLOCK.fullmatch(text)
    if found is None:
        raise Unfit("does not begin with front matter: a line `---`, YAML, and another line `---`")
    if len(found["yaml"]) > MAX_FRONT_MATTER_CHARACTERS:
        raise Unfit(f"has a front matter of more than {MAX_FRONT_MATTER_CHARACTERS:,} characters")
    # The line of the opening `---` is kept, so that lines are counted as an editor counts them.
    root = _parse("\n" + found["yaml"])
    if not isinstance(root.value, dict):
        raise Unfit("has a front matter that is not a mapping; give it at least `name` and `description`")
    return Parts({key: _to_data(child, key) for key, child in root.value.items()}, found["body"])


def _parse(text: str) -> Node:
    findings: list[Finding] = []
    try:
        root = _Strict("", findings).document(events(text, ""))
    except Refused as refused:
        findings.append(refused.found)
    if findings:
        raise Unfit(f"has a mistake in line {findings[0].line} of its front matter: {findings[0].message}")
    return root


def _to_data(node: Node, place: str) -> Any:
    """Return a node as data that JSON can carry without loss."""
    value = node.value
    if isinstance(value, dict):
        return {key: _to_data(child, f"{place}.{key}") for key, child in value.items()}
    if isinstance(value, list):
        return [_to_data(child, place) for child in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise Unfit(f"has a number in its front matter that is not finite: `{place}`")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise Unfit(f"has a number in its front matter that is too large: `{place}`; put it in quotes")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(f"has half a character in its front matter: `{place}`") from None
    return value


def check_name(fields: dict[str, Any], expected: str) -> str:
    """Return the name; refuse one that is invalid or not the expected one."""
    name = fields.get("name")
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(name):
        raise Unfit(f"needs a `name` of 1 to {MAX_NAME_CHARACTERS} letters a-z, digits and single hyphens between them")
    if name != expected:
        raise Unfit(f"has the name `{name}`, which must be `{expected}`, as the folder or file is called")
    return name


def check_description(fields: dict[str, Any]) -> str:
    """Return the description; refuse a missing or too long one."""
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION_CHARACTERS:
        raise Unfit(f"needs a `description` of 1 to {MAX_DESCRIPTION_CHARACTERS} characters")
    return description


def check_skill(fields: dict[str, Any], directory: str) -> None:
    """Refuse what the Agent Skills format does not allow; unknown fields are allowed."""
    check_name(fields, directory)
    check_description(fields)
    for field in ("license", "allowed-tools"):
        if field in fields and not isinstance(fields[field], str):
            raise Unfit(f"has a `{field}` that is not text")
    compatibility = fields.get("compatibility", "any")
    if not isinstance(compatibility, str) or not 1 <= len(compatibility) <= MAX_COMPATIBILITY_CHARACTERS:
        raise Unfit(f"has a `compatibility` that is not text of 1 to {MAX_COMPATIBILITY_CHARACTERS} characters")
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict):
        raise Unfit("has a `metadata` that is not a mapping")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise Unfit(f"has a `metadata.{key}` that is not text; put it in quotes")
        if key.startswith(RESERVED):
            raise Unfit(f"has a `metadata.{key}`, but names that begin with `{RESERVED}` are reserved")
