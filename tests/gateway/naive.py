"""The judge of the weighted score: the words of its definition as loops over every document, term, field and word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from waypost.search.documents import Document

FIELDS = {"title": 6.0, "id": 5.0, "tags": 3.0, "aliases": 3.0, "description": 2.0, "text": 1.0}


@cache
def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


STOP = re.findall(
    r"\w+",
    """a an and any as at but by for from if in into of on or so some than the to with
    am are be been can could did do does had has have he her his how i is it its me my need our please she should that
    their them then there these they this those us want was we were what when where which who whose why will would you
    your""",
)


def terms(query: str) -> list[str]:
    """The words of a query without stop words that stand alone, unless there are no others."""
    kept = [
        part
        for part in query.split()
        if re.split("['\u2019]", part.lower().strip(".,;:!?()[]{}\"'\u2018\u2019\u201c\u201d"))[0] not in STOP
    ]
    return words(" ".join(kept)) or words(query)


def trigrams(word: str) -> set[str]:
    return {word[start : start + 3] for start in range(len(word) - 2)}


@cache
def alike(term: str, word: str) -> float:
    one, other = trigrams(term), trigrams(word)
    return len(one & other) / len(one | other) if one | other else 0.0


def factor(term: str, text: str) -> float:
    """What a term is worth in a field: the best of the three ways to match."""
    best = 0.0
    if term in text.lower():
        best = 1.0
    if len(term) >= 2 and any(word.startswith(term) for word in words(text)):
        best = max(best, 0.7)
    if len(term) >= 4:
        similarity = max((alike(term, word) for word in words(text)), default=0.0)
        if similarity > 0.3:
            best = max(best, 0.5 * similarity)
    return best


def texts(document: Document) -> dict[str, str]:
    return {
        "title": document.title or document.id,
        "id": document.id,
        "tags": " ".join(document.tags),
        "aliases": " ".join(document.aliases),
        "description": document.description,
        "text": document.text,
    }


def score(query: str, document: Document) -> float:
    if not words(query):
        return 1.0
    total = 0.0
    for term in terms(query):
        for field, text in texts(document).items():
            total += FIELDS[field] * factor(term, text)
    return total


def search(query: str, documents: Iterable[Document], limit: int) -> list[tuple[float, str]]:
    scored = [(score(query, document), document.id) for document in documents]
    return sorted(((found, id) for found, id in scored if found > 0), key=lambda hit: (-hit[0], hit[1]))[:limit]
