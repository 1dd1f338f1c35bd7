from __future__ import annotations

import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waypost.capabilities.resources import UriTemplate
from waypost.errors import DefinitionError

VALUES = {"var": "value", "hello": "Hello World!", "half": "50%", "path": "/foo/bar", "ü": ""}

literals = st.text(string.ascii_letters + string.digits + "-._~:/?=&+*()", max_size=5)
values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
# The value of a reserved expansion may be encoded already, so only text without % round-trips.
reserved = values.filter(lambda value: "%" not in value)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{half}", "50%25"),
        ("O{path}X", "O%2Ffoo%2FbarX"),
        ("{+var}", "value"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{+path}/here", "/foo/bar/here"),
        ("here?ref={+path}", "here?ref=/foo/bar"),
        ("X{#var}", "X#value"),
        ("X{#hello}", "X#Hello%20World!"),
        ("X{#undef}", "X"),
        ("plain", "plain"),
    ],
)
def test_expansion_follows_rfc_6570(template: str, uri: str) -> None:
    assert UriTemplate(template).expand(**VALUES) == uri


def test_reserved_expansion_keeps_encoded_characters() -> None:
    assert UriTemplate("{+a}").expand(a="x%20y") == "x%20y"
    assert UriTemplate("{a}").expand(a="x%20y") == "x%2520y"


@settings(deadline=None)
@given(st.lists(values, min_size=1, max_size=4), st.data())
def test_matching_an_expansion_returns_the_values(given_values: list[str], data: st.DataObject) -> None:
    variables = {f"v{number}": value for number, value in enumerate(given_values)}
    text = "x://" + "/".join(f"{data.draw(literals)}{{{name}}}" for name in variables)
    tail = data.draw(st.sampled_from(["", "/{+rest}", "{#rest}"]))
    if tail:
        variables["rest"] = data.draw(reserved)
    template = UriTemplate(text + tail)
    assert template.variables == tuple(variables)
    assert template.match(template.expand(**variables)) == variables


@settings(deadline=None)
@given(st.text(max_size=30))
def test_matching_never_fails_and_the_found_values_match_again(uri: str) -> None:
    template = UriTemplate("a:{one}/{two}")
    found = template.match(uri)
    if found is not None:
        assert template.match(template.expand(**found)) == found


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("notes://{id}", "notes://"),
        ("notes://{id}", "notes://a/b"),
        ("notes://{id}", "notes://a?x=1"),
        ("notes://{id}", "notes://a#f"),
        ("notes://{id}", "NOTES://a"),
        ("notes://{id}", "notes://%ff"),
        ("a.c", "abc"),
        ("{+path}.md", "/a/b.txt"),
    ],
)
def test_an_address_that_no_values_give_does_not_match(template: str, uri: str) -> None:
    assert UriTemplate(template).match(uri) is None


def test_variables_are_decoded_and_a_reserved_one_may_hold_slashes() -> None:
    assert UriTemplate("f://{host}/{+path}").match("f://h%C3%BC/a/b%20c") == {"host": "hü", "path": "a/b c"}


def test_a_reserved_variable_holds_slashes_before_another_variable_too() -> None:
    assert UriTemplate("f://{+path}/{name}").match("f://a/b/c") == {"path": "a/b", "name": "c"}
    assert UriTemplate("f://{+path}/history/{n}").match("f://a/b/history/3") == {"path": "a/b", "n": "3"}


def test_a_fragment_may_be_missing() -> None:
    assert UriTemplate("d:x{#part}").match("d:x") == {"part": ""}
    assert UriTemplate("d:x{#part}").match("d:x#top") == {"part": "top"}


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("a:{b", "unbalanced brace"),
        ("a:b}", "unbalanced brace"),
        ("a:{{b}}", "unbalanced brace"),
        ("a:{}", "is unknown"),
        ("a:{b,c}", "is unknown"),
        ("a:{?b}", "is unknown"),
        ("a:{b*}", "is unknown"),
        ("a:{1b}", "is unknown"),
        ("a:{b}/{b}", "uses a variable twice"),
    ],
)
def test_a_template_beyond_the_supported_levels_is_refused(template: str, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        UriTemplate(template)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("x://{a}-{b}-{c}/end", "x://" + "-" * 8_000),
        ("x://{+a}/{+b}/{+c}.md", "x://" + "/" * 8_000),
        ("x://{+a}/{b}.{c}", "x://" + "/a.b" * 2_000 + "/"),
        ("x://{+a}-{b}-{c}", "x://" + "-a" * 4_000 + "/"),
        ("x://{+a}x{b}y", "x://" + "x" * 8_000),
        ("x://{+a}x{b}y{c}.md", "x://" + "x" * 8_000 + ".md"),
    ],
    ids=["simple", "reserved", "separated", "reserved first", "reserved with a tail", "three with a tail"],
)
def test_a_hostile_address_is_refused_quickly(template: str, uri: str) -> None:
    matched = UriTemplate(template)
    start = time.thread_time()
    assert matched.match(uri) is None
    assert time.thread_time() - start < 2


def test_a_long_address_matches_where_that_takes_linear_time() -> None:
    assert UriTemplate("x://{+a}/{b}").match("x://" + "a" * 8_000 + "/b") is not None
    assert UriTemplate("x://{+a}-{+b}").match("x://a-" + "b" * 8_000) is not None
    assert UriTemplate("x://{+a}.{b}").match("x://" + "a" * 900 + ".b") is not None
