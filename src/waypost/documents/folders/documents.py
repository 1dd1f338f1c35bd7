"""Skills of folders as plain Markdown documents, for whoever reads those by an id."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from waypost.documents.folders.files import Place, Problem, Unfit, is_markdown, problem, stem
from waypost.documents.folders.front_matter import split
from waypost.documents.folders.skills import SKILL_FILE, Skill, uri_of
from waypost.documents.markdown import find_title
from waypost.documents.uris import check_body, check_new_id, skill_uri
from waypost.errors import InvocationFailed


class Document(msgspec.Struct, frozen=True):
    """A Markdown text under an id such as `pdf` or `pdf/references/forms`."""

    id: str
    title: str
    description: str
    body: str
    owner: str
    """Where it comes from: `folder:` and the path of its folder."""
    uri: str
    """That of its file."""


def documents(skills: Iterable[Skill], problems: list[Problem]) -> list[Document]:
    """The Markdown files of skills, each under an id of its own; one that cannot have any is among the problems."""
    found: dict[str, Document] = {}
    for skill in skills:
        for place in sorted(filter(_is_one, skill.files), key=lambda place: (place != (SKILL_FILE,), place)):
            document_id = _id(skill, place)
            try:
                made = _document(skill, place, document_id)
                other = found.setdefault(document_id, made)
                if other.uri != made.uri:
                    raise Unfit(f"{other.uri} is read there")
            except (Unfit, InvocationFailed) as error:
                reason = f"is not read at {skill_uri(document_id)}: {error.message}"
                problems.append(problem(skill.home.joinpath(*place), reason))
    return list(found.values())


def _is_one(place: Place) -> bool:
    """Whether a file may be a document; the SKILL.md of a nested skill is left to that skill."""
    return place == (SKILL_FILE,) or (place[-1] != SKILL_FILE and is_markdown(place[-1]))


def _id(skill: Skill, place: Place) -> str:
    inner = () if place == (SKILL_FILE,) else (*place[:-1], stem(place[-1]))
    return "/".join((*skill.path, *inner)).lower()


def _document(skill: Skill, place: Place, document_id: str) -> Document:
    """A file as a document, if it can be one."""
    check_new_id(document_id)
    if place == (SKILL_FILE,):
        name, description, body = skill.name, skill.description, skill.body
    else:
        name, description, body = stem(place[-1]), "", _body(skill.files[place].data)
    check_body(body)
    owner, uri = f"folder:{skill.folder}", uri_of((*skill.path, *place))
    return Document(document_id, find_title(body) or name, description, body, owner, uri)


def _body(data: bytes) -> str:
    """A Markdown file without its front matter, if it has any."""
    with suppress(Unfit):
        return split(data).body
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unfit("it is not UTF-8 text") from None
