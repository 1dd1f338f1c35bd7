"""Several URIs read at once, as one document."""

from __future__ import annotations

from typing import Final

from waypost.errors import shorten
from waypost.skills.content.documents import Skills
from waypost.skills.content.ports import Asker
from waypost.skills.content.refusals import refused
from waypost.skills.content.uris import SCHEME

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
