from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from waypost.capabilities.results import as_block
from waypost.wire.content import (
    Annotations,
    Audio,
    BlobContents,
    EmbeddedResource,
    Image,
    ResourceBlock,
    ResourceLink,
    Text,
    TextContents,
    contents,
)


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (Text("hi"), {"type": "text", "text": "hi"}),
        (
            Text("hi", Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01"), {"k": 1}),
            {
                "type": "text",
                "text": "hi",
                "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01"},
                "_meta": {"k": 1},
            },
        ),
        (
            Image(data=b"\x00\xff", mime_type="image/png"),
            {"type": "image", "data": base64.b64encode(b"\x00\xff").decode(), "mimeType": "image/png"},
        ),
        (Audio(b"", "audio/wav"), {"type": "audio", "data": "", "mimeType": "audio/wav"}),
        (
            ResourceLink("docs://x", "x", mime_type="text/plain", size=3),
            {"type": "resource_link", "uri": "docs://x", "name": "x", "mimeType": "text/plain", "size": 3},
        ),
        (
            ResourceBlock(TextContents("docs://x", "hi", "text/plain")),
            {"type": "resource", "resource": {"uri": "docs://x", "text": "hi", "mimeType": "text/plain"}},
        ),
    ],
)
def test_blocks_use_wire_names_and_omit_unset_fields(block: Any, wire: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(block)) == wire


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (EmbeddedResource("u:x", text="t"), TextContents("u:x", "t")),
        (EmbeddedResource("u:x", text="t", mime_type="text/html"), TextContents("u:x", "t", "text/html")),
        (EmbeddedResource("u:x"), TextContents("u:x", "")),
        (EmbeddedResource("u:x", blob=b"\x00"), BlobContents("u:x", b"\x00")),
        (EmbeddedResource("u:x", blob=b""), BlobContents("u:x", b"")),
        (EmbeddedResource(resource=TextContents("u:y", "t")), TextContents("u:y", "t")),
        (EmbeddedResource(resource={"uri": "u:y", "text": "t"}), TextContents("u:y", "t")),
        (
            EmbeddedResource(resource={"uri": "u:y", "blob": "AAE=", "mimeType": "x/y"}),
            BlobContents("u:y", b"\x00\x01", "x/y"),
        ),
    ],
)
def test_an_embedded_resource_is_given_in_parts_or_whole(given: EmbeddedResource, made: Any) -> None:
    assert given.block() == ResourceBlock(made)


def test_an_embedded_resource_keeps_annotations_and_meta() -> None:
    block = EmbeddedResource("u:x", text="t", annotations=Annotations(priority=1), meta={"k": 1}).block()
    assert (block.annotations, block.meta) == (Annotations(priority=1), {"k": 1})


def test_an_embedded_resource_needs_an_address() -> None:
    with pytest.raises(TypeError, match="needs a uri"):
        EmbeddedResource(text="t").block()


def test_contents_are_text_or_bytes() -> None:
    assert contents("u:x", "t") == TextContents("u:x", "t")
    assert contents("u:x", b"t", "x/y") == BlobContents("u:x", b"t", "x/y")


def test_text_embedded_resources_and_links_become_blocks() -> None:
    assert as_block("hi") == Text("hi")
    assert as_block(EmbeddedResource("u:x")) == ResourceBlock(TextContents("u:x", ""))
    link = ResourceLink("u:x", "x")
    assert as_block(link) is link
