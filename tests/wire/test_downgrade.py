from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from waypost.wire import downgrade
from waypost.wire.content import (
    Annotations,
    Audio,
    Image,
    ResourceBlock,
    ResourceLink,
    Text,
    TextContents,
)
from waypost.wire.definitions import (
    PromptArgument,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
    ToolExecution,
)
from waypost.wire.versions import ALL, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28

ICONS = [{"src": "https://example.com/i.png"}]

TOOL = ToolDefinition(
    "t",
    title="T",
    description="d",
    output_schema={"type": "object"},
    annotations={"readOnlyHint": True},
    icons=ICONS,
    execution=ToolExecution("optional"),
    meta={"category": "C"},
)
STAMPED = Annotations(audience=["user"], last_modified="2026-01-01T00:00:00Z")
RESOURCE = ResourceDefinition(
    "u:x", "r", title="R", mime_type="a/b", size=1, annotations=STAMPED, icons=ICONS, meta={"k": 1}
)
TEMPLATE = TemplateDefinition("u:{x}", "r", title="R", mime_type="a/b", annotations=STAMPED, icons=ICONS, meta={"k": 1})
PROMPT = PromptDefinition(
    "p", title="P", arguments=[PromptArgument("a", title="A", required=True)], icons=ICONS, meta={"k": 1}
)

ALWAYS = {"name", "description", "inputSchema"}
KNOWN_OF_A_TOOL = {
    V2024_11_05: ALWAYS,
    V2025_03_26: ALWAYS | {"annotations"},
    V2025_06_18: ALWAYS | {"annotations", "title", "outputSchema", "_meta"},
    V2025_11_25: ALWAYS | {"annotations", "title", "outputSchema", "_meta", "icons", "execution"},
    V2026_07_28: ALWAYS | {"annotations", "title", "outputSchema", "_meta", "icons"},
}


