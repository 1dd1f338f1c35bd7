from __future__ import annotations

import functools
from typing import Any

import pytest
from msgspec import UNSET

from waypost import Hub
from waypost.capabilities.capability import (
    Metadata,
    Options,
    ResourceOptions,
    ToolOptions,
    name_in_errors,
    parse_options,
    resolve_hidden,
    wire_annotations,
    with_category,
)
from waypost.errors import DefinitionError


def test_options_that_are_not_given_are_unset() -> None:
    options = parse_options({}, "Tool 'x'", ToolOptions)
    assert options.definition(None) == {"title": UNSET, "description": UNSET, "icons": UNSET, "meta": UNSET}
    assert options.traits(2) == {"metadata": Metadata(), "timeout": None, "scopes": (), "permissions": ()}


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (ToolOptions, {"uri": "a:b"}, "unknown option 'uri'"),
        (ResourceOptions, {"input": {}}, "unknown option 'input'"),
        (Options, {"mime_type": "text/plain"}, "unknown option 'mime_type'"),
        (Options, {"naem": "x"}, "unknown option 'naem', did you mean 'name'"),
        (Options, {"title": 3}, r"title must be text, not 3\.$"),
        (Options, {"tags": "abc"}, r"tags must be a list of texts, not 'abc'\.$"),
        (Options, {"scopes": ["a", 1]}, r"scopes must be a list of texts, not \['a', 1\]\.$"),
        (Options, {"hidden": "no"}, r"hidden must be True or False, not 'no'\.$"),
        (Options, {"timeout": "3"}, r"timeout must be a number of seconds, not '3'\.$"),
        (Options, {"timeout": -1.0}, "timeout must be more than 0 seconds, not -1.0"),
        (Options, {"timeout": float("nan")}, "timeout must be more than 0 seconds"),
        (ToolOptions, {"task": "maybe"}, r"task must be 'forbidden', 'optional' or 'required', not 'maybe'\.$"),
        (Options, {"meta": {"a": object()}}, r"meta cannot be sent as JSON: Encoding objects of type object"),
        (Options, {"icons": ["x"]}, r"an icon is a dict \{'src': URL, .*\}, not 'x'\.$"),
        (Options, {"icons": [{"src": 5}]}, r"an icon is a dict .*, not \{'src': 5\}\.$"),
        (Options, {"icons": [{"src": "x", "theme": "blue"}]}, "an icon is a dict"),
        (ResourceOptions, {"size": "big"}, r"size must be a number of bytes, not 'big'\.$"),
    ],
)
def test_an_invalid_option_is_refused_with_its_subject(
    kind: type[Options], given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=rf"^Tool 'x': {sentence}"):
        parse_options(given, "Tool 'x'", kind)


@pytest.mark.parametrize("kind", [ToolOptions, ResourceOptions])
def test_the_error_for_an_option_of_the_wrong_type_says_what_it_must_be(kind: type[Options]) -> None:
    for name in kind.__struct_fields__:
        if name in ("input", "output", "input_schema", "output_schema"):
            continue
        with pytest.raises(DefinitionError, match=rf"^Tool 'x': {name} must be .*, not 1j\.$"):
            parse_options({name: 1j}, "Tool 'x'", kind)


@pytest.mark.parametrize(
    ("hidden", "visible", "flag"),
    [
        (None, None, None),
        (True, None, True),
        (False, None, False),
        (None, True, False),
        (None, False, True),
        (True, True, True),
        (False, False, False),
    ],
)
def test_hidden_has_precedence_over_visible(hidden: bool | None, visible: bool | None, flag: bool | None) -> None:
    assert resolve_hidden(hidden, visible) is flag


def test_a_category_is_added_to_a_copy_of_meta() -> None:
    meta = {"category": "Old", "k": 1}
    assert with_category(meta, "New") == {"category": "New", "k": 1}
    assert with_category(UNSET, "New") == {"category": "New"}
    assert with_category(meta, None) is meta
    assert with_category(UNSET, None) is UNSET
    assert meta == {"category": "Old", "k": 1}


def test_an_explicit_category_of_none_overrides_the_default() -> None:
    assert parse_options({}, "x", Options).traits(2, "Kit")["metadata"].category == "Kit"
    assert parse_options({"category": None}, "x", Options).traits(2, "Kit")["metadata"].category is None
    assert parse_options({"category": "Own"}, "x", Options).traits(2, "Kit")["metadata"].category == "Own"


def test_annotations_are_translated_to_wire_names() -> None:
    assert wire_annotations({"open_world_hint": True, "idempotentHint": False}, "x") == {
        "openWorldHint": True,
        "idempotentHint": False,
    }
    assert wire_annotations(None, "x") is UNSET


def test_icons_are_translated_to_wire_names() -> None:
    options = parse_options({"icons": [{"src": "x.png", "mime_type": "image/png"}]}, "x", Options)
    assert options.icons == [{"src": "x.png", "mimeType": "image/png"}]


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"read_only_hint": "yes"}, "the annotation read_only_hint must be True or False, not 'yes'"),
        ({"destructiveHint": 1}, "the annotation destructiveHint must be True or False, not 1"),
        ({"title": 5}, "the annotation title must be text, not 5"),
    ],
)
def test_an_ill_typed_annotation_is_refused(annotations: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^Tool 'x': {sentence}\.$"):
        wire_annotations(annotations, "Tool 'x'")


def test_an_unknown_annotation_comes_with_a_hint() -> None:
    with pytest.raises(DefinitionError, match="unknown annotation 'readonly_hint', did you mean 'read_only_hint'"):
        wire_annotations({"readonly_hint": True}, "Tool 'x'")


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("descripton", "x: unknown option 'descripton', did you mean 'description'?"),
        ("zzz", "x: unknown option 'zzz'."),
    ],
)
def test_a_hint_is_given_only_for_a_similar_option(key: str, sentence: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        parse_options({key: 1}, "x", Options)

    assert refused.value.message == sentence


def test_a_definition_error_is_prefixed_with_its_subject_once() -> None:
    def fail(subject: str) -> None:
        raise DefinitionError("is wrong", subject=subject)

    for subject in ("", "Tool 'x'"):
        with pytest.raises(DefinitionError, match=r"^Tool 'x': is wrong$"):
            name_in_errors("Tool 'x'", functools.partial(fail, subject))
    with pytest.raises(DefinitionError, match=r"^Tool 'x': Field 'y': is wrong$"):
        name_in_errors("Tool 'x'", functools.partial(fail, "Field 'y'"))
    assert name_in_errors("Tool 'x'", lambda: 3) == 3


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"page_size": 0}, "page_size must be a whole number of at least 1, not 0."),
        ({"max_body": "4"}, "max_body must be a whole number of at least 1, not '4'."),
        ({"tool_timeout": 0}, "tool_timeout must be a number of seconds above 0, not 0."),
        ({"session_idle": "x"}, "session_idle must be a number of seconds above 0, not 'x'."),
        ({"task_after": -1}, "task_after must be a number of seconds, 0 or more, not -1."),
        ({"names": "x"}, "names must be 'auto', 'canonical' or 'portable', not 'x'."),
        ({"surface": "x"}, "surface must be 'gateway', 'full' or 'both', not 'x'."),
        ({"audit": None}, "audit must be 'store', 'file', 'stderr' or 'none', not None."),
        ({"capabilities": []}, "capabilities must be a dict of what each capability declares, not []."),
        ({"name": 5}, "name must be text, not 5."),
    ],
)
def test_a_hub_refuses_invalid_options(option: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Hub(**{"name": "hub", "version": "1", **option})

    assert refused.value.message == f"Hub: {sentence}"
