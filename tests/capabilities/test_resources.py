from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from tests.capabilities.client import Client, connected, listed, new_hub, request
from waypost import Context, DefinitionError, Hub, Resource, UnknownResource
from waypost.capabilities.resources import to_contents
from waypost.wire.content import BlobContents, TextContents, contents
from waypost.wire.versions import ALL, V2024_11_05, V2025_11_25, V2026_07_28


class Readme(Resource, uri="docs://readme", mime_type="text/markdown", subscribable=True, size=7):
    """How to use this server."""

    async def read(self, ctx: Context) -> str:
        return "# Hello"


class Note(Resource, uri_template="notes://{id}"):
    id: str

    async def read(self, ctx: Context) -> dict[str, str]:
        if self.id == "gone":
            raise UnknownResource(f"notes://{self.id}")
        return {"id": self.id}


def read(hub: Hub, uri: str, version: str = V2025_11_25) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = request(hub, "resources/read", version, uri=uri)["result"]["contents"]
    return found


def test_a_resource_is_listed_with_the_options_of_its_class() -> None:
    assert listed(new_hub(Readme), "resources") == {
        "readme": {
            "uri": "docs://readme",
            "name": "readme",
            "description": "How to use this server.",
            "mimeType": "text/markdown",
            "size": 7,
        }
    }


def test_text_is_read_at_its_uri() -> None:
    assert read(new_hub(Readme), "docs://readme") == [
        {"uri": "docs://readme", "text": "# Hello", "mimeType": "text/markdown"}
    ]


def test_variables_of_a_template_become_attributes() -> None:
    hub = new_hub(Note)
    assert listed(hub, "resourceTemplates") == {"note": {"uriTemplate": "notes://{id}", "name": "note"}}
    assert read(hub, "notes://a%20b") == [
        {"uri": "notes://a%20b", "text": '{"id":"a b"}', "mimeType": "application/json"}
    ]


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", [TextContents("u:x", "text")]),
        (b"\x00\xff", [BlobContents("u:x", b"\x00\xff")]),
        (None, [TextContents("u:x", "")]),
        ({"a": 1}, [TextContents("u:x", '{"a":1}', "application/json")]),
        ([1, 2], [TextContents("u:x", "[1,2]", "application/json")]),
        (Point(1), [TextContents("u:x", '{"x":1}', "application/json")]),
        (TextContents("u:y", "other"), [TextContents("u:y", "other")]),
        ([contents("u:a", "a"), contents("u:b", b"b")], [TextContents("u:a", "a"), BlobContents("u:b", b"b")]),
    ],
)
def test_a_returned_value_becomes_contents(value: Any, expected: list[Any]) -> None:
    assert to_contents(value, "u:x", None) == expected


def test_bytes_are_sent_in_base64() -> None:
    hub = new_hub()

    @hub.resource("data://raw", mime_type="application/octet-stream")
    def raw() -> bytes:
        return b"\xff\x00"

    assert read(hub, "data://raw") == [
        {"uri": "data://raw", "blob": base64.b64encode(b"\xff\x00").decode(), "mimeType": "application/octet-stream"}
    ]


def test_a_function_with_variables_in_its_uri_is_a_template() -> None:
    hub = new_hub()

    @hub.resource("rows://{table}/{number}", name="row")
    def row(table: str, number: int, ctx: Context) -> str:
        return f"{table} {number + 1} {ctx.principal.id}"

    assert row.__name__ == "row"
    assert list(listed(hub, "resourceTemplates")) == ["row"]
    assert read(hub, "rows://users/41")[0]["text"] == "users 42 anonymous"


def test_a_variable_that_does_not_match_its_field_type_finds_nothing() -> None:
    hub = new_hub()

    @hub.resource("rows://{number}")
    def row(number: int) -> str:
        return str(number)

    assert request(hub, "resources/read", uri="rows://seven")["error"]["code"] == -32002


@pytest.mark.parametrize("kind", [str | None, Literal["7", "8"]], ids=str)
def test_a_numeric_text_stays_text_in_a_text_variable(kind: Any) -> None:
    members = {"__annotations__": {"id": kind}, "read": lambda self: f"{self.id!r}"}
    item = type("Item", (Resource,), members, uri_template="items://{id}")
    assert read(new_hub(item), "items://7")[0]["text"] == "'7'"


@pytest.mark.parametrize("version", ALL)
def test_an_unknown_resource_has_the_code_of_its_version(version: str) -> None:
    error = request(new_hub(Readme), "resources/read", version, uri="docs://nope")["error"]
    assert error["code"] == (-32602 if version == V2026_07_28 else -32002)
    assert error["data"] == {"uri": "docs://nope"}


