"""Tokens are those of the library that the vocabulary is made for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from waypost.search import embeddings
from waypost.search.embeddings import Tokens

TEXTS = [
    "Find the area of a triangle with a base of 10 units and height of 5 units.",
    "getHTTPResponseCode(github.list_issues) -> {'a': [1, 2.5]}",
    "Ä Straße in 東京, naïve café 🙂 \x07",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "",
]


def test_tokens_are_merged_in_the_order_of_their_numbers() -> None:
    vocabulary = {piece: number for number, piece in enumerate(["<0x62>", "▁", "a", "c", "ac", "▁ac", "▁a", "ca"])}

    assert Tokens(vocabulary).of("acca b") == [5, 7, 1, 0]


@pytest.mark.skipif(not embeddings.is_installed(), reason="needs waypost[embeddings]")
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_the_same_as_those_of_the_library(text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    spec = find_spec(embeddings.PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / embeddings._TOKENIZER
    described = msgspec.json.decode(file.read_bytes())
    library = tokenizers.Tokenizer.from_file(str(file))

    ours = Tokens(described["model"]["vocab"]).of(text)

    assert ours == library.encode(text, add_special_tokens=False).ids if text else ours == []


def test_a_word_without_end_is_cut() -> None:
    vocabulary = {piece: number for number, piece in enumerate(["▁", "a", "aa", "aaaa"])}

    assert len(Tokens(vocabulary).of("a" * 100_000)) < 100_000
