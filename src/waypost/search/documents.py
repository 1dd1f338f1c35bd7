"""What the search knows of an item, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

Ranking: TypeAlias = Literal["auto", "weighted", "hybrid"]
Ranked: TypeAlias = Literal["weighted", "hybrid"]
Texts: TypeAlias = tuple[str, str, str, str, str, str]

DEFAULT_LIMIT: Final = 10
MAX_RESULTS: Final = 100


class Document(msgspec.Struct, frozen=True, gc=False):
    """An item of the catalog as it is searched; without a title, its id is its title."""

    id: str
    kind: str = "capability"
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    text: str = ""
    parameters: tuple[str, ...] = ()
    """Names of parameters, and what is said about them; only the hybrid ranking reads these."""

    @property
    def fields(self) -> Texts:
        """The texts that are weighed, in the order of `WEIGHTS`."""
        return (
            self.title or self.id,
            self.id,
            " ".join(self.tags),
            " ".join(self.aliases),
            self.description,
            self.text,
        )


WEIGHTS: Final = (6, 5, 3, 3, 2, 1)
"""What a match counts in the title, the id, the tags, the aliases, the description and the text."""
FIELDS: Final = ("title", "id", "tags", "aliases", "description", "text")
"""The names of these texts."""


class Hit(NamedTuple):
    """One item that was found."""

    score: float
    id: str


class Reason(NamedTuple):
    """A term of a query, the text of an item that it was found in, and the points that it adds to a weighted score."""

    term: str
    field: str
    points: float


class Found(NamedTuple):
    """What a search found, best first, and by which ranking."""

    ranking: Ranked
    results: list[Hit]
    signals: Sequence[str] = ()
    """The signals of a hybrid ranking that took part: `words`, and `meaning` where embeddings are used."""
