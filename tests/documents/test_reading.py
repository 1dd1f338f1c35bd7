"""Reading at URIs: bodies at any depth, the index, sections that functions write, several at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.desk import SHELVES, UnreachableStore, desk

INTERNAL = {
    "state/set": "state::set",
    "engine/workers/list": "engine::workers::list",
    "stream/publish": "stream::publish",
    "iii/internal": "iii::internal",
    "mcp/handler": "mcp::handler",
    "a2a/send": "a2a::send",
    "skills/register": "skills::register",
    "prompts/register": "prompts::register",
}
on_each_store = pytest.mark.parametrize("shelf", SHELVES)


@on_each_store
@asynchronous
async def test_skills_are_read_at_any_depth_also_without_parents(shelf: str) -> None:
    async with desk(shelf) as it:
        deepest = "/".join(["deep" * 12] * 20)  # longer than the longest key of the store
        for skill_id in ("a", "a/b", "a/b/c", "orphan/grand/child", "docs/fn", deepest):
            await it.skill(skill_id, f"# {skill_id}")

        for skill_id in ("a", "a/b", "a/b/c", "orphan/grand/child", "docs/fn", deepest):
            assert await it.read(f"iii://{skill_id}") == ("text/markdown", f"# {skill_id}")
        assert deepest in [row["id"] for row in (await it.call("skills::list"))["skills"]]
        assert await it.call("skills::unregister", {"id": deepest}) == {"id": deepest, "removed": True}


@on_each_store
@asynchronous
async def test_the_index_has_titles_and_descriptions_indented_by_depth(shelf: str) -> None:
    async with desk(shelf) as it:
        await it.skill("a", "# Alpha\n\nFirst.")
        await it.skill("a/b", "# Beta\n\nSecond.")

        mime_type, text = await it.read("iii://skills")
        assert mime_type == "text/markdown"
        assert text.endswith("- [`a`](iii://a) — Alpha — First.\n  - [`a/b`](iii://a/b) — Beta — Second.\n")


@asynchronous
async def test_the_index_shows_the_error_of_an_unreachable_store() -> None:
    async with desk(UnreachableStore()) as it:
        assert (await it.read("iii://skills"))[1] == "# Skills\n\n_Error reading skills index: the state is away_\n"
        assert len((await it.call("skills::resources-list"))["resources"]) == 1


@asynchronous
async def test_resources_are_the_index_and_every_skill() -> None:
    async with desk() as it:
        await it.skill("b", "no title")
        await it.skill("a/x", "# Title")

        assert await it.call("skills::resources-list", {}) == {
            "resources": [
                {
                    "uri": "iii://skills",
                    "name": "skills",
                    "description": "Index of every registered skill",
                    "mimeType": "text/markdown",
                },
                {"uri": "iii://a/x", "name": "Title", "mimeType": "text/markdown"},
                {"uri": "iii://b", "name": "b", "mimeType": "text/markdown"},
            ]
        }


@asynchronous
async def test_two_uri_templates_are_listed() -> None:
    async with desk() as it:
        templates = (await it.call("skills::resources-templates", {}))["resourceTemplates"]

        answer = [(one["uriTemplate"], one["name"], one["mimeType"]) for one in templates]
        assert answer == [
            ("iii://{skill_id}", "Skill", "text/markdown"),
            ("iii://fn/{function_path}", "Skill section", "text/markdown"),
        ]


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("http://a", "Resource URI must start with iii://: http://a"),
        ("iii://fn", "is missing a function path"),
        ("iii://fn/", "may not contain empty segments"),
        ("iii://nope", "Skill not found: nope"),
        ("iii://no/such/skill", "Skill not found: no/such/skill"),
        ("iii://Upper", 'invalid id (segment 1 of "Upper")'),
        ("iii://x/demo::guide", "Skill not found: x/demo::guide"),
    ],
)
@asynchronous
async def test_a_missing_resource_is_an_error_and_calls_no_function(uri: str, text: str) -> None:
    async with desk() as it:
        it.engine.functions["demo::guide"] = lambda _: "guide"

        assert text in await it.unread(uri)
        assert it.engine.calls == []


@asynchronous
async def test_a_wrong_id_gets_the_nearest_ones() -> None:
    async with desk() as it:
        for skill_id in ("resend/email", "resend/contacts", "brain"):
            await it.skill(skill_id)

        assert await it.unread("iii://resend/emial") == 'Skill not found: resend/emial; did you mean "resend/email"?'
        assert '"resend/email"' in await it.unread("iii://email")
        assert '"resend/email" or "resend/contacts"' in await it.unread("iii://resend")
        assert await it.unread("iii://zzz") == "Skill not found: zzz"


@pytest.mark.parametrize(
    ("output", "mime_type", "text"),
    [
        ("# Live", "text/markdown", "# Live"),
        ({"content": "# Live"}, "text/markdown", "# Live"),
        ({"ok": True, "quota": [73]}, "application/json", '{\n  "ok": true,\n  "quota": [\n    73\n  ]\n}'),
    ],
)
@asynchronous
async def test_the_text_of_a_section_is_the_answer_of_its_function(output: Any, mime_type: str, text: str) -> None:
    async with desk() as it:
        it.engine.functions["a::b"] = it.engine.functions["a::b::c"] = it.engine.functions["a"] = lambda _: output

        for uri in ("iii://fn/a", "iii://fn/a/b", "iii://fn/a/b/c"):
            assert await it.read(uri) == (mime_type, text)
        assert it.engine.calls == [("a", {}), ("a::b", {}), ("a::b::c", {})]
        assert [getattr(by, "function_id", "") for by in it.engine.askers] == ["skills::resources-read"] * 3


@pytest.mark.parametrize("path", INTERNAL)
@asynchronous
async def test_internal_functions_cannot_be_read_as_sections(path: str) -> None:
    async with desk() as it:
        it.engine.functions[INTERNAL[path]] = lambda _: "secret"

        assert await it.unread(f"iii://fn/{path}") == (
            f"Function '{INTERNAL[path]}' is in an internal namespace and cannot back a skill resource"
        )
        assert it.engine.calls == []


@asynchronous
async def test_a_function_that_fails_or_never_answers_is_named() -> None:
    async with desk(within=0.05) as it:
        it.engine.functions["slow"] = lambda _: asyncio.Event().wait()
        it.engine.functions["bad"] = lambda _: 1 / 0 if _ else it.engine("nobody", {}, 1.0)

        assert await it.unread("iii://fn/slow") == "trigger slow: it did not answer within 0.05 s"
        assert await it.unread("iii://fn/bad") == "trigger bad: Function nobody not found in namespace default."
        assert await it.unread("iii://fn/gone") == "trigger gone: Function gone not found in namespace default."


@pytest.mark.parametrize("function_id", ["skill::fetch", "skills::fetch_skill"])
@asynchronous
async def test_several_uris_are_fetched_as_one_document(function_id: str) -> None:
    async with desk() as it:
        it.engine.functions["live"] = lambda _: {"ok": True}
        await it.skill("a", "# A\n\nText. \n\n")
        await it.skill("a/b", "# B")

        async def fetched(**given: Any) -> Any:
            return await it.call(function_id, given)

        assert await fetched(uri="iii://a") == "# iii://a\n\n# A\n\nText."
        assert await fetched(uri=" iii://a ", uris=[]) == await fetched(uri="iii://a", uris=None)
        assert await fetched(uris=["iii://a/b", " ", "iii://a", "iii://a/b"], uri="iii://nope") == (
            "# iii://a/b\n\n# B\n\n---\n\n# iii://a\n\n# A\n\nText.\n\n---\n\n# iii://a/b\n\n# B"
        )
        assert await fetched(uri="iii://fn/live") == '# iii://fn/live\n\n{\n  "ok": true\n}'
        assert (await fetched(uri="iii://skills")).startswith("# iii://skills\n\n# Skills")


@pytest.mark.parametrize("function_id", ["skill::fetch", "skills::fetch_skill"])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "Provide uri or a non-empty uris array"),
        ({"uri": "  "}, "Provide uri or a non-empty uris array"),
        ({"uris": [" ", ""], "uri": "iii://a"}, "Provide uri or a non-empty uris array"),
        ({"uris": ["iii://fn/live", "http://x"]}, "Invalid URI (must start with iii://): http://x"),
        ({"uris": ["iii://a", "iii://nope"]}, "Skill not found: nope"),
        ({"uris": [5]}, "invalid type: integer `5`, expected a string"),
        ({"uris": "iii://a"}, 'invalid type: string "iii://a", expected a sequence'),
    ],
)
@asynchronous
async def test_a_fetch_with_one_error_fails_without_calling_functions(function_id: str, given: Any, text: str) -> None:
    async with desk() as it:
        it.engine.functions["live"] = lambda _: "live"
        await it.skill("a")

        assert text in await it.refusal(function_id, given)
        assert it.engine.calls == []
