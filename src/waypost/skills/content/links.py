"""Links in a skill's text that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from waypost.errors import InvocationFailed
from waypost.skills.content.uris import Section, Skill, check_readable, parse
from waypost.workers.functions import is_internal

_LINK: Final = re.compile(r"iii://[^\s()\[\]<>\"'`|\\]+")
_PLACEHOLDER: Final = re.compile(r"[{}*…]|\.\.\.")
_PUNCTUATION: Final = ".,;:!?"
_MOST: Final = 50
"""Links of one text that are looked at."""


def links(body: str) -> list[str]:
    """The `iii://` URIs of a text, each once; patterns such as `iii://{id}` are none."""
    found = (link.rstrip(_PUNCTUATION) for link in _LINK.findall(body) if not _PLACEHOLDER.search(link))
    return list(dict.fromkeys(found))


async def dead_links(skill_id: str, body: str, is_known: Callable[[str], Awaitable[bool]]) -> list[str]:
    """One sentence for each link that leads nowhere."""
    return [
        f"{link}: {problem}" for link in links(body)[:_MOST] if (problem := await _problem(link, skill_id, is_known))
    ]


async def _problem(link: str, own: str, is_known: Callable[[str], Awaitable[bool]]) -> str:
    try:
        target = parse(link)
        if isinstance(target, Skill):
            check_readable(target.id)
    except InvocationFailed as error:
        return error.message
    if isinstance(target, Section) and is_internal(target.function_id):
        return f"{target.function_id} is in an internal namespace and cannot be read"
    if isinstance(target, Skill) and target.id != own and not await is_known(target.id):
        return "no skill is registered under this id yet"
    return ""
