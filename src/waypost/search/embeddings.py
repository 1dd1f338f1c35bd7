"""Embeddings of documents and queries: byte-pair tokens, vectors, and the comparison of all documents with a query.

The library that the vocabulary is made for needs a tenth of a second to read it and lets nothing else run meanwhile. In
a vocabulary of this kind a piece is the earlier merged the smaller its number, so the vocabulary alone says everything.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from waypost.search.documents import Document
from waypost.search.words import split_words

_SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
_MAX_WORD_CHARACTERS: Final = 48


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
            for start in range(0, len(word), _MAX_WORD_CHARACTERS):
                found.extend(self._of_word(_SPACE + word[start : start + _MAX_WORD_CHARACTERS]))
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


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from waypost.search.signals import Query, Scores

    Matrix = NDArray[np.float32]

_log: Final = logging.getLogger(__name__)

_THREADS: Final = "OPENBLAS_NUM_THREADS"
PACKAGE: Final = "wordllama"
MODULES: Final = (PACKAGE, "numpy")
DIMENSIONS: Final = 128
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_BATCH: Final = 256
_BATCHES: Final = 8
_MAX_TEXT_CHARACTERS: Final = 2000


def is_installed() -> bool:
    """Whether the extra `embeddings` is there."""
    return all(find_spec(module) is not None for module in MODULES)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let the linear algebra that is loaded meanwhile run in the thread that asks for it.

    Products as small as ours gain nothing from more threads, and on a busy machine wait for them.
    """
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before


class _Pieces(msgspec.Struct):
    vocab: dict[str, int]


class _TokenizerFile(msgspec.Struct):
    model: _Pieces


class _Tensor(msgspec.Struct):
    dtype: Literal["F16"]
    shape: tuple[int, int]
    data_offsets: tuple[int, int]


class _Model:
    """Turns texts into vectors: the direction of the sum of their tokens' vectors."""

    def __init__(self) -> None:
        with _one_thread():
            import numpy as np

        # Here rather than in the first search that needs it.
        import_module("waypost.search.fusion")
        spec = find_spec(PACKAGE)
        assert spec is not None
        assert spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0])
        self.np = np
        self._weights = self._read(folder / _WEIGHTS)
        described = msgspec.json.decode((folder / _TOKENIZER).read_bytes(), type=_TokenizerFile)
        self._tokens = Tokens(described.model.vocab)

    def _read(self, file: Path) -> NDArray[np.float16]:
        """The only tensor of a safetensors file: the length of a header, the header, the numbers."""
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            (tensor,) = msgspec.json.decode(opened.read(length), type=dict[str, _Tensor]).values()
        offset = 8 + length + tensor.data_offsets[0]
        weights = self.np.memmap(file, self.np.float16, "r", offset, tensor.shape)
        # The model was trained so that the first dimensions say most.
        return self.np.array(weights[:, :DIMENSIONS])

    def sums(self, texts: Sequence[str]) -> Matrix:
        """For each text, the sum of the vectors of its tokens."""
        np = self.np
        made: Matrix = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            made[row] = self._weights[self._tokens.of(text[:_MAX_TEXT_CHARACTERS])].sum(axis=0, dtype=np.float32)
        return made

    def unit(self, vectors: Matrix) -> Matrix:
        """The same directions, all of length one."""
        np = self.np
        lengths: Matrix = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        scaled: Matrix = vectors / np.maximum(lengths, np.float32(1e-9))
        return scaled


class _Wanted(NamedTuple):
    slot: int
    ticket: int
    text: str


class Vectors(NamedTuple):
    """Matrix of documents, and of the sentences to find them by."""

    documents: Matrix
    queries: Matrix


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="waypost-embeddings")


