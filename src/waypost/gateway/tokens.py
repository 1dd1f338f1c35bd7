"""Byte-pair tokens of a text, as the vocabulary of the embeddings knows them.

The library that the vocabulary is made for needs a tenth of a second to read it and lets nothing else run meanwhile. In
a vocabulary of this kind a piece is the earlier merged the smaller its number, so the vocabulary alone says everything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
_LONGEST_WORD: Final = 48


class Tokens:
    """Cuts texts into the pieces of a vocabulary."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self._of_word = lru_cache(maxsize=32_768)(self._merged)

    def of(self, text: str) -> list[int]:
        """The numbers of a text's tokens."""
        found: list[int] = []
        for word in text.split():
            # Merging takes the square of a word's length; nothing that long is a word.
            for start in range(0, len(word), _LONGEST_WORD):
                found.extend(self._of_word(_SPACE + word[start : start + _LONGEST_WORD]))
        return found

    def _merged(self, word: str) -> tuple[int, ...]:
        pieces = list(word)
        while True:
            at, number = -1, len(self._vocabulary)
            for place in range(len(pieces) - 1):
                merged = self._vocabulary.get(pieces[place] + pieces[place + 1], number)
                if merged < number:
                    at, number = place, merged
            if at < 0:
                return tuple(number for piece in pieces for number in self._numbers(piece))
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]

    def _numbers(self, piece: str) -> list[int]:
        """The number of a piece, or those of its bytes when it has none."""
        number = self._vocabulary.get(piece)
        if number is not None:
            return [number]
        return [self._vocabulary[f"<0x{byte:02X}>"] for byte in piece.encode(errors="replace")]
