"""Front matter is read strictly, and its values are kept as they are written."""

from __future__ import annotations

import pytest

from tests.documents.folders.library import text
from waypost.documents.folder_files import MAX_FRONT_MATTER_CHARACTERS, Unfit, check_skill, split


def refusal(source: str | bytes, directory: str = "pdf") -> str:
    """The error about a SKILL.md, or an empty text."""
    try:
        check_skill(split(source.encode() if isinstance(source, str) else source).fields, directory)
    except Unfit as unfit:
        return unfit.message
    return ""


def test_every_field_is_read_as_a_json_value() -> None:
    more = (
        "license: MIT\ncompatibility: Python 3.11\nallowed-tools: Read Bash(git:*)\n"
        "metadata: {author: ada, version: '1.0'}\nwhen: 2026-07-28\non: off\nhooks: [1, 2.5, true, null, [x]]\n"
    )
    fields, body = split(text("pdf", more=more).encode())
    assert fields == {
        "name": "pdf",
        "description": "What it does and when to use it.",
        "license": "MIT",
        "compatibility": "Python 3.11",
        "allowed-tools": "Read Bash(git:*)",
        "metadata": {"author": "ada", "version": "1.0"},
        "when": "2026-07-28",
        "on": "off",
        "hooks": [1, 2.5, True, None, ["x"]],
    }
    assert body == "# Title\n\nWhat to do.\n"
    assert refusal(text("pdf", more=more)) == ""


@pytest.mark.parametrize(
    "source",
    [
        text("pdf"),
        "\ufeff" + text("pdf"),
        text("pdf").replace("\n", "\r\n"),
        "---  \nname: pdf\ndescription: x\n---",
        text("pdf", body="---\nmore: no\n---\n"),
        text("pdf", more="metadata: {}\nanchored: &here x\n"),
    ],
)
def test_valid_front_matter_is_accepted(source: str) -> None:
    assert refusal(source) == ""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "does not begin with front matter"),
        ("# Title\n", "does not begin with front matter"),
        ("\n" + text("pdf"), "does not begin with front matter"),
        ("---\nname: pdf\n", "does not begin with front matter"),
        (b"---\nname: \xff\n---\n", "is not UTF-8 text"),
        ("---\n---\n", "not a mapping"),
        ("---\n- name\n---\n", "not a mapping"),
        (text("pdf", more="a: &x 1\nb: *x\n"), "line 5 of its front matter: an alias cannot be used"),
        (text("pdf", more="name: pdf\n"), "the key is already given on line 2"),
        (text("pdf", more="1: x\n"), "a key here is not text"),
        (text("pdf", more="<<: {a: b}\n"), "merge keys"),
        (text("pdf", more="a: !!python/name:os.system x\n"), "the tag"),
        (text("pdf", more="a: .inf\n"), "not finite: `a`"),
        (text("pdf", more="a: [1e999]\n"), "not finite: `a`"),
        (text("pdf", more="a: {b: .nan}\n"), "not finite: `a.b`"),
        (text("pdf", more="a: 9007199254740993\n"), "too large: `a`"),
        (text("pdf", more='a: "\\ud800"\n'), "a"),
        (text("pdf", more="a: [\n"), "the YAML is not valid"),
        (text("pdf", more="a: 1\n... \n--- {}\nb: 2\n"), ""),
        (text("pdf", more=f"a: {'x' * MAX_FRONT_MATTER_CHARACTERS}\n"), "more than 65,536 characters"),
        (text("PDF"), "needs a `name`"),
        (text("-pdf"), "needs a `name`"),
        (text("pdf-"), "needs a `name`"),
        (text("p--df"), "needs a `name`"),
        (text("p_df"), "needs a `name`"),
        (text("x" * 65), "needs a `name` of 1 to 64"),
        (text("7"), "needs a `name`"),
        (text("''"), "needs a `name`"),
        (text("doc"), "has the name `doc`, which must be `pdf`"),
        (text("pdf", "''"), "needs a `description`"),
        (text("pdf", "' '"), "needs a `description`"),
        (text("pdf", "7"), "needs a `description`"),
        (text("pdf", "x" * 1025), "needs a `description` of 1 to 1024"),
        (text("pdf", more="license: 2\n"), "has a `license` that is not text"),
        (text("pdf", more="allowed-tools: [Read]\n"), "has a `allowed-tools` that is not text"),
        (text("pdf", more="compatibility: ''\n"), "has a `compatibility`"),
        (text("pdf", more=f"compatibility: {'x' * 501}\n"), "has a `compatibility`"),
        (text("pdf", more="metadata: [a]\n"), "`metadata` that is not a mapping"),
        (text("pdf", more="metadata: {version: 1.0}\n"), "`metadata.version` that is not text; put it in quotes"),
        (text("pdf", more="metadata: {io.modelcontextprotocol/x: y}\n"), "are reserved"),
    ],
)
def test_invalid_front_matter_is_refused_with_the_reason(source: str | bytes, said: str) -> None:
    refused = refusal(source)
    assert refused
    assert said in refused


def test_the_longest_name_and_description_are_accepted() -> None:
    assert refusal(text("x" * 64, "y" * 1024, more=f"compatibility: {'z' * 500}\n"), "x" * 64) == ""
