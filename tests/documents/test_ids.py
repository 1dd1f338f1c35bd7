"""Validation of ids, bodies, names and arguments."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.desk import fuzzed
from waypost.documents.uris import MAX_BODY_BYTES, check_arguments, check_body, check_id, check_name, check_new_id
from waypost.errors import InvocationFailed

GOOD = re.compile(r"(?!fn(/|$))[a-z0-9_-]{1,64}(/[a-z0-9_-]{1,64})*")
CHARACTERS = "lowercase ASCII letters, digits, '-' and '_'"


@pytest.mark.parametrize(
    "skill_id",
    ["brain", "my-worker_2", "resend/email/send", "docs/fn-reference", "docs/fn", "fnord", "a" * 64, "skills/x"],
)
def test_an_id_of_lowercase_segments_is_accepted(skill_id: str) -> None:
    check_new_id(skill_id)


def test_the_longest_id_has_1024_bytes() -> None:
    check_id("/".join(["a" * 63] * 16) + "b")


@pytest.mark.parametrize(
    ("skill_id", "text"),
    [
        ("", "id must be non-empty"),
        ("/x", "id may not have a leading or trailing '/': \"/x\""),
        ("x/", "id may not have a leading or trailing '/': \"x/\""),
        ("/", "id may not have a leading or trailing '/': \"/\""),
        ("/".join(["a" * 63] * 16) + "bc", 'id too long (1025 chars; max 1024): "aaa'),
        ("é" * 513, 'id too long (1026 chars; max 1024): "é'),
        ("a//b", 'invalid id (segment 2 of "a//b"): segment must be non-empty'),
        ("a/" + "b" * 65, f'segment too long (65 chars; max 64): "{"b" * 65}"'),
        ("Brain", f'invalid id (segment 1 of "Brain"): segment may only contain {CHARACTERS}: "Brain"'),
        ("a b", f'segment may only contain {CHARACTERS}: "a b"'),
        ("x/a::b", f'invalid id (segment 2 of "x/a::b"): segment may only contain {CHARACTERS}: "a::b"'),
        ('a"\n', r'invalid id (segment 1 of "a\"\n")'),
        ("a\n", r'segment 1 of "a\n"'),
        ("fn", 'id may not have "fn" as its first segment (reserved as the iii://fn/ section-URI marker): "fn"'),
        ("fn/x", 'section-URI marker): "fn/x"'),
        ("skills", "iii://skills is the index of all skills"),
    ],
)
def test_an_invalid_id_is_refused_with_the_first_rule_it_breaks(skill_id: str, text: str) -> None:
    with pytest.raises(InvocationFailed, match=re.escape(text)):
        check_new_id(skill_id)


@fuzzed
@given(st.text() | st.from_regex(r"[a-z0-9_/-]{0,140}", fullmatch=True) | st.from_regex(GOOD, fullmatch=True))
def test_ids_are_accepted_exactly_by_their_rules(skill_id: str) -> None:
    is_good = GOOD.fullmatch(skill_id) is not None and len(skill_id) <= 1024
    try:
        check_id(skill_id)
    except InvocationFailed as error:
        assert not is_good
        assert "\n" not in error.message
    else:
        assert is_good


@pytest.mark.parametrize("body", ["a" * MAX_BODY_BYTES, "é" * (MAX_BODY_BYTES // 2), " ", "\n"])
def test_a_body_of_up_to_262144_bytes_is_accepted(body: str) -> None:
    check_body(body)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "skill must be non-empty"),
        ("a" * 262145, "skill body too large (262145 bytes; max 262144)"),
        ("é" * 131073, "skill body too large (262146 bytes; max 262144)"),
    ],
)
def test_an_empty_or_larger_body_is_refused(body: str, text: str) -> None:
    with pytest.raises(InvocationFailed, match=re.escape(text)):
        check_body(body)


@pytest.mark.parametrize("name", ["send-email", "a_b", "x", "a" * 64])
def test_a_name_of_lowercase_letters_digits_and_dashes_is_accepted(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "name must be non-empty"),
        ("a" * 65, "name too long (65 chars; max 64)"),
        ("Greet", f'name may only contain {CHARACTERS}: "Greet"'),
        ("a b", f'name may only contain {CHARACTERS}: "a b"'),
        ("a::b", f'name may only contain {CHARACTERS}: "a::b"'),
        ("a/b", "name may only contain"),
    ],
)
def test_an_invalid_name_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvocationFailed, match=re.escape(text)):
        check_name(name)


def test_argument_names_are_unique_and_not_empty() -> None:
    check_arguments(["to", "subject"])
    with pytest.raises(InvocationFailed, match="argument name must be non-empty"):
        check_arguments(["to", ""])
    with pytest.raises(InvocationFailed, match="duplicate argument name: to"):
        check_arguments(["to", "to"])


@pytest.mark.parametrize("check", [check_id, check_name])
def test_an_oversized_id_is_cut_in_the_error(check: Callable[[str], None]) -> None:
    with pytest.raises(InvocationFailed) as refused:
        check("A" * 4_000_000)
    assert "too long (4000000 chars; max" in refused.value.message
    assert len(refused.value.message) < 1200
