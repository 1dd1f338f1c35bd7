"""Content blocks: what tools return and prompts are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class Annotations(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Hints about who a block is for and how much it matters."""

    audience: list[str] | UnsetType = UNSET
    priority: float | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET


class Text(msgspec.Struct, tag="text", omit_defaults=True):
    """Plain text."""

    text: str
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Binary(msgspec.Struct, rename="camel", omit_defaults=True):
    data: bytes
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class Image(_Binary, tag="image"):
    """A picture, as bytes."""


class Audio(_Binary, tag="audio"):
    """Sound, as bytes."""


class ResourceLink(msgspec.Struct, tag="resource_link", rename="camel", omit_defaults=True):
    """A pointer to something `resources/read` can fetch."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    icons: list[Any] | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class TextContents(msgspec.Struct, rename="camel", omit_defaults=True):
    """The text of a resource."""

    uri: str
    text: str
    mime_type: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class BlobContents(msgspec.Struct, rename="camel", omit_defaults=True):
    """The bytes of a resource."""

    uri: str
    blob: bytes
    mime_type: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


Contents = TextContents | BlobContents


class ResourceBlock(msgspec.Struct, tag="resource", omit_defaults=True):
    """A resource carried inside a result or a message, as it goes over the wire."""

    resource: TextContents | BlobContents
    annotations: Annotations | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


@dataclass(slots=True)
class EmbeddedResource:
    """A resource to carry inside a result: its address with `text` or `blob`, or ready-made contents as `resource`."""

    uri: str | None = None
    text: str | None = None
    blob: bytes | None = None
    mime_type: str | None = None
    resource: Contents | dict[str, Any] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = None

    def block(self) -> ResourceBlock:
        """The block that goes over the wire."""
        return ResourceBlock(
            self._contents(),
            UNSET if self.annotations is None else self.annotations,
            UNSET if self.meta is None else self.meta,
        )

    def _contents(self) -> Contents:
        if isinstance(self.resource, dict):
            if "blob" in self.resource:
                return msgspec.convert(self.resource, BlobContents)
            return msgspec.convert(self.resource, TextContents)
        if self.resource is not None:
            return self.resource
        if self.uri is None:
            raise TypeError("EmbeddedResource needs a uri.")
        return contents(self.uri, self.blob if self.blob is not None else self.text or "", self.mime_type)


Block = Text | Image | Audio | ResourceLink | ResourceBlock
CONTENT_TYPES = (Text, Image, Audio, ResourceLink, ResourceBlock, EmbeddedResource)


def contents(uri: str, value: str | bytes, mime_type: str | None = None) -> Contents:
    """The contents of a resource, from text or bytes."""
    kind = mime_type or UNSET
    return BlobContents(uri, value, kind) if isinstance(value, bytes) else TextContents(uri, value, kind)
