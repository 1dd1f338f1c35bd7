"""Edits in files that people wrote change one entry and nothing else."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from waypost.config.edits import JSON, TOML, YAML, Format, Unreadable, append_items, remove_entry, set_entry

ENTRY: Final = {"command": "/bin/waypost", "args": ["serve", "a b.yaml"]}
PATH: Final = ("servers", "hub")

JSON_TEXT: Final = """\
{
    // the first
    "theme": "dark", /* keep */ "size": 1,
    "servers": {
        "other": {"url": "http://x//y"} // the last
    }
}
"""
JSON_AFTER: Final = """\
{
    // the first
    "theme": "dark", /* keep */ "size": 1,
    "servers": {
        "other": {"url": "http://x//y"}, // the last
        "hub": {
            "command": "/bin/waypost",
            "args": [
                "serve",
                "a b.yaml"
            ]
        }
    }
}
"""
TOML_TEXT: Final = """\
# mine
model = "m"

[servers.other]  # the other
command = "x"

# about the profile
[profile]
name = "[servers.hub]"
"""
TOML_AFTER: Final = f"""{TOML_TEXT}
[servers.hub]
command = "/bin/waypost"
args = ["serve", "a b.yaml"]
"""
YAML_TEXT: Final = """\
# mine
model: m  # small
servers:
  other:
    list:
    - a

# after
last: |
  text
"""
YAML_AFTER: Final = """\
# mine
model: m  # small
servers:
  other:
    list:
    - a
  hub:
    command: /bin/waypost
    args:
    - serve
    - a b.yaml

# after
last: |
  text
