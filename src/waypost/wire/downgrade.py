"""Definitions, content and results for older versions: what they do not know is left out or written as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from waypost.wire.content import Audio, Block, Contents, ResourceLink, Text
from waypost.wire.definitions import Definition, ToolDefinition
from waypost.wire.versions import V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28, at_least, is_modern

_SINCE: Final = {"title": V2025_06_18, "outputSchema": V2025_06_18, "_meta": V2025_06_18, "icons": V2025_11_25}


def definition(full: Definition, version: str) -> Definition | dict[str, Any]:
    """A definition as a client of `version` may see it."""
    if is_modern(version):
        # In 2026-07-28 tasks are an extension, and a tool does not say whether it can run as one.
        return msgspec.structs.replace(full, execution=msgspec.UNSET) if isinstance(full, ToolDefinition) else full
    if version == V2025_11_25 and not _has_modern_output(full):
        return full
    known: dict[str, Any] = msgspec.to_builtins(full)
    if _has_modern_output(full):
        del known["outputSchema"]
    title = known.get("title")
    for name, since in _SINCE.items():
        if not at_least(version, since):
            known.pop(name, None)
    if version != V2025_11_25:
        known.pop("execution", None)
    if isinstance(full, ToolDefinition):
        _downgrade_annotations(known, version, title)
    elif not at_least(version, V2025_06_18):
        known.get("annotations", {}).pop("lastModified", None)
        for argument in known.get("arguments", ()):
            argument.pop("title", None)
    return known


def _has_modern_output(full: Definition) -> bool:
    """Whether the output schema is not an object, which only 2026-07-28 allows."""
    if not isinstance(full, ToolDefinition) or full.output_schema is msgspec.UNSET:
        return False
    return full.output_schema.get("type") != "object"


def _downgrade_annotations(known: dict[str, Any], version: str, title: str | None) -> None:
    if not at_least(version, V2025_03_26):
        known.pop("annotations", None)
    # 2025-03-26 has the title of a tool only among its annotations.
    elif title and not at_least(version, V2025_06_18):
        known["annotations"] = {"title": title, **known.get("annotations", {})}


def block(content: Block | dict[str, Any], version: str) -> Block | dict[str, Any]:
    """A content block as a client of `version` may see it."""
    if at_least(version, V2025_11_25) or isinstance(content, dict):
        return content
    if isinstance(content, ResourceLink) and not at_least(version, V2025_06_18):
        return Text(f"{content.name}: {content.uri}")
    if isinstance(content, Audio) and not at_least(version, V2025_03_26):
        return Text(f"[audio, {content.mime_type}, {len(content.data)} bytes]")
    known: dict[str, Any] = msgspec.to_builtins(content)
    known.pop("icons", None)
    if not at_least(version, V2025_06_18):
        known.pop("_meta", None)
        known.get("resource", {}).pop("_meta", None)
        known.get("annotations", {}).pop("lastModified", None)
    return known


def sampling(messages: Sequence[Mapping[str, Any]], version: str) -> Sequence[Mapping[str, Any]]:
    """Sampling messages for a client of `version`: before 2025-11-25 each has one block, not a list."""
    if at_least(version, V2025_11_25):
        return messages
    return [
        {**one, "content": _downgrade_sampled(part, version)}
        for one in messages
        for part in (one["content"] if isinstance(one.get("content"), list) else [one.get("content")])
    ]


def _downgrade_sampled(part: Any, version: str) -> Any:
    is_audio = isinstance(part, Mapping) and part.get("type") == "audio"
    if not is_audio or at_least(version, V2025_03_26):
        return part
    return {"type": "text", "text": f"[audio, {part.get('mimeType')}]"}


def contents(read: Contents, version: str) -> Contents:
    """The contents of a resource as a client of `version` may see them."""
    return read if at_least(version, V2025_06_18) else msgspec.structs.replace(read, meta=msgspec.UNSET)


def structured(value: Any, version: str) -> Any:
    """Structured content as `version` allows it: none at all, objects only, or anything."""
    if value is None or not at_least(version, V2025_06_18):
        return msgspec.UNSET
    is_object = isinstance(value, (dict, msgspec.Struct, msgspec.Raw)) or hasattr(value, "__dataclass_fields__")
    if version == V2026_07_28 or is_object:
        return value
    return msgspec.UNSET
