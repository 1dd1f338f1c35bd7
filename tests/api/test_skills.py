"""Skills through the API: the calls to the skill set, and how its refusals look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import operated_hub, operating
from tests.protocol.conftest import asynchronous
from waypost import DefinitionError, Hub
from waypost.errors import UnknownCapability
from waypost.runtime.runtime import Runtime
from waypost.settings import CoreSkillName, Skills

SKILLS = "/api/v1/skills"


class Refused(DefinitionError):
    """A refusal with a code."""

    code = "same_version"


class MemorySkills:
    """A skill set in memory."""

    def __init__(self) -> None:
        self.versions: dict[str, list[int]] = {}

    async def list_skills(self) -> list[dict[str, Any]]:
        return [self._row(name) for name in sorted(self.versions)]

    async def create(self, name: str) -> Path:
        if name == "taken":
            raise DefinitionError("There is a file taken.py already.")
        return Path(f"{name}.py")

    async def load(self, file: str) -> dict[str, Any]:
        name = file.removesuffix(".py")
        if name in self.versions:
            raise Refused(f"The skill {name} is loaded already in this version.")
        self.versions[name] = [1]
        return self._row(name)

    async def reload(self, name: str) -> dict[str, Any]:
        self._known(name).append(self._known(name)[-1] + 1)
        return self._row(name)

    async def rollback(self, name: str) -> dict[str, Any]:
        self._known(name).pop()
        return self._row(name)

    async def unload(self, name: str) -> None:
        self._known(name)
        del self.versions[name]

    def _known(self, name: str) -> list[int]:
        if name not in self.versions:
            raise UnknownCapability(f"Unknown skill: {name}")
        return self.versions[name]

    def _row(self, name: str) -> dict[str, Any]:
        return {"name": name, "type": "dynamic", "version": str(self.versions[name][-1])}


def hub_with_skills() -> Hub:
    hub = operated_hub()
    hub.runtime.__class__ = type("WithSkills", (Runtime,), {"skill_set": MemorySkills()})
    return hub


@asynchronous
async def test_a_skill_is_loaded_reloaded_rolled_back_and_unloaded() -> None:
    async with operating(hub_with_skills()) as operator:
        assert await operator.fetch("POST", SKILLS, {"file": "greet.py"}) == {
            "skill": {"name": "greet", "type": "dynamic", "version": "1"}
        }
        assert (await operator.fetch("POST", f"{SKILLS}/greet/reload"))["skill"]["version"] == "2"
        assert (await operator.fetch("GET", SKILLS))["skills"] == [{"name": "greet", "type": "dynamic", "version": "2"}]
        assert (await operator.fetch("POST", f"{SKILLS}/greet/rollback"))["skill"]["version"] == "1"
        assert await operator.fetch("DELETE", f"{SKILLS}/greet") == {"skill": {"name": "greet"}}
        assert await operator.fetch("GET", SKILLS) == {"skills": []}


@asynchronous
async def test_a_skill_template_is_written() -> None:
    async with operating(hub_with_skills()) as operator:
        assert await operator.fetch("POST", f"{SKILLS}/greet") == {"skill": {"name": "greet", "file": "greet.py"}}
        status, sentence = await operator.refused("POST", f"{SKILLS}/taken")
        assert (status, sentence) == (409, "There is a file taken.py already.")


@asynchronous
async def test_a_refusal_has_its_code() -> None:
    async with operating(hub_with_skills()) as operator:
        await operator.fetch("POST", SKILLS, {"file": "greet.py"})
        call = await operator.ask("POST", SKILLS, {"file": "greet.py"})
        assert call.status == 409
        assert call.body == b'{"error":"The skill greet is loaded already in this version.","code":"same_version"}'


@pytest.mark.parametrize(("verb", "path"), [("DELETE", "greet"), ("POST", "greet/reload"), ("POST", "greet/rollback")])
@asynchronous
async def test_an_unknown_skill_is_404(verb: str, path: str) -> None:
    async with operating(hub_with_skills()) as operator:
        assert await operator.refused(verb, f"{SKILLS}/{path}") == (404, "Unknown skill: greet")


@pytest.mark.parametrize(
    ("verb", "path"),
    [("GET", ""), ("POST", "/a"), ("DELETE", "/a"), ("POST", "/a/reload"), ("POST", "/a/rollback")],
)
@asynchronous
async def test_a_hub_without_skills_says_so(verb: str, path: str) -> None:
    hub = operated_hub()
    async with operating(hub) as operator:
        status, sentence = await operator.refused(verb, f"{SKILLS}{path}")
        assert (status, sentence) == (
            404,
            "This hub has no executable skills; its configuration has no section `skills`.",
        )


@pytest.mark.parametrize("core", [[], ["system_info", "web_search"]])
@asynchronous
async def test_core_skills_are_listed_without_a_directory_of_skills(core: list[CoreSkillName]) -> None:
    hub = operated_hub()
    hub.runtime.executable_skills.begin(Skills(core=core))
    async with operating(hub) as operator:
        listed = await operator.fetch("GET", SKILLS)

        assert listed == {"skills": [{"name": name, "type": "core"} for name in core]}
        status, sentence = await operator.refused("POST", f"{SKILLS}/a/reload")
        assert (status, sentence) == (
            404,
            "This hub has no directory of skills; set `skills.dynamic` in its configuration.",
        )
