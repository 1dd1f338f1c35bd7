"""The methods of the skills extension, with any source of skills."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from waypost import Hub, RemoteError
from waypost.testing import connect
from waypost.wire.definitions import ResourceDefinition, SkillEntry, SkillFile
from waypost.wire.versions import ALL, V2025_11_25, V2026_07_28

EXTENSION = "io.modelcontextprotocol/skills"


class FixedSkills:
    """A fixed set of skills in memory."""

    def __init__(self, *names: str) -> None:
        self.names = sorted(names)

    def entries(self) -> list[SkillEntry]:
        return [
            SkillEntry(uri, {"name": name}, [SkillFile(uri, "sha256:" + "0" * 64, 0)])
            for name in self.names
            for uri in [f"skill://{name}/SKILL.md"]
        ]

    def entry(self, uri: str) -> SkillEntry | None:
        return next((one for one in self.entries() if one.uri == uri), None)

    def children(self, uri: str) -> list[ResourceDefinition] | None:
        return [ResourceDefinition(f"{uri}/SKILL.md", "SKILL.md")] if uri.startswith("skill://") else None


def hub_with(*names: str, **options: Any) -> Hub:
    hub = Hub("library", "1", **options)
    hub.engine.profile.skills = FixedSkills(*names)
    return hub


@asynchronous
async def test_the_extension_is_declared_in_every_version_and_only_with_skills() -> None:
    hub = hub_with("a")
    for version in ALL:
        assert hub.engine.profile.capabilities(version)["extensions"] == {EXTENSION: {"directoryRead": True}}
        async with connect(hub, version) as client:
            assert len((await client.request("skills/list"))["skills"]) == 1
    assert "extensions" not in hub_with().engine.profile.capabilities(V2026_07_28)
    assert "extensions" not in Hub("none", "1").engine.profile.capabilities(V2026_07_28)


@asynchronous
async def test_a_cursor_stays_valid_while_skills_are_added_and_removed() -> None:
    hub = hub_with("a", "b", "c", "d", page_size=2)
    async with connect(hub) as client:
        first = await client.request("skills/list")
        hub.engine.profile.skills = FixedSkills("a", "c", "e")
        rest = await client.request("skills/list", {"cursor": first["nextCursor"]})
    assert [one["frontmatter"]["name"] for one in [*first["skills"], *rest["skills"]]] == ["a", "b", "c", "e"]
    assert "nextCursor" not in rest


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("skills/get", {"uri": "skill://b/SKILL.md"}, "Unknown skill: skill://b/SKILL.md"),
        ("skills/get", {}, "Invalid params: Object missing required field `uri`."),
        ("skills/get", {"uri": 7}, "Invalid params: Expected `str`, got `int` - at `$.uri`."),
        ("skills/list", {"cursor": "?"}, "Invalid cursor: ?"),
        ("resources/directory/read", {"uri": "file:///etc"}, "Not a directory: file:///etc"),
    ],
)
@asynchronous
async def test_invalid_parameters_are_refused_with_the_reason(method: str, given: dict[str, Any], said: str) -> None:
    for version in (V2025_11_25, V2026_07_28):
        async with connect(hub_with("a"), version) as client:
            with pytest.raises(RemoteError) as caught:
                await client.request(method, given)
        assert (caught.value.code, str(caught.value)) == (-32602, said)


@asynchronous
async def test_without_skills_the_methods_do_not_exist() -> None:
    async with connect(Hub("none", "1")) as client:
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            with pytest.raises(RemoteError) as caught:
                await client.request(method, {"uri": "skill://a/SKILL.md"})
            assert caught.value.code == -32601
