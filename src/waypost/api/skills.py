"""Executable skills: loading, changing and taking them out while the hub runs."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from waypost.api.operated import Operated, Skills
from waypost.api.routing import Route
from waypost.errors import UnknownCapability


class SkillFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the skills directory."""

    file: Annotated[str, Meta(min_length=1, max_length=1024)]


class SkillRows(msgspec.Struct, frozen=True):
    """All skills."""

    skills: list[dict[str, Any]]


class SkillChange(msgspec.Struct, frozen=True):
    """What became of a skill."""

    skill: dict[str, Any]


async def list_skills(hub: Operated) -> SkillRows:
    """All skills, core and dynamic."""
    return SkillRows([_row(skill) for skill in await _skills(hub).listing()])


async def load_skill(hub: Operated, body: SkillFile) -> SkillChange:
    """Take a file in as a skill."""
    return SkillChange(_row(await _skills(hub).load(body.file)))


async def create_skill(hub: Operated, name: str) -> SkillChange:
    """Write a file to start from."""
    return SkillChange(_row(await _skills(hub).create(name), name))


async def reload_skill(hub: Operated, name: str) -> SkillChange:
    """Take the file of a skill in again."""
    return SkillChange(_row(await _skills(hub).reload(name), name))


async def rollback_skill(hub: Operated, name: str) -> SkillChange:
    """Go back to the version before."""
    return SkillChange(_row(await _skills(hub).rollback(name), name))


async def unload_skill(hub: Operated, name: str) -> SkillChange:
    """Take a skill out; its file stays."""
    return SkillChange(_row(await _skills(hub).unload(name), name))


def _skills(hub: Operated) -> Skills:
    if hub.skills is None:
        raise UnknownCapability("This hub has no executable skills; its configuration has no section `skills`.")
    return hub.skills


def _row(told: Any, name: str = "") -> dict[str, Any]:
    """What is told about a skill, whichever form it has."""
    plain = msgspec.to_builtins(told, enc_hook=str)
    if isinstance(plain, dict):
        return plain if "name" in plain or not name else {"name": name, **plain}
    return {"name": name or str(plain)} if plain is None or not name else {"name": name, "file": str(plain)}


_SKILL: Final = {"name": "greet", "type": "dynamic", "version": "1.1.0", "permissions": ["web_read"]}
_CHANGE: Final = SkillChange(_SKILL)

ROUTES: Final = (
    Route("GET", "/api/v1/skills", list_skills, "All skills", answer=SkillRows([_SKILL])),
    Route("POST", "/api/v1/skills", load_skill, "Load a skill", 201, SkillFile("greet.py"), _CHANGE),
    Route("POST", "/api/v1/skills/{name}", create_skill, "Write a skill to start from", 201, answer=_CHANGE),
    Route("DELETE", "/api/v1/skills/{name}", unload_skill, "Unload a skill", answer=SkillChange({"name": "greet"})),
    Route("POST", "/api/v1/skills/{name}/reload", reload_skill, "Load the file of a skill again", answer=_CHANGE),
    Route("POST", "/api/v1/skills/{name}/rollback", rollback_skill, "Go back to the version before", answer=_CHANGE),
)
