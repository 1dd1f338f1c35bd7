"""Targets of `iii://` URIs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.desk import fuzzed
from waypost.documents.uris import (
    Index,
    Section,
    Skill,
    Target,
    check_id,
    check_readable,
    list_links,
    parse,
    section_uri,
    skill_uri,
)
from waypost.errors import InvocationFailed
from waypost.workers.functions import is_internal

SEGMENTS = st.lists(st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True), min_size=1, max_size=6)
NOTHING_FOLLOWS = "Section URI 'iii://fn' is missing a function path: expected iii://fn/{a}/{b}/...: iii://fn"
EMPTY_SEGMENTS = "Resource URI may not contain empty segments (no leading, trailing, or doubled '/'): "


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        ("iii://skills", Index()),
        ("iii://brain", Skill("brain")),
        ("iii://parent/sub", Skill("parent/sub")),
        ("iii://a/b/c/d/e/f", Skill("a/b/c/d/e/f")),
        ("iii://skills/x", Skill("skills/x")),
        ("iii://skills?x=1", Skill("skills?x=1")),
        ("iii://a%2Fb", Skill("a%2Fb")),
        ("iii://docs/fn/x", Skill("docs/fn/x")),
        ("iii://fn/foo", Section("foo")),
        ("iii://fn/scope/foo", Section("scope::foo")),
        ("iii://fn/resend/email/send", Section("resend::email::send")),
        ("iii://fn/a/b/c/d", Section("a::b::c::d")),
        ("iii://fn/fn/x", Section("fn::x")),
    ],
)
def test_a_uri_points_at_the_index_a_skill_or_a_section(uri: str, target: Target) -> None:
    assert parse(uri) == target
    assert type(parse(uri)) is type(target)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("http://x", "Resource URI must start with iii://: http://x"),
        ("III://x", "Resource URI must start with iii://: III://x"),
        ("", "Resource URI must start with iii://: "),
        ("iii://", "Empty resource id: iii://"),
        ("iii:///x", EMPTY_SEGMENTS + "iii:///x"),
        ("iii://x/", EMPTY_SEGMENTS + "iii://x/"),
        ("iii://x//y", EMPTY_SEGMENTS + "iii://x//y"),
        ("iii://skills/", EMPTY_SEGMENTS + "iii://skills/"),
        ("iii://fn/", EMPTY_SEGMENTS + "iii://fn/"),
        ("iii://fn", NOTHING_FOLLOWS),
        ("iii://fn/Foo", 'invalid section URI segment "Foo": segment may only contain lowercase'),
        ("iii://fn/iii.on_foo", 'invalid section URI segment "iii.on_foo": segment may only contain'),
        ("iii://fn/a::b", "did you mean iii://fn/a/b?"),
    ],
)
def test_an_invalid_uri_is_refused(uri: str, text: str) -> None:
    with pytest.raises(InvocationFailed, match=re.escape(text)):
        parse(uri)


@fuzzed
@given(st.text() | st.text().map("iii://{}".format) | st.text(alphabet="abfn:/A", max_size=12).map("iii://{}".format))
def test_any_text_is_a_target_or_an_error_with_a_message(text: str) -> None:
    try:
        target = parse(text)
        if isinstance(target, Skill):
            check_readable(target.id)
            check_id(target.id)
    except InvocationFailed as error:
        assert error.code == "invocation_failed"
        assert error.message


@fuzzed
@given(SEGMENTS)
def test_a_function_id_and_its_uri_are_converted_both_ways(segments: list[str]) -> None:
    function_id = "::".join(segments)

    assert section_uri(function_id) == f"iii://fn/{'/'.join(segments)}"
    assert parse(section_uri(function_id)) == Section(function_id)


@fuzzed
@given(SEGMENTS.filter(lambda segments: segments[0] != "fn" and segments != ["skills"]))
def test_a_skill_id_and_its_uri_are_converted_both_ways(segments: list[str]) -> None:
    assert parse(skill_uri("/".join(segments))) == Skill("/".join(segments))


@pytest.mark.parametrize(
    ("skill_id", "texts"),
    [
        ("demo/demo::guide", ["Skill not found: demo/demo::guide", "iii://fn/demo/guide", "invalid id (segment 2 of"]),
        ("x/a::b::c", ["Skill not found: x/a::b::c", "iii://fn/a/b/c"]),
        ("x/state::get", ["Skill not found: x/state::get", "iii://fn/state/get", "is internal"]),
        ("x/Demo::Guide", ["Skill not found: x/Demo::Guide", "invalid id"]),
    ],
)
def test_the_old_form_of_a_section_is_not_found_and_gets_the_new_one(skill_id: str, texts: list[str]) -> None:
    with pytest.raises(InvocationFailed) as caught:
        check_readable(skill_id)

    for text in texts:
        assert text in caught.value.message


INTERNAL = [
    "state::get",
    "engine::workers",
    "stream::publish",
    "iii.on_foo",
    "iii::internal",
    "mcp::handler",
    "a2a::send",
    "skills::register",
    "prompts::register",
]


@pytest.mark.parametrize("function_id", INTERNAL)
def test_infra_namespaces_are_hard_floored(function_id: str) -> None:
    assert is_internal(function_id)


@pytest.mark.parametrize(
    "function_id", ["mem::observe", "brain::summarize", "my-worker::my-fn", "skill::fetch", "state"]
)
def test_ordinary_namespaces_are_not_hard_floored(function_id: str) -> None:
    assert not is_internal(function_id)


def test_links_in_markdown_are_listed_once_without_punctuation() -> None:
    body = (
        "See [`a`](iii://a) and iii://b/c, <iii://d>. Again iii://a. `iii://e`; iii://x/w::f!\n"
        "Patterns: iii://{id} iii://fn/... iii:// http://y"
    )

    assert list_links(body) == ["iii://a", "iii://b/c", "iii://d", "iii://e", "iii://x/w::f"]


@pytest.mark.parametrize(
    "uri", ["iii://fn/" + "a/" * 2_000_000, "iii://" + "/" * 4_000_000, "iii://x/" + "a::" * 9_000]
)
def test_a_uri_that_is_too_long_is_refused_before_it_is_parsed(uri: str) -> None:
    with pytest.raises(
        InvocationFailed, match=r"^Resource URI too long \(\d+ chars; max 8192\): iii://.*…$"
    ) as refused:
        parse(uri)
    assert len(refused.value.message) < 300