def test_the_next_template_is_tried_when_one_finds_nothing() -> None:
    hub = new_hub(Note)

    @hub.resource("notes://{+rest}", name="z_fallback")
    def fallback(rest: str) -> str:
        return f"fallback {rest}"

    assert read(hub, "notes://gone")[0]["text"] == "fallback gone"
    assert read(hub, "notes://here")[0]["text"] == '{"id":"here"}'
    assert request(new_hub(Note), "resources/read", uri="notes://gone")["error"]["code"] == -32002


def test_a_fixed_resource_beats_every_template() -> None:
    hub = new_hub(Note)

    @hub.resource("notes://fixed")
    def fixed() -> str:
        return "fixed"

    assert read(hub, "notes://fixed")[0]["text"] == "fixed"


def test_hidden_resources_and_templates_are_not_listed_but_read() -> None:
    hub = new_hub().add(Readme, hidden=True).add(Note, hidden=True)
    assert listed(hub, "resources") == listed(hub, "resourceTemplates") == {}
    assert read(hub, "docs://readme")[0]["text"] == "# Hello"
    assert read(hub, "notes://n")[0]["text"] == '{"id":"n"}'


def test_a_resource_can_be_renamed_at_registration() -> None:
    hub = new_hub().add(Readme, name="manual", description="Read me first", category="Docs")
    assert listed(hub, "resources")["manual"]["description"] == "Read me first"
    assert listed(hub, "resources")["manual"]["_meta"] == {"category": "Docs"}
    assert read(hub, "docs://readme")[0]["text"] == "# Hello"


def test_updates_are_sent_to_subscribers() -> None:
    async def scenario() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        hub = new_hub(Readme)
        async with connected(hub) as subscribed, connected(hub) as other:
            await subscribed.result("resources/subscribe", uri="docs://readme")
            await hub.notify_resource_updated("docs://readme")
            await hub.notify_resource_updated("docs://other")
            await subscribed.result("resources/unsubscribe", uri="docs://readme")
            await hub.notify_resource_updated("docs://readme")
            return await seen(subscribed), await seen(other)

    mine, theirs = asyncio.run(scenario())
    assert [note["params"] for note in mine] == [{"uri": "docs://readme"}]
    assert theirs == []


async def seen(client: Client) -> list[dict[str, Any]]:
    await client.result("ping")
    return client.notifications


def test_old_clients_get_contents_without_meta() -> None:
    hub = new_hub()

    @hub.resource("docs://tagged")
    def tagged() -> TextContents:
        return TextContents("docs://tagged", "x", meta={"a": 1})

    assert read(hub, "docs://tagged")[0]["_meta"] == {"a": 1}
    assert "_meta" not in read(hub, "docs://tagged", V2024_11_05)[0]


@pytest.mark.parametrize(
    ("options", "fields", "sentence"),
    [
        ({}, {}, "either a uri or a uri_template"),
        ({"uri": "a:b", "uri_template": "a:{b}"}, {}, "either a uri or a uri_template"),
        ({"uri_template": "a:{b}"}, {"c": str}, r"a:\{b\} does not give c"),
        ({"uri_template": "a:{b"}, {}, "unbalanced brace"),
        ({"uri": "a:b", "colour": "red"}, {}, "unknown option 'colour'"),
        ({"uri": "a:b", "size": "big"}, {}, "size must be a number of bytes, not 'big'"),
    ],
)
def test_an_invalid_resource_is_refused_when_it_is_defined(
    options: dict[str, Any], fields: dict[str, type], sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence) as caught:
        type("Bad", (Resource,), {"read": lambda self: "", "__annotations__": fields}, **options)
    assert caught.value.message.startswith("Resource Bad: ")


def test_two_resources_at_one_uri_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"resource 'docs://readme'"):
        new_hub(Readme, Readme)


def test_annotations_may_have_python_or_wire_names() -> None:
    hub = new_hub()
    moment = "2026-01-02T03:04:05Z"
    known = {"audience": ["user"], "priority": 1, "last_modified": moment}
    hub.resource("a://1", name="one", annotations=known)(lambda: "x")
    hub.resource("a://{x}", name="any", annotations={"lastModified": moment})(lambda x: x)

    answer = {"audience": ["user"], "priority": 1.0, "lastModified": moment}
    assert listed(hub, "resources")["one"]["annotations"] == answer
    assert listed(hub, "resourceTemplates")["any"]["annotations"] == {"lastModified": moment}


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"last_modifed": "x"}, "unknown annotation 'last_modifed', did you mean 'last_modified'?"),
        ({"nope": 1}, "unknown annotation 'nope'."),
        ({"priority": 7}, "the annotation priority must be a number from 0 to 1, not 7."),
        ({"priority": "high"}, "its annotations are wrong: "),
        ({"audience": ["everybody"]}, "the annotation audience must be a list of 'user' and 'assistant'."),
    ],
)
def test_unknown_annotations_are_refused(annotations: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        new_hub().resource("a://1", name="one", annotations=annotations)(lambda: "x")

    assert refused.value.message.startswith(f"Resource 'one': {sentence}")
