"""Hidden files of folders are in no answer and cause no notification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.folders.library import put, skill
from waypost import Hub, RemoteError
from waypost.policy.rules import Rule
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25

PATIENCE = 60.0


def library(folder: Path, pattern: str) -> Hub:
    """A hub with a rule that hides a pattern."""
    rule = Rule(name="closed", type="mcp_restriction", config={"tool_pattern": pattern}, hide=True)
    return Hub("library", "1", policies=[rule]).add_skills(folder)


async def refusal(client: TestClient, method: str, uri: str) -> tuple[int, str]:
    with pytest.raises(RemoteError) as caught:
        await client.request(method, {"uri": uri})
    return caught.value.code, str(caught.value)


async def children(client: TestClient, uri: str) -> list[str]:
    found = await client.request("resources/directory/read", {"uri": uri})
    return [one["uri"] for one in found["resources"]]


def files(skill: dict[str, Any]) -> list[str]:
    return [one["uri"] for one in skill["resources"]]


@asynchronous
async def test_a_hidden_skill_and_its_directories_are_in_no_answer(tmp_path: Path) -> None:
    skill(tmp_path, "open")
    skill(tmp_path, "office/word")
    home = skill(tmp_path, "office/closed", {"references/a.md": "x"})
    (home / "empty").mkdir()
    hub = library(tmp_path, "skill://office/closed/")
    async with connect(hub) as client:
        listed = await client.request("skills/list")
        assert [one["uri"] for one in listed["skills"]] == ["skill://office/word/SKILL.md", "skill://open/SKILL.md"]
        assert listed["cacheScope"] == "private"
        hidden = "skill://office/closed/SKILL.md"
        assert await refusal(client, "skills/get", hidden) == (-32602, f"Unknown skill: {hidden}")
        assert await children(client, "skill://office") == ["skill://office/word"]
        for place in ("", "/references", "/empty"):
            uri = f"skill://office/closed{place}"
            assert await refusal(client, "resources/directory/read", uri) == (-32602, f"Not a directory: {uri}")
    await hub.stop()


@asynchronous
async def test_a_hidden_file_is_not_among_the_files_of_its_skill(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf", {"private/a.md": "x", "private/deep/b.md": "x", "public/c.md": "x"})
    (home / "empty").mkdir()
    hub = library(tmp_path, "/private/")
    shown = ["skill://pdf/SKILL.md", "skill://pdf/public/c.md"]
    async with connect(hub) as client:
        (listed,) = (await client.request("skills/list"))["skills"]
        assert files(listed) == shown
        assert files((await client.request("skills/get", {"uri": shown[0]}))["skill"]) == shown
        assert await children(client, "skill://pdf") == [shown[0], "skill://pdf/empty", "skill://pdf/public"]
        assert await children(client, "skill://pdf/empty") == []
        assert (await refusal(client, "resources/directory/read", "skill://pdf/private/deep"))[0] == -32602
        hub.guard.policy.replace([])
        (listed,) = (await client.request("skills/list"))["skills"]
        assert len(files(listed)) == 4
    await hub.stop()


@asynchronous
async def test_clients_get_no_notification_about_a_hidden_file(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf", {"private/a.md": "old"})
    hub = library(tmp_path, "/private/")
    hidden, made, seen = ("skill://pdf/private/a.md", "skill://pdf/private/b.md", "skill://pdf/z.md")
    async with connect(hub, V2025_11_25) as session, connect(hub) as client:
        for uri in (hidden, made, seen, "skill://pdf/nowhere.md"):
            await session.subscribe(uri)  # accepted, as for a missing file
        async with client.listen(resourceSubscriptions=[hidden, made, seen]) as honoured:
            assert honoured == {"resourceSubscriptions": [hidden, made, seen]}
            put(home / "private" / "a.md", "new")
            put(home / "private" / "b.md", "new")
            put(home / "z.md", "new")
            for one in (session, client):
                await one.assert_notification("resources/updated", within=PATIENCE, uri=seen)
                await one.refute_notification("resources/updated")
            hub.guard.policy.replace([])
            put(home / "private" / "a.md", "newer")
            for one in (session, client):
                await one.assert_notification("resources/updated", within=PATIENCE, uri=hidden)
    await hub.stop()
