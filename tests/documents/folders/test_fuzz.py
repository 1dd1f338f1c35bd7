"""Any Markdown file is read or refused, and a file that was read can be encoded."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from waypost.documents.folder_files import Unfit, check_skill, split

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\t\nß漢😀"), max_size=20)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
DATA = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
PIECES = st.sampled_from(
    [
        "---\n",
        "---",
        "\n",
        "name: pdf\n",
        "description: x\n",
        "&a ",
        "*a",
        "- ",
        ": ",
        "{",
        "[",
        "|\n",
        "!!int ",
        "\ufeff",
    ]
)


@given(
    st.binary(max_size=200) | st.lists(PIECES | st.text(max_size=5), max_size=20).map(lambda all: "".join(all).encode())
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(Unfit):
        fields, _ = split(b"---\n" + data + b"\n---\n")
        msgspec.json.encode(fields)
        check_skill(fields, "pdf")
    with suppress(Unfit):
        split(data)


@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4))
def test_json_front_matter_is_read_unchanged(fields: dict[str, object]) -> None:
    written = json.dumps(fields, ensure_ascii=False)
    read = split(f"---\n{written}\n---\nbody".encode()).fields
    assert read == fields
    assert msgspec.json.decode(msgspec.json.encode(read)) == fields
