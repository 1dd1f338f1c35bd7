"""Reading `iii://` URIs with the SDKs of the iii project: resources, sections and fetches, through `trigger`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interop.iii_desk import Publisher, Scenario, call, scenarios
from tests.interop.iii_desk import connected as connected
from tests.interop.iii_desk import hub as hub
from tests.interop.iii_desk import publisher as publisher

pytestmark = pytest.mark.timeout(120)

REGISTER, READ, FETCH = "skills::register", "skills::resources-read", "skill::fetch"
BRAIN = call(REGISTER, id="brain", skill="# Brain\n\nRemembers things.\n")
MEMO = call(REGISTER, id="memo", skill="# Memo\n\nWrites things down.\n\n \n")
INTERNAL = "is in an internal namespace and cannot back a skill resource"
GUARDED = ("engine::workers", "state::get", "stream::publish", "iii::internal", "mcp::handler", "a2a::send")


def shown(uri: str, text: str, mime_type: str = "text/markdown") -> dict[str, object]:
    """The expected answer of reading a URI."""
    return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}


def section(name: str, gives: Any, text: str, mime_type: str = "text/markdown") -> Scenario:
    """A scenario that reads a function at its URI."""
    read = call(READ, shown("iii://fn/mine/page", text, mime_type), uri="iii://fn/mine/page")
    return Scenario(name, (read,), {"mine::page": gives})


def unreadable(name: str, uri: str, text: str) -> Scenario:
    """A scenario with an unreadable URI."""
    return Scenario(name, (BRAIN, call(READ, fails=text, uri=uri)))


@scenarios(
    Scenario(
        "resources-list exposes the index and every registered skill",
        (
            MEMO,
            BRAIN,
            call(
                "skills::resources-list",
                {
                    "resources": [
                        {
                            "uri": "iii://skills",
                            "name": "skills",
                            "description": "Index of every registered skill",
                            "mimeType": "text/markdown",
                        },
                        {"uri": "iii://brain", "name": "Brain", "mimeType": "text/markdown"},
                        {"uri": "iii://memo", "name": "Memo", "mimeType": "text/markdown"},
                    ]
                },
            ),
        ),
    ),
    Scenario(
        "resources-templates returns the two URI templates",
        (
            call(
                "skills::resources-templates",
                {
                    "resourceTemplates": [
                        {"uriTemplate": "iii://{skill_id}", "name": "Skill", "mimeType": "text/markdown"},
                        {
                            "uriTemplate": "iii://fn/{function_path}",
                            "name": "Skill section",
                            "mimeType": "text/markdown",
                        },
                    ]
                },
            ),
        ),
    ),
    Scenario(
        "iii://skills renders a markdown index with title and description",
        (BRAIN, call(READ, {"contents": [{"uri": "iii://skills", "mimeType": "text/markdown"}]}, uri="iii://skills")),
        then=lambda answers: (
            answers[1]["contents"][0]["text"].startswith("# Skills\n\nRead each skill's resource for orientation")
            and answers[1]["contents"][0]["text"].endswith("- [`brain`](iii://brain) — Brain — Remembers things.\n")
        ),
    ),
    Scenario(
        "iii://{id} returns the registered body",
        (BRAIN, call(READ, shown("iii://brain", "# Brain\n\nRemembers things.\n"), uri="iii://brain")),
    ),
    section("fn returning a markdown string", "# Page\n", "# Page\n"),
    section("fn returning {content}", {"content": "# Page\n", "more": 1}, "# Page\n"),
    section(
        "fn returning arbitrary JSON",
        {"a": [1, None], "content": 5},
        json.dumps({"a": [1, None], "content": 5}, indent=2),
        "application/json",
    ),
    unreadable("refuses state::", "iii://fn/state/get", f"Function 'state::get' {INTERNAL}"),
    unreadable("refuses mcp::", "iii://fn/mcp/handler", f"Function 'mcp::handler' {INTERNAL}"),
    unreadable("refuses skills::", "iii://fn/skills/register", f"Function 'skills::register' {INTERNAL}"),
    unreadable("refuses prompts::", "iii://fn/prompts/register", f"Function 'prompts::register' {INTERNAL}"),
    unreadable(
        "URI without the iii:// prefix is rejected",
        "https://brain",
        "Resource URI must start with iii://: https://brain",
    ),
    unreadable(
        "iii://fn alone is rejected",
        "iii://fn",
        "Section URI 'iii://fn' is missing a function path: expected iii://fn/{a}/{b}/...: iii://fn",
    ),
    unreadable(
        "iii://fn/ (trailing slash) is rejected",
        "iii://fn/",
        "Resource URI may not contain empty segments (no leading, trailing, or doubled '/'): iii://fn/",
    ),
    unreadable("unknown skill not-found", "iii://nothing", "Skill not found: nothing"),
    unreadable("unknown deep skill not-found", "iii://no/such/skill", "Skill not found: no/such/skill"),
)
def test_skills_resources(publisher: Publisher, scenario: Scenario) -> None:
    publisher.play(scenario)


BOTH = "# iii://brain\n\n# Brain\n\nRemembers things.\n\n---\n\n# iii://memo\n\n# Memo\n\nWrites things down."
ONE = "# iii://brain\n\n# Brain\n\nRemembers things."


@scenarios(
    Scenario(
        "single uri returns the body wrapped under the URI heading",
        (BRAIN, call("skills::fetch_skill", ONE, uri="iii://brain")),
    ),
    Scenario(
        "uris array concatenates sections separated by ---",
        (BRAIN, MEMO, call("skills::fetch_skill", BOTH, uris=["iii://brain", "iii://memo"])),
    ),
    Scenario(
        "skill::fetch alias returns identical output",
        (
            BRAIN,
            MEMO,
            call("skills::fetch_skill", uris=["iii://brain", "iii://memo"]),
            call(FETCH, BOTH, uris=["iii://brain", "iii://memo"]),
        ),
        then=lambda answers: answers[2] == answers[3],
    ),
    Scenario(
        "uris takes precedence over uri",
        (
            BRAIN,
            MEMO,
            call(FETCH, ONE, uri="iii://memo", uris=["iii://brain"]),
            call(FETCH, ONE, uri="iii://brain", uris=[]),
        ),
    ),
    Scenario("missing uri and uris", (call(FETCH, fails="Provide uri or a non-empty uris array"),)),
    Scenario(
        "non-iii:// URI rejected",
        (
            BRAIN,
            call(
                FETCH,
                fails="Invalid URI (must start with iii://): file:///etc/passwd",
                uris=["iii://nothing", "file:///etc/passwd"],
            ),
        ),
    ),
    Scenario("blank uri rejected", (call(FETCH, fails="Provide uri or a non-empty uris array", uri="  "),)),
    Scenario(
        "unknown iii:// id not-found",
        (BRAIN, call(FETCH, fails="Skill not found: nothing", uris=["iii://brain", "iii://nothing"])),
    ),
    Scenario(
        "skill::fetch surfaces the same validation error",
        (
            call("skills::fetch_skill", fails="Provide uri or a non-empty uris array", uris=[" "]),
            call(FETCH, fails="Provide uri or a non-empty uris array", uris=[" "]),
        ),
    ),
    Scenario(
        "order is kept, ends are trimmed and nothing is left out",
        (
            BRAIN,
            MEMO,
            call(
                FETCH,
                "\n\n---\n\n".join((BOTH, ONE)),
                uris=[" iii://brain ", "", "iii://memo", "iii://brain"],
            ),
        ),
    ),
)
def test_skills_fetch(publisher: Publisher, scenario: Scenario) -> None:
    publisher.play(scenario)


@pytest.mark.parametrize("function", GUARDED)
def test_internal_functions_cannot_be_a_section_or_a_prompt(publisher: Publisher, function: str) -> None:
    uri = f"iii://fn/{function.replace('::', '/')}"
    assert f"Function '{function}' {INTERNAL}" in publisher.refusal(READ, uri=uri)
    publisher.call("prompts::register", name="inside", description="Inside.", function_id=function)
    assert f"Prompt handler '{function}' is in an internal" in publisher.refusal("prompts::mcp-get", name="inside")


def test_functions_with_a_dot_cannot_be_a_section(publisher: Publisher) -> None:
    assert "invalid section URI segment" in publisher.refusal(READ, uri="iii://fn/iii.on_foo")
    publisher.call("prompts::register", name="dotted", description="Dotted.", function_id="iii.on_foo")
    assert "Prompt handler 'iii.on_foo' is in an internal" in publisher.refusal("prompts::mcp-get", name="dotted")


def test_the_old_uri_form_calls_no_function_and_suggests_the_new_one(publisher: Publisher) -> None:
    publisher.give(mine__page="# Page")
    answer = publisher.refusal(READ, uri="iii://anything/mine::page")
    assert "Skill not found: anything/mine::page" in answer
    assert "iii://fn/mine/page" in answer
    assert publisher.payloads_of("mine::page") == []
    assert publisher.call(READ, uri="iii://fn/mine/page") == shown("iii://fn/mine/page", "# Page")
    assert publisher.payloads_of("mine::page") == [{}]


def test_descriptions_of_the_index_are_cut_between_characters(publisher: Publisher) -> None:
    publisher.call(REGISTER, id="long", skill=f"# Größe 🎉\n\n{'ü🎉' * 100}\n")
    index = publisher.call(READ, uri="iii://skills")["contents"][0]["text"]
    assert index.endswith(f"- [`long`](iii://long) — Größe 🎉 — {'ü🎉' * 70}...\n")


def test_a_failing_uri_fails_the_whole_fetch_and_later_ones_are_not_read(publisher: Publisher) -> None:
    publisher.give(mine__first="# First", mine__later="# Later")
    publisher.offer("mine::broken", "fail")
    uris = ["iii://fn/mine/first", "iii://fn/mine/broken", "iii://fn/mine/later"]
    assert "trigger mine::broken: it went wrong" in publisher.refusal(FETCH, uris=uris)
    assert (len(publisher.payloads_of("mine::first")), publisher.payloads_of("mine::later")) == (1, [])
