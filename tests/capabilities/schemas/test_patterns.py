import re

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waypost.capabilities.schemas.graph import measure_pattern

HARMLESS = [
    r"^[A-Za-z0-9+/=]*$",
    r"\S",
    r"^[a-z0-9-]+$",
    r"^\d{4}-\d{2}-\d{2}$",
    r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    r"^data:image/(png|jpeg);base64,[A-Za-z0-9+/=]+$",
    r"^https?://.+$",
    r"^.{1,255}$",
    r"^(yes|no|maybe)$",
    r"^(?:a|b)$|^c$",
    "",
]
HEAVY = [r"^[01]*1[01]{20}x$", r"[01]{30}", r"^(?:a?){40}a*[ab]{40}$", r"^([a-z]{1,20}\.)+$", "^a|" + "b" * 30]


@pytest.mark.parametrize("pattern", HARMLESS)
def test_a_pattern_that_is_at_few_positions_at_once_costs_one_check_a_character(pattern: str) -> None:
    assert measure_pattern(pattern).checks == 1


@pytest.mark.parametrize("pattern", HEAVY)
def test_a_pattern_that_can_be_at_many_positions_at_once_costs_as_many(pattern: str) -> None:
    assert measure_pattern(pattern).checks > 75


@pytest.mark.parametrize(
    ("pattern", "positions"),
    [
        ("abc", 3),
        ("a{1000}", 1000),
        ("(ab){3}", 6),
        ("((a{10}){10}){10}", 1000),
        ("(a|bc){2,5}", 15),
        ("a{3,}", 3),
        ("a{,7}", 7),
        ("[abc]{5}", 5),
        (r"\d{5}", 5),
        ("{}{}", 4),
        ("(((", 0),
    ],
)
def test_repetitions_count(pattern: str, positions: int) -> None:
    braces = sum(len(found) for found in re.findall(r"\{[^{}]*\d[^{}]*\}", pattern))

    assert positions <= measure_pattern(pattern).units <= positions + 200 * braces


def test_characters_of_other_scripts_take_more_room() -> None:
    plain = measure_pattern("a{10}").units

    assert plain < measure_pattern(".{10}").units < measure_pattern(r"\p{L}{10}").units
    assert plain < measure_pattern("(?i)a{10}").units
    assert measure_pattern("a" * 100).units < measure_pattern("ä" * 100).units


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "\\", "[", "[^", "(?", "a**+?", ")", "|||"])
def test_an_invalid_pattern_is_measured_too(pattern: str) -> None:
    assert measure_pattern(pattern).units >= 0


atoms = st.sampled_from(
    [
        "a",
        "b",
        "0",
        "é",
        "中",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\S",
        r"\p{L}",
        "[a-z]",
        "[^a-z]",
        "[äöü]",
        r"[\d_]",
        "^",
        "$",
    ]
)
quantifiers = st.sampled_from(["", "", "*", "+", "?", "{3}", "{2,9}", "{4,}", "*?"])
patterns = st.recursive(
    st.builds("{}{}".format, atoms.filter(lambda one: one not in "^$"), quantifiers) | atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join),
        st.builds("({}){}".format, inner, quantifiers),
        st.builds("(?:{}){}".format, inner, quantifiers),
        st.builds("(?i){}".format, inner),
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(patterns)
def test_the_engine_never_takes_more_room_than_was_estimated(pattern: str) -> None:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except jsonschema_rs.ValidationError:
        return
    room = 1024 + 512 * measure_pattern(pattern).units

    jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(size_limit=room))
