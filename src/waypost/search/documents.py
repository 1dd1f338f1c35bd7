"""What the search knows of an item, and what it answers."""

from __future__ import annotations

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


class Hit(NamedTuple):
    """One item that was found."""

    score: float
    id: str


class Found(NamedTuple):
    """What a search found, best first, and by which ranking."""

    ranking: Ranked
    results: list[Hit]
