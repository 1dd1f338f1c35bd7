"""Looking through folders before a hub serves them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from waypost.skills.folders.documents import documents
from waypost.skills.folders.problems import Problem
from waypost.skills.folders.prompts import prompts
from waypost.skills.folders.skills import snapshot


def problems(
    of_skills: Iterable[str], of_prompts: Iterable[str], *, as_documents: bool
) -> Iterator[tuple[tuple[str, int], Problem]]:
    """What would not be served, or be no document where those are wanted, by the setting that names its folder."""
    for place, folder in enumerate(of_skills):
        seen = snapshot(Path(os.path.abspath(folder)))
        found = list(seen.problems)
        if as_documents:
            documents(seen.skills.values(), found)
        yield from ((("folders", place), one) for one in sorted(set(found)))
    for place, folder in enumerate(of_prompts):
        yield from ((("prompts", place), one) for one in prompts(Path(os.path.abspath(folder))).problems)
