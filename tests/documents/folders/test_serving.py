"""Folders of skills served to clients, in every version of the protocol."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.folders.library import put, skill, text
from waypost import Hub, RemoteError
from waypost.capabilities.capability import Kind
from waypost.runtime.assembly import check
from waypost.testing import TestClient, connect
from waypost.wire.versions import ALL, V2025_11_25, V2026_07_28

EXTENSION = "io.modelcontextprotocol/skills"


async def refusal(client: TestClient, method: str, uri: str) -> tuple[int, str]:
    with pytest.raises(RemoteError) as caught:
        await client.request(method, {"uri": uri})
    return caught.value.code, str(caught.value)


def fetched(contents: dict[str, Any]) -> bytes:
    return base64.b64decode(contents["blob"]) if "blob" in contents else contents["text"].encode()


@pytest.mark.parametrize("version", ALL)
@asynchronous
async def test_a_host_can_verify_every_file_of_every_skill(tmp_path: Path, version: str) -> None:
    home = skill(tmp_path, "pdf", {"references/FORMS.md": "# F\r\n", "logo.png": b"\x89PNG\xff", "a b#c.txt": "x"})
    put(home / "SKILL.md", "\ufeff" + text("pdf"))
    skill(tmp_path, "pdf/nested")
    hub = Hub("library", "1").add_skills(tmp_path)
    async with connect(hub, version) as client:
        listed = (await client.request("skills/list"))["skills"]
        assert [one["uri"] for one in listed] == ["skill://pdf/SKILL.md", "skill://pdf/nested/SKILL.md"]
        for one in listed:
            assert (await client.request("skills/get", {"uri": one["uri"]}))["skill"] == one
            for file in one["resources"]:
                (contents,) = (await client.read_resource(file["uri"]))["contents"]
                data = fetched(contents)
                assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (file["digest"], file["size"])
    await hub.stop()


@pytest.mark.parametrize("version", ALL)
@asynchronous
async def test_the_extension_is_declared_if_there_are_skills(tmp_path: Path, version: str) -> None:
    skill(tmp_path, "pdf")
    hub = Hub("library", "1").add_skills(tmp_path)
    declared = hub.engine.profile.capabilities(version)
    assert declared["resources"] == {"listChanged": True, "subscribe": True}
    assert declared["extensions"] == {EXTENSION: {"directoryRead": True}}
    empty = Hub("empty", "1").add_skills(tmp_path / "pdf" / "nowhere")
    assert "extensions" not in empty.engine.profile.capabilities(version)
    async with connect(empty, version) as client:
        assert (await client.request("skills/list"))["skills"] == []
    await empty.stop()
    async with connect(Hub("none", "1").add_prompts(tmp_path), version) as client:
        with pytest.raises(RemoteError, match="Method not found: skills/list"):
            await client.request("skills/list")


@asynchronous
async def test_declared_capabilities_decide_which_methods_a_hub_has(tmp_path: Path) -> None:
    skill(tmp_path, "pdf")
    for extension, answers in ((EXTENSION, True), ("com.example/other", False)):
        declared: dict[str, Any] = {"resources": {}, "extensions": {extension: {}}}
        hub = Hub("library", "1", capabilities=declared).add_skills(tmp_path)
        async with connect(hub) as client:
            if answers:
                assert len((await client.request("skills/list"))["skills"]) == 1
            else:
                with pytest.raises(RemoteError, match="Method not found"):
                    await client.request("skills/list")
        await hub.stop()


@asynchronous
async def test_only_the_skill_files_are_listed_as_resources(tmp_path: Path) -> None:
    skill(tmp_path, "pdf", {"references/forms.md": "# F\n", "logo.png": b"x"})
    hub = Hub("library", "1").add_skills(tmp_path)
    async with connect(hub) as client:
        (listed,) = await client.list_resources()
        assert listed == {
            "uri": "skill://pdf/SKILL.md",
            "name": "pdf",
            "title": "pdf",
            "description": "What it does and when to use it.",
            "mimeType": "text/markdown",
            "size": len(text("pdf")),
        }
        for spelled in ("skill://pdf/references%2Fforms.md", "skill://pdf/../pdf/logo.png", "skill://pdf"):
            assert (await refusal(client, "resources/read", spelled))[0] == -32602
    await hub.stop()


@asynchronous
async def test_directories_are_read_child_by_child(tmp_path: Path) -> None:
    home = skill(tmp_path, "office/word", {"references/forms.md": "# F\n"})
    (home / "empty").mkdir()
    hub = Hub("library", "1").add_skills(tmp_path)

    async def children(uri: str) -> list[tuple[str, str]]:
        found = await client.request("resources/directory/read", {"uri": uri})
        assert (found["ttlMs"], found["cacheScope"]) == (0, "public")
        return [(one["uri"], one["mimeType"]) for one in found["resources"]]

    async with connect(hub) as client:
        assert await children("skill://office") == [("skill://office/word", "inode/directory")]
        assert await children("skill://office/word") == [
            ("skill://office/word/SKILL.md", "text/markdown"),
            ("skill://office/word/empty", "inode/directory"),
            ("skill://office/word/references", "inode/directory"),
        ]
        assert await children("skill://office/word/empty") == []
        for uri in ("skill://office/word/SKILL.md", "skill://office/word/", "skill://nowhere", "skill://"):
            assert await refusal(client, "resources/directory/read", uri) == (-32602, f"Not a directory: {uri}")
    await hub.stop()


@asynchronous
async def test_lists_are_paged_and_continue_at_a_cursor(tmp_path: Path) -> None:
    for name in "edcba":
        skill(tmp_path, name, {"x": "", "y": ""})
    hub = Hub("library", "1", page_size=2).add_skills(tmp_path)
    async with connect(hub) as client:
        skills = await client.list_all("skills/list", "skills")
        assert [one["frontmatter"]["name"] for one in skills] == list("abcde")
        first = await client.request("resources/directory/read", {"uri": "skill://a"})
        given = {"uri": "skill://a", "cursor": first["nextCursor"]}
        second = await client.request("resources/directory/read", given)
        names = [one["name"] for one in [*first["resources"], *second["resources"]]]
        assert (names, "nextCursor" in second) == (["a", "x", "y"], False)
        with pytest.raises(RemoteError, match="Invalid cursor"):
            await client.request("skills/list", {"cursor": "nonsense"})
    await hub.stop()


@asynchronous
async def test_only_stateless_clients_get_cache_hints(tmp_path: Path) -> None:
    skill(tmp_path, "pdf")
    hub = Hub("library", "1").add_skills(tmp_path)
    for version, keys in ((V2026_07_28, {"ttlMs", "cacheScope", "resultType", "_meta"}), (V2025_11_25, set())):
        async with connect(hub, version) as client:
            assert set(await client.request("skills/list")) == {"skills", *keys}
            assert set(await client.request("skills/get", {"uri": "skill://pdf/SKILL.md"})) == {"skill", *keys}
            unknown = "skill://unknown/SKILL.md"
            assert await refusal(client, "skills/get", unknown) == (-32602, f"Unknown skill: {unknown}")
    await hub.stop()


def test_a_skill_in_two_folders_is_served_from_the_first(tmp_path: Path) -> None:
    first = skill(tmp_path / "first", "pdf", {"a.md": "x"}).parent
    second = skill(tmp_path / "second", "pdf", {"b.md": "x"}).parent
    skill(second, "pdf/inner")
    skill(second, "other")
    hub = Hub("library", "1").add_skills(first, second)
    assert [one.uri for one in hub.folders.entries()] == ["skill://other/SKILL.md", "skill://pdf/SKILL.md"]
    in_the_way = f"which is in the way of skill://pdf/SKILL.md in {first}"
    assert [str(one) for one in hub.folders.problems] == [
        f"{second} holds skill://pdf/SKILL.md, {in_the_way}.",
        f"{second} holds skill://pdf/inner/SKILL.md, {in_the_way}.",
    ]


def test_a_skill_with_the_uri_of_another_resource_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    skill(tmp_path, "pdf")
    hub = Hub("library", "1")
    hub.resource("skill://pdf/SKILL.md", name="mine")(lambda: "mine")
    hub.add_skills(tmp_path)
    answer = f"{tmp_path} holds skill://pdf/SKILL.md, where there is another resource already."
    assert [str(one) for one in hub.folders.problems] == [answer]
    assert caplog.messages == [answer]
    assert len(hub.registry[Kind.RESOURCE]) == 1


def test_check_reports_files_that_would_not_be_served(tmp_path: Path) -> None:
    put(skill(tmp_path / "knowledge", "pdf") / ".env", "x")
    put(tmp_path / "prompts" / "mail.md", "Write.")
    (tmp_path / "waypost.yaml").write_text("skills:\n  folders: [knowledge, missing]\n  prompts: [prompts]\n")
    assert [str(one) for one in check(tmp_path / "waypost.yaml")] == [
        f"{tmp_path}/waypost.yaml:2: skills.folders[0]: {tmp_path}/knowledge/pdf/.env "
        "is hidden and not served [CFG080]",
        f"{tmp_path}/waypost.yaml:2: skills.folders[1]: {tmp_path}/missing cannot be listed: "
        "No such file or directory [CFG080]",
        f"{tmp_path}/waypost.yaml:3: skills.prompts[0]: {tmp_path}/prompts/mail.md does not begin with front matter: "
        "a line `---`, YAML, and another line `---` [CFG080]",
    ]


def test_check_reports_skills_and_prompts_that_are_in_two_folders(tmp_path: Path) -> None:
    for place in ("one", "two"):
        skill(tmp_path / place, "pdf")
        put(tmp_path / f"{place}-prompts" / "mail.md", "---\nname: mail\ndescription: d\n---\nWrite.")
    put(tmp_path / "one-prompts" / "letter.md", "---\nname: letter\ndescription: d\n---\nWrite.")
    text = "skills:\n  folders: [one, two]\n  prompts: [one-prompts, two-prompts]\nprompts: {letter: {template: x}}\n"
    (tmp_path / "waypost.yaml").write_text(text)
    found = [one for one in check(tmp_path / "waypost.yaml") if one.code == "CFG080"]
    assert [(one.key, one.message) for one in found] == [
        (
            "skills.folders[1]",
            f"{tmp_path}/two holds skill://pdf/SKILL.md, which is in the way of skill://pdf/SKILL.md in {tmp_path}/one",
        ),
        ("skills.prompts[0]", f"{tmp_path}/one-prompts/letter.md is a second prompt `letter`; rename one"),
        ("skills.prompts[1]", f"{tmp_path}/two-prompts/mail.md is a second prompt `mail`; rename one"),
    ]
    assert {str(one) for one in Hub.from_config(tmp_path / "waypost.yaml").folders.problems} == {
        f"{one.message}." for one in found
    }


@asynchronous
async def test_a_configuration_names_folders_relative_to_itself_and_agents_find_the_skills(tmp_path: Path) -> None:
    skill(tmp_path / "knowledge", "pdf")
    (tmp_path / "waypost.yaml").write_text("skills: {core: [], folders: [./knowledge]}\n")
    hub = Hub.from_config(tmp_path / "waypost.yaml")
    async with connect(hub) as client:
        found = (await client.call_tool("gateway.search", {"query": "pdf"})).structured
        (result,) = found["results"]
        assert (result["item"]["kind"], result["item"]["title"]) == ("document", "pdf")
        link = result["item"]["links"][0]
        assert (await client.request(link["method"], link["args"]))["contents"][0]["text"] == text("pdf")
    await hub.stop()
