"""Markdown skills: rendering, reading with their sections, and fetching several at once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from waypost.documents.collection import Collection, ask
from waypost.documents.ports import Asker, Data, NotThere, Trigger, refused, size
from waypost.documents.records import Skill, now
from waypost.documents.uris import (
    INDEX,
    INDEX_URI,
    SCHEME,
    Index,
    Section,
    check_body,
    check_id,
    check_new_id,
    check_readable,
    dead_links,
    parse,
    skill_uri,
)
from waypost.errors import WaypostError, shorten
from waypost.workers.functions import is_internal

MARKDOWN: Final = "text/markdown"
JSON: Final = "application/json"
SHORT: Final = 140
_HEAD: Final = "# Skills\n\n"
_INTRODUCTION: Final = (
    "Read each skill's resource for orientation on when and why to call its functions. "
    "Sub-skills are indented under their parent path so a top-level skill stays small and the LLM can drill in only "
    "when it needs more detail.\n\n"
)
_NONE: Final = "_No skills are currently registered._\n"
_LINE: Final = re.compile(r"[^\n]*\n?")


class Rendered(NamedTuple):
    """A text and what it is written in."""

    mime_type: str
    text: str


def find_title(body: str) -> str | None:
    """The first heading of the first level."""
    for line in _lines(body):
        if line.startswith("# ") and (found := line[2:].strip()):
            return found
    return None


def find_description(body: str) -> str | None:
    """The first paragraph, on one line."""
    paragraph: list[str] = []
    for line in _lines(body):
        if line and not line.startswith("#"):
            paragraph.append(line)
        elif paragraph:
            break
    return " ".join(paragraph) or None


def _lines(body: str) -> Iterator[str]:
    """The lines of a text, trimmed; a long text is not taken apart further than it is read."""
    return (found[0].strip() for found in _LINE.finditer(body))


def truncate(text: str, most: int = SHORT) -> str:
    """A text of so many characters at most, and dots where there was more."""
    return text if len(text) <= most else f"{text[:most]}..."


def render_index(skills: Iterable[tuple[str, str]]) -> str:
    """The index of skills given as id and body."""
    rows = [_row(skill_id, body) for skill_id, body in sorted(skills)]
    return f"{_HEAD}{_INTRODUCTION}{''.join(rows) or _NONE}"


def broken_index(problem: str) -> str:
    """What stands in for the index where it cannot be made."""
    return f"{_HEAD}_Error reading skills index: {problem}_\n"


def _row(skill_id: str, body: str) -> str:
    told = find_description(body)
    about = "" if told is None else f" — {truncate(told)}"
    indent = "  " * skill_id.count("/")
    return f"{indent}- [`{skill_id}`]({skill_uri(skill_id)}) — {find_title(body) or skill_id}{about}\n"


def render_output(output: Any) -> Rendered:
    """What a function answered, to be read."""
    if isinstance(output, str):
        return Rendered(MARKDOWN, output)
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return Rendered(MARKDOWN, output["content"])
    return Rendered(JSON, msgspec.json.format(msgspec.json.encode(output), indent=2).decode())


INDEX_ENTRY: Final[Data] = {
    "uri": INDEX_URI,
    "name": INDEX,
    "description": "Index of every registered skill",
    "mimeType": MARKDOWN,
}
TEMPLATES: Final[tuple[Data, ...]] = (
    {
        "uriTemplate": "iii://{skill_id}",
        "name": "Skill",
        "description": "The markdown of a registered skill; the id may have several segments, as in a/b/c.",
        "mimeType": MARKDOWN,
    },
    {
        "uriTemplate": "iii://fn/{function_path}",
        "name": "Skill section",
        "description": "What a function answers when it is run without arguments; a/b/c runs a::b::c.",
        "mimeType": MARKDOWN,
    },
)
_LOOKING: Final = 1.0
"""Seconds to look for links that lead nowhere; whoever registers waits for it."""
_log: Final = logging.getLogger(__name__)


class Skills:
    """Every skill, and what reading a URI comes to."""

    def __init__(self, kept: Collection[Skill], trigger: Trigger, within: float) -> None:
        self._kept = kept
        self._trigger = trigger
        self._within = within

    async def register(self, skill_id: str, body: str, owner: str = "") -> Data:
        """Publish a text, in the place of what was there; links in it that lead nowhere are told."""
        check_new_id(skill_id)
        check_body(body)
        skill = Skill(skill_id, body, now(), owner or None)
        await self._kept.put(skill, owner)
        answer: Data = {"id": skill_id, "registered_at": skill.registered_at}
        if warnings := await self._warnings(skill):
            _log.info("links of the skill %s that lead nowhere: %s", skill_id, "; ".join(warnings))
            answer["warnings"] = warnings
        return answer

    async def _warnings(self, skill: Skill) -> list[str]:
        try:
            async with asyncio.timeout(_LOOKING):
                return await dead_links(skill.id, skill.skill, self._is_known)
        except (WaypostError, TimeoutError):
            return []  # it is registered all the same

    async def _is_known(self, skill_id: str) -> bool:
        return await self._kept.find(skill_id) is not None

    async def unregister(self, skill_id: str, owner: str = "") -> Data:
        """Publish a skill no more."""
        check_id(skill_id)
        return {"id": skill_id, "removed": await self._kept.remove(skill_id, owner)}

    async def list(self, by: Asker = None) -> Data:
        """What there is, without the texts."""
        return {"skills": [self._row(skill) for skill in await self._kept.shown(by)]}

    def _row(self, skill: Skill) -> Data:
        row = {"id": skill.id, "bytes": size(skill.skill), "registered_at": skill.registered_at}
        return {**row, **self._kept.owners.told(skill)}

    async def resources(self, by: Asker = None) -> Data:
        """What `resources/list` shows; only the index where the shelf cannot be read."""
        try:
            skills = await self._kept.shown(by)
        except WaypostError as error:
            _log.warning("skills cannot be listed: %s", error.message)
            skills = []
        index = [INDEX_ENTRY] if self._kept.access.shows_all([INDEX_URI], by) else []
        standing = (skill for skill in skills if skill.id != INDEX and self._kept.stands(skill.id))
        return {"resources": [*index, *map(to_resource_entry, standing)]}

    def templates(self, by: Asker = None) -> Data:
        """What `resources/templates/list` shows."""
        shows = self._kept.access.shows_all
        return {"resourceTemplates": [one for one in TEMPLATES if shows([one["uriTemplate"]], by)]}

    async def read(self, uri: str, by: Asker = None) -> Data:
        """What `resources/read` answers for a URI."""
        mime_type, text = await self.rendered(uri, by)
        return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}

    async def rendered(self, uri: str, by: Asker = None) -> Rendered:
        """What is read at a URI."""
        target = parse(uri)
        if isinstance(target, Index):
            return Rendered(MARKDOWN, await self.index(by))
        if isinstance(target, Section):
            return render_output(await self._section(target.function_id, by))
        check_readable(target.id)
        skill = await self._kept.find(target.id)
        if skill is None:
            raise NotThere(f"Skill not found: {target.id}{await self._kept.hint(target.id, by)}")
        if skill.home:
            self._kept.access.admit("skills", skill.home, by)
        return Rendered(MARKDOWN, skill.skill)

    async def index(self, by: Asker = None) -> str:
        """The list of all skills that somebody finds, as a page."""
        try:
            return render_index((skill.id, skill.skill) for skill in await self._kept.shown(by))
        except WaypostError as error:
            return broken_index(error.message)

    async def _section(self, function_id: str, by: Asker) -> Any:
        if is_internal(function_id):
            raise refused(f"Function '{function_id}' is in an internal namespace and cannot back a skill resource")
        return await ask(self._trigger, function_id, {}, self._within, by)


def to_resource_entry(skill: Skill) -> Data:
    """A skill as `resources/list` shows it."""
    return {"uri": skill_uri(skill.id), "name": find_title(skill.skill) or skill.id, "mimeType": MARKDOWN}


_BETWEEN: Final = "\n\n---\n\n"


async def fetch(skills: Skills, uris: list[str], by: Asker = None) -> str:
    """All texts under headings that say where they are from; one that cannot be read fails the whole."""
    return _BETWEEN.join([f"# {uri}\n\n{(await skills.rendered(uri, by)).text.rstrip()}" for uri in uris])


def wanted_uris(uri: str | None, uris: list[str] | None) -> list[str]:
    """Which URIs are asked for: several, or else one."""
    given = uris or ([] if uri is None else [uri])
    wanted = [one for one in map(str.strip, given) if one]
    if not wanted:
        raise refused("Provide uri or a non-empty uris array")
    for one in wanted:
        if not one.startswith(SCHEME):
            raise refused(f"Invalid URI (must start with iii://): {shorten(one)}")
    return wanted