"""


@pytest.mark.parametrize(
    ("form", "text", "after"),
    [(JSON, JSON_TEXT, JSON_AFTER), (TOML, TOML_TEXT, TOML_AFTER), (YAML, YAML_TEXT, YAML_AFTER)],
    ids=["json", "toml", "yaml"],
)
def test_an_entry_is_added_and_removed_without_other_changes(form: Format, text: str, after: str) -> None:
    assert set_entry(text, form, PATH, ENTRY) == after
    assert set_entry(after, form, PATH, ENTRY) == after
    assert remove_entry(after, form, PATH) == text


@pytest.mark.parametrize(
    ("form", "text", "after"),
    [
        (JSON, "", '{\n  "servers": {\n    "hub": {\n      "n": 1\n    }\n  }\n}\n'),
        (JSON, "// none yet\n", '// none yet\n{\n  "servers": {\n    "hub": {\n      "n": 1\n    }\n  }\n}\n'),
        (JSON, '{"a": 1}', '{"a": 1, "servers": {"hub": {"n": 1}}}'),
        (JSON, '{\n\t"servers": {},\n}', '{\n\t"servers": {\n\t\t"hub": {\n\t\t\t"n": 1\n\t\t}\n\t},\n}'),
        (JSON, '{\n "servers": {\n  "a": 1,\n }\n}', '{\n "servers": {\n  "a": 1,\n  "hub": {\n   "n": 1\n  },\n }\n}'),
        (TOML, "", "[servers.hub]\nn = 1\n"),
        (TOML, "a = 1", "a = 1\n\n[servers.hub]\nn = 1\n"),
        (TOML, "[servers.hub]\nn = 2\n\n[b]\n", "[servers.hub]\nn = 1\n\n[b]\n"),
        (TOML, "[servers.hub]\nn = 2\n[servers.hub.env]\nA = 1\n[b]\n", "[servers.hub]\nn = 1\n[b]\n"),
        (YAML, "", "servers:\n  hub:\n    n: 1\n"),
        (YAML, "servers: # none\nz: 1\n", "servers: # none\n  hub:\n    n: 1\nz: 1\n"),
        (YAML, "servers: {} # none", "servers: # none\n  hub:\n    n: 1\n"),
        (YAML, "servers: {a: {b: 1}}\n", 'servers: {a: {b: 1}, "hub": {"n": 1}}\n'),
        (YAML, "servers:\n    hub:\n        n: 2\n    z: 1\n", "servers:\n    z: 1\n    hub:\n      n: 1\n"),
    ],
)
def test_the_form_of_the_file_is_kept(form: Format, text: str, after: str) -> None:
    assert set_entry(text, form, PATH, {"n": 1}) == after


@pytest.mark.parametrize(
    ("form", "text", "after"),
    [
        (JSON, '{"servers": {"hub": 1}}', '{"servers": {}}'),
        (JSON, '{"servers": {"hub": 1, "b": 2}}', '{"servers": {"b": 2}}'),
        (JSON, '{"servers": {"b": 2, "hub": 1}}', '{"servers": {"b": 2 }}'),
        (JSON, '{\n  "servers": {\n    "hub": {}\n  }\n}\n', '{\n  "servers": {}\n}\n'),
        (TOML, '[servers.hub]\n[servers."hub".env]\nA = "b"\n\n# next\n[x]\n', "\n# next\n[x]\n"),
        (YAML, "servers:  # all\n  hub:\n    a: 1\n", "servers: {}  # all\n"),
        (YAML, "servers:\n  hub: {a: 1}\n  b: 2\n", "servers:\n  b: 2\n"),
    ],
)
def test_removing_an_entry_leaves_a_valid_file(form: Format, text: str, after: str) -> None:
    assert remove_entry(text, form, PATH) == after


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        (JSON, '{"servers": ', "it is not JSON"),
        (JSON, "[1]", "not a mapping"),
        (JSON, '{"servers": [1]}', "'servers' is not a mapping"),
        (JSON, "[" * 100_000, "nested too deeply"),
        (TOML, "a = ", "it is not TOML"),
        (TOML, 'servers = {hub = {command = "x"}}', "only a person can change it"),
        (YAML, "a: [1", "it is not YAML"),
        (YAML, "- 1", "not a mapping"),
        (YAML, "a: &x {b: 1}\nservers: *x\n", "only a person can change it"),
    ],
)
def test_a_file_in_another_format_is_refused(form: Format, text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        set_entry(text, form, PATH, ENTRY)


@pytest.mark.parametrize("form", [JSON, TOML, YAML], ids=lambda form: form.name)
def test_an_entry_that_is_missing_cannot_be_removed(form: Format) -> None:
    with pytest.raises(KeyError):
        remove_entry("", form, PATH)


KEYS: Final = st.text("abc-_ :#/\"'\\é\n", min_size=1, max_size=6)
VALUES: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SECTIONS: Final = st.dictionaries(KEYS.filter(lambda key: key != "hub"), VALUES, max_size=3)


@given(data=st.dictionaries(KEYS, VALUES, max_size=3), servers=SECTIONS, indent=st.sampled_from([None, 2, 4]))
def test_an_entry_is_added_to_and_removed_from_any_json_object(
    data: dict[str, Any], servers: dict[str, Any], indent: int | None
) -> None:
    text = json.dumps({**data, "servers": servers, "z": 1}, indent=indent)

    after = set_entry(text, JSON, PATH, ENTRY)

    assert json.loads(after) == {**data, "servers": {**servers, "hub": ENTRY}, "z": 1}
    assert json.loads(remove_entry(after, JSON, PATH)) == json.loads(text)


@given(data=st.dictionaries(KEYS, VALUES, max_size=3), servers=SECTIONS, flow=st.sampled_from([None, False, True]))
def test_any_yaml_mapping_gets_the_entry_or_is_refused(
    data: dict[str, Any], servers: dict[str, Any], flow: bool | None
) -> None:
    text = yaml.safe_dump({**data, "servers": servers, "z": 1}, default_flow_style=flow, sort_keys=False)

    try:
        after = set_entry(text, YAML, PATH, ENTRY)
    except Unreadable:
        assert flow is not False
        return

    assert yaml.safe_load(after)["servers"]["hub"] == ENTRY


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", "proxy:\n  import:\n  - 2\n"),
        ("proxy:\n  expose: []\n", "proxy:\n  expose: []\n  import:\n  - 2\n"),
        ("proxy:\n  import:\n    # one\n    - 1 # first\n\n# end\nb: 1\n",
         "proxy:\n  import:\n    # one\n    - 1 # first\n    - 2\n\n# end\nb: 1\n"),
        ("proxy: {import: [1, ]}\n", "proxy: {import: [1, 2]}\n"),
        ("proxy:\n  import:\n", "proxy:\n  import:\n  - 2\n"),
    ],
)  # fmt: skip
def test_items_are_added_to_a_list(text: str, after: str) -> None:
    assert append_items(text, ("proxy", "import"), [2]) == after
