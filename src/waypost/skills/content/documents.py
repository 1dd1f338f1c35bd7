"""Markdown skills: published under ids, read at URIs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from waypost.errors import WaypostError
from waypost.skills.content import rendering
from waypost.skills.content.asking import ask
from waypost.skills.content.collection import Collection
from waypost.skills.content.ids import INDEX, check_body, check_id, check_new_id
from waypost.skills.content.links import dead_links
from waypost.skills.content.ports import Asker, Data, Trigger
from waypost.skills.content.records import Skill, now
from waypost.skills.content.refusals import NotThere, refused, size
from waypost.skills.content.rendering import MARKDOWN, Rendered
from waypost.skills.content.uris import INDEX_URI, Index, Section, check_readable, parse, skill_uri
from waypost.workers.functions import is_internal

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
        return {"resources": [*index, *map(entry, standing)]}

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
            return rendering.rendered(await self._section(target.function_id, by))
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
            return rendering.index((skill.id, skill.skill) for skill in await self._kept.shown(by))
        except WaypostError as error:
            return rendering.broken_index(error.message)

    async def _section(self, function_id: str, by: Asker) -> Any:
        if is_internal(function_id):
            raise refused(f"Function '{function_id}' is in an internal namespace and cannot back a skill resource")
        return await ask(self._trigger, function_id, {}, self._within, by)


def entry(skill: Skill) -> Data:
    """A skill as `resources/list` shows it."""
    return {"uri": skill_uri(skill.id), "name": rendering.title(skill.skill) or skill.id, "mimeType": MARKDOWN}
