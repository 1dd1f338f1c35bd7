"""Changes in a folder are served without a restart, and subscribers are notified."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.contract.conftest import asynchronous
from tests.documents.folders.library import put, skill, text
from waypost import Hub
from waypost.capabilities.registry import Change
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25

PATIENCE = 60.0


@asynccontextmanager
async def library(folder: Path) -> AsyncIterator[tuple[Hub, TestClient]]:
    hub = Hub("library", "1").add_skills(folder / "skills").add_prompts(folder / "prompts")
    try:
        async with connect(hub, V2025_11_25) as client:
            yield hub, client
    finally:
        await hub.stop()


async def names(client: TestClient) -> list[str]:
    return [one["frontmatter"]["name"] for one in (await client.request("skills/list"))["skills"]]


@asynchronous
async def test_a_changed_file_is_served_and_its_subscribers_are_notified(tmp_path: Path) -> None:
    home = skill(tmp_path / "skills", "pdf", {"a.md": "old", "b.md": "same"})
    async with library(tmp_path) as (_, client):
        for uri in ("skill://pdf/a.md", "skill://pdf/b.md", "skill://pdf/SKILL.md"):
            await client.subscribe(uri)
        before = (await client.request("skills/list"))["skills"][0]
        put(home / "a.md", "new")
        await client.assert_notification("resources/updated", within=PATIENCE, uri="skill://pdf/a.md")
        assert (await client.read_resource("skill://pdf/a.md")).text == "new"
        after = (await client.request("skills/list"))["skills"][0]
        assert [old == new for old, new in zip(before["resources"], after["resources"], strict=True)] == [
            True,
            False,
            True,
        ]
        put(home / "SKILL.md", text("pdf", "Something else."))
        await client.assert_notification("resources/updated", within=PATIENCE, uri="skill://pdf/SKILL.md")
        await client.assert_notification("resources/list_changed", within=PATIENCE)
        assert (await client.list_resources())[0].description == "Something else."
        await client.refute_notification("resources/updated")


@asynchronous
async def test_adding_or_removing_a_skill_is_one_change(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "first")
    async with library(tmp_path) as (hub, client):
        changes: list[Change] = []
        hub.registry.subscribe(changes.append)
        skill(tmp_path / "making", "second", {"references/a.md": "a", "b.md": "b"})
        (tmp_path / "making" / "second").rename(tmp_path / "skills" / "second")
        await client.assert_notification("resources/list_changed", within=PATIENCE)
        assert await names(client) == ["first", "second"]
        await client.subscribe("skill://second/references/a.md")
        put(tmp_path / "skills" / "second" / "references" / "a.md", "c")
        await client.assert_notification("resources/updated", within=PATIENCE, uri="skill://second/references/a.md")
        assert (await client.read_resource("skill://second/references/a.md")).text == "c"
        shutil.rmtree(tmp_path / "skills" / "first")
        await client.assert_notification("resources/list_changed", within=PATIENCE)
        assert await names(client) == ["second"]
        assert len(changes) == 2


@asynchronous
async def test_a_skill_is_withdrawn_while_it_is_invalid(tmp_path: Path) -> None:
    home = skill(tmp_path / "skills", "pdf")
    skill(tmp_path / "skills", "other")
    async with library(tmp_path) as (hub, client):
        put(home / "SKILL.md", "nothing")
        await client.assert_notification("resources/list_changed", within=PATIENCE)
        assert await names(client) == ["other"]
        assert [one.path for one in hub.folders.problems if one.path.endswith("SKILL.md")] == [str(home / "SKILL.md")]
        put(home / "SKILL.md", text("pdf"))
        await client.assert_notification("resources/list_changed", within=PATIENCE)
        assert await names(client) == ["other", "pdf"]
        assert not [one for one in hub.folders.problems if one.path.endswith("SKILL.md")]


@asynchronous
async def test_subscribers_are_notified_of_files_that_are_created_or_restored(tmp_path: Path) -> None:
    home = skill(tmp_path / "skills", "pdf")
    main, data = "skill://pdf/SKILL.md", "skill://pdf/data.txt"
    async with library(tmp_path) as (_, client):
        for uri in (main, data):
            await client.subscribe(uri)
        put(home / "data.txt", "x")
        await client.assert_notification("resources/updated", within=PATIENCE, uri=data)
        for broken, mended in ((main, "nothing"), (main, text("pdf"))):
            put(home / "SKILL.md", mended)
            await client.assert_notification("resources/updated", within=PATIENCE, uri=broken)
        home.rename(tmp_path / "away")
        await client.assert_notification("resources/updated", within=PATIENCE, uri=main)
        (tmp_path / "away").rename(home)
        await client.assert_notification("resources/updated", within=PATIENCE, uri=main)
        assert (await client.read_resource(main)).text == text("pdf")


@asynchronous
async def test_a_folder_is_served_once_it_is_created(tmp_path: Path) -> None:
    async with library(tmp_path) as (hub, client):
        assert len(hub.folders.problems) == 2
        skill(tmp_path / "skills", "pdf")
        await client.assert_notification("resources/list_changed", within=PATIENCE)
        assert await names(client) == ["pdf"]


@asynchronous
async def test_a_changed_prompt_is_replaced(tmp_path: Path) -> None:
    put(tmp_path / "prompts" / "hello.md", text("hello", body="Say hello."))
    put(tmp_path / "prompts" / "stays.md", text("stays"))
    async with library(tmp_path) as (_, client):
        put(tmp_path / "prompts" / "hello.md", text("hello", "Warmer.", body="Say hello warmly."))
        await client.assert_notification("prompts/list_changed", within=PATIENCE)
        assert (await client.get_prompt("hello")).text == "Say hello warmly."
        (tmp_path / "prompts" / "hello.md").unlink()
        await client.assert_notification("prompts/list_changed", within=PATIENCE)
        assert [one.name for one in await client.list_prompts()] == ["stays"]


@asynchronous
async def test_folders_are_watched_again_after_a_stop(tmp_path: Path) -> None:
    home = skill(tmp_path / "skills", "pdf")
    async with library(tmp_path) as (hub, client):
        await hub.folders.stop()
        assert await names(client) == ["pdf"]
        put(home / "SKILL.md", text("pdf", "Something else."))
        hub.folders.watch()
        await client.assert_notification("resources/list_changed", within=PATIENCE)
