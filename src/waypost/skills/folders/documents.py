"""Skills of folders as plain Markdown documents, for whoever reads those by an id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from waypost.errors import InvocationFailed
from waypost.skills.content.ids import check_body, check_new_id
from waypost.skills.content.rendering import title
from waypost.skills.folders.front_matter import split
from waypost.skills.folders.problems import Unfit
from waypost.skills.folders.skills import SKILL_FILE, Skill
from waypost.skills.folders.walking import Place

MARKDOWN: Final = ".md"


class Document(msgspec.Struct, frozen=True):
    """A Markdown text under an id such as `pdf` or `pdf/references/forms`."""

    id: str
    title: str
    description: str
    body: str
    owner: str
    """Where it comes from: `folder:` and the path of its folder."""


def documents(skills: Iterable[Skill]) -> Iterator[Document]:
    """The Markdown files of skills that can have an id, each id once."""
    seen: set[str] = set()
    for skill in skills:
        for place in sorted(skill.files, key=lambda place: (place != (SKILL_FILE,), place)):
            made = _document(skill, place)
            if made is not None and made.id not in seen:
                seen.add(made.id)
                yield made


def _document(skill: Skill, place: Place) -> Document | None:
    """A file as a document, if it can be one; the SKILL.md of a nested skill is left to that skill."""
    if place == (SKILL_FILE,):
        steps, body = skill.path, skill.body
        name, description = skill.name, skill.description
    elif place[-1] != SKILL_FILE and place[-1].endswith(MARKDOWN):
        name, description = place[-1].removesuffix(MARKDOWN), ""
        steps, body = (*skill.path, *(step.lower() for step in (*place[:-1], name))), _body(skill.files[place].data)
    else:
        return None
    document = Document("/".join(steps), title(body) or name, description, body, f"folder:{skill.folder}")
    return document if _fits(document) else None


def _fits(document: Document) -> bool:
    try:
        check_new_id(document.id)
        check_body(document.body)
    except InvocationFailed:
        return False
    return True


def _body(data: bytes) -> str:
    """A Markdown file without its front matter, if it has any; nothing where it is no text."""
    with suppress(Unfit):
        return split(data).body
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8-sig")
    return ""