class Embeddings:
    """The vectors of a catalog, kept up to date in a thread; documents are known by their slots."""

    def __init__(self) -> None:
        self._thread = _thread()
        self._loading: Future[_Model] | None = None
        self._wanted: dict[int, _Wanted] = {}
        self._tickets: dict[int, int] = {}
        self._last_ticket = 0
        self._highest = 0
        self._failed = False
        self._made: deque[tuple[list[_Wanted], Future[Matrix]]] = deque()
        self._matrix: Matrix | None = None

    def add(self, slot: int, document: Document) -> None:
        """Have a vector made for a document, which may follow another in its slot."""
        self._last_ticket += 1
        self._tickets[slot] = self._last_ticket
        self._highest = max(self._highest, slot)
        self._wanted[slot] = _Wanted(slot, self._last_ticket, _text(document))

    def remove(self, slot: int, document: Document) -> None:
        """Remove the vector of a document."""
        del self._tickets[slot]
        self._wanted.pop(slot, None)
        if self._matrix is not None and slot < len(self._matrix):
            self._matrix[slot] = 0

    def start(self) -> Future[_Model]:
        """Load the model and make what vectors are missing, without waiting for either."""
        if self._loading is None:
            self._loading = self._thread.submit(_Model)
        waiting = list(self._wanted.values())
        self._wanted.clear()
        for first in range(0, len(waiting), _BATCH):
            batch = waiting[first : first + _BATCH]
            texts = [wanted.text for wanted in batch]
            self._made.append((batch, self._thread.submit(_vectors, self._loading, texts)))
        return self._loading

    def _model(self) -> _Model | None:
        loading = self.start()
        if self._failed or not loading.done():
            return None
        error = loading.exception()
        if error is None:
            return loading.result()
        self._failed = True
        _log.warning("Embeddings cannot be loaded, so sentences are ranked by their words alone: %s", error)
        return None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every document has its vector; for tests and measurements, not on an event loop."""
        model = self.start().result(timeout)
        for _, made in self._made:
            made.result(timeout)
        self._take(model, len(self._made))

    def close(self) -> None:
        """Stop the thread; a later search starts one again, with what was not made yet."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = _thread()
        if self._loading is not None and self._loading.cancelled():
            self._loading = None
        for batch, made in self._made:
            if made.cancelled():
                self._wanted = {wanted.slot: wanted for wanted in batch if self._is_due(wanted)} | self._wanted
        self._made = deque(entry for entry in self._made if not entry[1].cancelled())

    def _is_due(self, wanted: _Wanted) -> bool:
        return self._tickets.get(wanted.slot) == wanted.ticket

    def embed(self, sentences: Sequence[str]) -> Vectors | None:
        """The vectors of documents by their slots, and those of the sentences: of all together first, then of each.

        None before the model is loaded, which this starts.
        """
        model = self._model()
        if model is None:
            return None
        self._take(model, _BATCHES)
        if self._matrix is None:
            return None
        sums = model.sums(sentences)
        return Vectors(self._matrix, model.unit(model.np.vstack([sums.sum(axis=0), sums])))

    def score(self, query: Query, scores: Scores) -> Scores:
        """Add how similar documents are to the query in meaning."""
        if query.vectors is None or isinstance(scores, dict):
            return scores
        from waypost.search import fusion

        return fusion.add_meaning(scores, query.vectors)

    def _take(self, model: _Model, most: int) -> None:
        """Put vectors that are finished into the matrix, so many batches at most."""
        while most and self._made and self._made[0][1].done():
            most -= 1
            batch, made = self._made.popleft()
            rows = [row for row, wanted in enumerate(batch) if self._tickets.get(wanted.slot) == wanted.ticket]
            self._matrix = self._large_enough(model.np)
            self._matrix[[batch[row].slot for row in rows]] = made.result()[rows]

    def _large_enough(self, np: ModuleType) -> Matrix:
        if self._matrix is not None and len(self._matrix) > self._highest:
            return self._matrix
        larger: Matrix = np.zeros((self._highest + 1 + self._highest // 4, DIMENSIONS), np.float32)
        if self._matrix is not None:
            larger[: len(self._matrix)] = self._matrix
        return larger


def _vectors(loading: Future[_Model], texts: list[str]) -> Matrix:
    model = loading.result()
    return model.unit(model.sums(texts))


def _text(document: Document) -> str:
    title = document.title if document.title != document.id else ""
    named = " ".join(split_words(f"{document.id} {title}"))
    return f"{named}. {document.description} {' '.join((*document.tags, *document.aliases))}"
