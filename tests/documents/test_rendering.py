"""Titles, descriptions and the index, to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.desk import fuzzed
from waypost.documents.content import broken_index, find_description, find_title, render_index, render_output, truncate

HEAD = (
    "# Skills\n\nRead each skill's resource for orientation on when and why to call its functions. Sub-skills are "
    "indented under their parent path so a top-level skill stays small and the LLM can drill in only when it needs "
    "more detail.\n\n"
)
IDS = st.lists(st.from_regex(r"[a-z0-9_-]{1,8}", fullmatch=True), min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("# One\n\n# Two\n", "One"),
        ("## No\n\n#  Yes  \n", "Yes"),
        ("## No\n", None),
        ("#No\n", None),
        ("text\r\n  # Late\r\n", "Late"),
        ("", None),
        ("# \n# Real", "Real"),
    ],
)
def test_the_title_is_the_first_heading_of_the_first_level(body: str, found: str | None) -> None:
    assert find_title(body) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("# T\n\nFirst\n  line.\n\nSecond.\n", "First line."),
        ("# T\n## Sub\n\n### More\nText\n# End\nrest", "Text"),
        ("# T\n\n## S\n", None),
        ("one\r\ntwo\r\n\r\nthree", "one two"),
        ("", None),
    ],
)
def test_the_description_is_the_first_paragraph(body: str, found: str | None) -> None:
    assert find_description(body) == found


def test_a_text_is_cut_between_characters_not_bytes() -> None:
    assert truncate("é" * 140) == "é" * 140
    assert truncate("é" * 141) == "é" * 140 + "..."
    assert truncate("日本語", 2) == "日本..."


def test_the_index_is_a_tree_in_the_order_of_ids() -> None:
    skills = {
        "resend/email": "# resend/email\n\nEmail flows.\n",
        "resend": "# Resend\n\nEmail provider\nintegration.\n\nMore.",
        "resend-old": "no heading",
        "resend/email/send": "# send",
        "long": f"# Long\n\n{'ü' * 141}",
    }

    assert render_index(skills.items()) == (
        HEAD + f"- [`long`](iii://long) — Long — {'ü' * 140}...\n"
        "- [`resend`](iii://resend) — Resend — Email provider integration.\n"
        "- [`resend-old`](iii://resend-old) — resend-old — no heading\n"
        "  - [`resend/email`](iii://resend/email) — resend/email — Email flows.\n"
        "    - [`resend/email/send`](iii://resend/email/send) — send\n"
    )


def test_an_index_without_skills_has_a_note() -> None:
    assert render_index([]) == HEAD + "_No skills are currently registered._\n"
    assert broken_index("gone") == "# Skills\n\n_Error reading skills index: gone_\n"


@fuzzed
@given(st.dictionaries(IDS, st.text()))
def test_every_skill_has_one_row_in_the_index(skills: dict[str, str]) -> None:
    page = render_index(skills.items())
    rows = page.removeprefix(HEAD).split("\n")[:-1]

    assert page.startswith(HEAD)
    if not skills:
        return
    for skill_id, row in zip(sorted(skills), rows, strict=True):
        assert row.startswith(f"{'  ' * skill_id.count('/')}- [`{skill_id}`](iii://{skill_id}) — ")


@pytest.mark.parametrize(
    ("output", "mime_type", "text"),
    [
        ("# Hi", "text/markdown", "# Hi"),
        ("", "text/markdown", ""),
        ({"content": "# Hi", "more": 1}, "text/markdown", "# Hi"),
        ({"content": 1}, "application/json", '{\n  "content": 1\n}'),
        ([1, "é"], "application/json", '[\n  1,\n  "é"\n]'),
        (None, "application/json", "null"),
        ({}, "application/json", "{}"),
    ],
)
def test_an_answer_is_markdown_or_json(output: Any, mime_type: str, text: str) -> None:
    assert render_output(output) == (mime_type, text)
