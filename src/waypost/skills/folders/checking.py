"""Looking through folders before a hub serves them."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from waypost.config.findings import printable
from waypost.skills.folders.documents import documents
from waypost.skills.folders.problems import Problem
from waypost.skills.folders.prompts import prompts, unambiguous
from waypost.skills.folders.shelf import Shelf, shelved
from waypost.skills.folders.skills import snapshot
from waypost.skills.folders.walking import Look, absolute

Setting = tuple[str, int]
"""Which of the folders of skills or of prompts."""


def problems(
    of_skills: Iterable[str], of_prompts: Iterable[str], *, as_documents: bool, taken: Container[str] = ()
) -> Iterator[tuple[Setting, Problem]]:
    """What would not be served, or be no document where those are wanted, by the setting that names its folder.

    Prompts whose names are `taken` are defined elsewhere.
    """
    named = list(map(absolute, of_skills))
    read = {folder: snapshot(folder) for folder in named}
    shared: list[Problem] = []
    skills = [skill for one in read.values() for skill in one.skills.values()]
    shelf = shelved(skills, Shelf(), lambda _: False, shared)
    if as_documents:
        documents(shelf.skills.values(), shared)
    yield from ((("folders", named.index(folder)), one) for folder, one in _told(read, shared))
    named, shared = list(map(absolute, of_prompts)), []
    written = {folder: prompts(folder) for folder in named}
    unambiguous(written, lambda name: name in taken, shared)
    yield from ((("prompts", named.index(folder)), one) for folder, one in _told(written, shared))


def _told(looks: Mapping[Path, Look], shared: Iterable[Problem]) -> Iterator[tuple[Path, Problem]]:
    """The problems of each folder, its own and those that it has with others."""
    homes = {folder: printable(str(folder)) for folder in looks}
    found = {folder: set(look.problems) for folder, look in looks.items()}
    for one in shared:
        around = [
            folder for folder, home in homes.items() if one.path == home or one.path.startswith(f"{home}{os.sep}")
        ]
        found[max(around, key=lambda folder: len(homes[folder]))].add(one)
    for folder, told in found.items():
        yield from ((folder, one) for one in sorted(told))