def wire(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def seen(full: Any, version: str) -> dict[str, Any]:
    found: dict[str, Any] = wire(downgrade.definition(full, version))
    return found


@pytest.mark.parametrize("version", ALL)
def test_a_tool_has_only_the_fields_of_its_version(version: str) -> None:
    assert set(seen(TOOL, version)) == KNOWN_OF_A_TOOL[version]


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("full", [RESOURCE, TEMPLATE, PROMPT], ids=["resource", "template", "prompt"])
def test_resources_and_prompts_have_only_the_fields_of_their_version(full: Any, version: str) -> None:
    later = {"title", "_meta"} if version < V2025_06_18 else set()
    latest = {"icons"} if version < V2025_11_25 else set()
    assert set(seen(full, version)) == set(wire(full)) - later - latest


@pytest.mark.parametrize("version", ALL)
def test_an_argument_has_a_title_from_2025_06_18(version: str) -> None:
    (argument,) = seen(PROMPT, version)["arguments"]
    assert ("title" in argument) == (version >= V2025_06_18)
    assert argument["required"] is True


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("full", [RESOURCE, TEMPLATE], ids=["resource", "template"])
def test_a_resource_says_when_it_was_modified_from_2025_06_18(full: Any, version: str) -> None:
    annotations = seen(full, version)["annotations"]
    assert annotations["audience"] == ["user"]
    assert ("lastModified" in annotations) == (version >= V2025_06_18)


def test_a_title_moves_into_the_annotations_where_it_has_no_place() -> None:
    assert seen(TOOL, V2025_03_26)["annotations"] == {"title": "T", "readOnlyHint": True}
    assert seen(ToolDefinition("t", title="T"), V2025_03_26)["annotations"] == {"title": "T"}
    own = ToolDefinition("t", title="T", annotations={"title": "Own"})
    assert seen(own, V2025_03_26)["annotations"] == {"title": "Own"}
    assert "annotations" not in seen(ToolDefinition("t", title="T"), V2024_11_05)


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": "string"}, {"oneOf": []}, {}])
def test_only_stateless_clients_see_an_output_schema_that_is_no_object(version: str, schema: dict[str, Any]) -> None:
    row = seen(ToolDefinition("t", output_schema=schema, icons=ICONS), version)
    assert ("outputSchema" in row) == (version == V2026_07_28)
    assert ("icons" in row) == (version >= V2025_11_25)


@pytest.mark.parametrize("version", ALL)
def test_the_definition_itself_is_never_changed(version: str) -> None:
    before = wire(TOOL), wire(RESOURCE), wire(PROMPT)
    for full in (TOOL, RESOURCE, PROMPT):
        downgrade.definition(full, version)
    assert (wire(TOOL), wire(RESOURCE), wire(PROMPT)) == before


@pytest.mark.parametrize("version", ALL)
def test_plain_text_is_the_same_everywhere(version: str) -> None:
    assert wire(downgrade.block(Text("hi"), version)) == {"type": "text", "text": "hi"}
    assert wire(downgrade.block(Image(b"x", "image/png"), version))["type"] == "image"


@pytest.mark.parametrize("version", ALL)
def test_audio_becomes_text_in_versions_without_audio(version: str) -> None:
    block = wire(downgrade.block(Audio(b"abc", "audio/wav"), version))
    if version == V2024_11_05:
        assert block == {"type": "text", "text": "[audio, audio/wav, 3 bytes]"}
    else:
        assert block == {"type": "audio", "data": "YWJj", "mimeType": "audio/wav"}


@pytest.mark.parametrize("version", ALL)
def test_a_link_becomes_text_in_versions_without_links(version: str) -> None:
    block = wire(downgrade.block(ResourceLink("u:x", "x", title="X", icons=ICONS), version))
    if version < V2025_06_18:
        assert block == {"type": "text", "text": "x: u:x"}
    else:
        assert block["type"] == "resource_link"
        assert ("icons" in block) == (version >= V2025_11_25)


@pytest.mark.parametrize("version", ALL)
def test_meta_and_dates_are_dropped_in_versions_without_them(version: str) -> None:
    text = wire(downgrade.block(Text("x", STAMPED, {"k": 1}), version))
    inner = TextContents("u:x", "t", meta={"k": 1})
    resource = wire(downgrade.block(ResourceBlock(inner, STAMPED, {"k": 1}), version))
    knows = version >= V2025_06_18
    assert [("_meta" in part) for part in (text, resource, resource["resource"])] == [knows] * 3
    assert [("lastModified" in part["annotations"]) for part in (text, resource)] == [knows] * 2
    assert text["annotations"]["audience"] == ["user"]


def test_a_block_that_is_data_already_is_left_alone() -> None:
    block = {"type": "text", "text": "x"}
    assert downgrade.block(block, V2024_11_05) is block


@dataclass
class Point:
    x: int


class Struct(msgspec.Struct):
    x: int


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("value", [{"a": 1}, {}, Point(1), Struct(1)])
def test_structured_objects_are_sent_from_2025_06_18(version: str, value: Any) -> None:
    assert downgrade.structured(value, version) is (value if version >= V2025_06_18 else UNSET)


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("value", [[1], 3, "x", True, 0])
def test_other_structured_data_is_for_stateless_clients_only(version: str, value: Any) -> None:
    assert downgrade.structured(value, version) is (value if version == V2026_07_28 else UNSET)


@pytest.mark.parametrize("version", ALL)
def test_nothing_structured_stays_nothing(version: str) -> None:
    assert downgrade.structured(None, version) is UNSET


def test_messages_for_a_model_have_one_block_each_before_2025_11_25_and_no_sound_before_2025_03_26() -> None:
    text, sound = {"type": "text", "text": "a"}, {"type": "audio", "data": "eA==", "mimeType": "audio/wav"}
    said: list[dict[str, Any]] = [{"role": "user", "content": [text, sound]}, {"role": "assistant", "content": text}]
    apart = [{"role": "user", "content": text}, {"role": "user", "content": sound}, said[1]]

    assert downgrade.sampling(said, V2025_11_25) is said
    assert downgrade.sampling(said, V2025_06_18) == apart
    answer = {"type": "text", "text": "[audio, audio/wav]"}
    assert downgrade.sampling(said, V2024_11_05) == [apart[0], {"role": "user", "content": answer}, said[1]]
