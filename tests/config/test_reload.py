from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.conftest import Folder
from waypost.config import Loaded, loader, reload
from waypost.errors import ConfigError

HASH = "sha256:" + "0" * 64
RULES = f"""\
auth: {{anonymous: false, keys: [{{id: ci, hash: "{HASH}"}}]}}
policies:
  - {{name: no-shell, type: mcp_restriction, config: {{tool_pattern: shell}}}}
  - {{name: no-mail, type: mcp_restriction, config: {{tool_pattern: mail}}}}
"""
PROMPTS = "prompts:\n" + "".join(f"  prompt-{number}: {{template: Number {number}.}}\n" for number in range(20))
DEADLINE = 120


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "SETTLE_S", 0.01)
    monkeypatch.setattr(loader, "UNFINISHED_SETTLE_S", 0.02)


def refusal(before: Loaded) -> str:
    with pytest.raises(ConfigError) as caught:
        asyncio.run(reload(before))
    return caught.value.message


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("gone.yaml")


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: path.write_bytes(b""), "CFG034"),
    "blank": (lambda path: path.write_text("# later\n\n"), "CFG034"),
    "half a value": (lambda path: os.truncate(path, path.stat().st_size - 20), "CFG004"),
    "without the last rule": (lambda path: path.write_text("".join(lines(path)[:-1])), "CFG069"),
    "without all rules": (lambda path: path.write_text("".join(lines(path)[:-2])), "CFG069"),
    "removed": (lambda path: path.unlink(), "CFG001"),
    "link to nothing": (link_to_nothing, "CFG001"),
    "link to itself": (link_to_itself, "CFG001"),
    "directory": (replace_by_directory, "CFG002"),
    "pipe": (replace_by_pipe, "CFG002"),
    "not text": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "CFG003"),
    "too large": (lambda path: path.write_bytes(b"#" * (5 * 1024 * 1024)), "CFG002"),
}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.usefixtures("short_wait")
def test_a_damaged_file_is_refused(kind: str, folder: Folder) -> None:
    damage, code = DAMAGE[kind]
    before = folder.load(RULES)
    damage(before.path)
    assert code in refusal(before)


@pytest.mark.parametrize("pattern", ["rules.yaml", "rule*.yaml"])
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.usefixtures("short_wait")
def test_a_damaged_include_is_refused(kind: str, pattern: str, folder: Folder) -> None:
    damage, code = DAMAGE[kind]
    path = folder.write("rules.yaml", RULES)
    before = folder.load(f"include: ['{pattern}']\n")
    damage(path)
    if kind == "removed":
        code = "CFG034" if "*" in pattern else "CFG030"
    assert code in refusal(before)


@pytest.mark.usefixtures("short_wait")
def test_validly_changed_files_are_loaded(folder: Folder) -> None:
    before = folder.load(RULES)
    before.path.write_text(RULES + PROMPTS)
    after = asyncio.run(reload(before))
    assert len(after.config.prompts) == 20
    assert after.config.policies == before.config.policies
    assert after.snapshot.is_current()


@pytest.mark.parametrize("first", ["", "# saved by an editor\n", RULES, RULES + PROMPTS[: len(PROMPTS) // 2]])
def test_a_file_that_is_being_written_is_loaded_when_it_is_complete(first: str, folder: Folder) -> None:
    whole = "server: {name: changed}\n" + RULES + PROMPTS
    before = folder.load(RULES + PROMPTS)

    async def scenario() -> Loaded:
        before.path.write_text(first)
        reading = asyncio.create_task(reload(before))
        for end in range(len(whole) // 2, len(whole), 100):
            await asyncio.sleep(0.15)
            before.path.write_text(whole[:end])
        before.path.write_text(whole)
        async with asyncio.timeout(DEADLINE):
            return await reading

    after = asyncio.run(scenario())
    assert after.config.server.name == "changed"
    assert after.config.prompts == before.config.prompts


def test_a_file_with_a_missing_end_is_loaded_after_a_longer_delay(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "SETTLE_S", 0.01)
    monkeypatch.setattr(loader, "UNFINISHED_SETTLE_S", 0.5)
    before = folder.load(RULES + PROMPTS)
    before.path.write_text(RULES + PROMPTS[: PROMPTS.index("  prompt-3")])
    started = time.monotonic()
    after = asyncio.run(reload(before))
    assert time.monotonic() - started >= 0.5
    assert list(after.config.prompts) == ["prompt-0", "prompt-1", "prompt-2"]


@pytest.mark.parametrize(
    "text",
    [
        RULES + PROMPTS[: PROMPTS.index("  prompt-3")] + "...\n",
        RULES + PROMPTS.replace("  prompt-3: {template: Number 3.}\n", ""),
        RULES + PROMPTS + "  prompt-20: {template: More.}\n",
    ],
    ids=["marked as the end", "same end", "longer"],
)
def test_a_file_with_a_recognised_end_is_loaded_soon(
    text: str, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "UNFINISHED_SETTLE_S", 10 * DEADLINE)
    before = folder.load(RULES + PROMPTS)
    before.path.write_text(text)

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE):
            assert (await reload(before)).config != before.config

    asyncio.run(scenario())


def test_a_removed_match_is_awaited(folder: Folder) -> None:
    path = folder.write("team/a.yaml", RULES)
    folder.write("team/b.yaml", "toolkits: [os]\n")
    before = folder.load("include: ['team/*.yaml']\n")

    async def scenario() -> Loaded:
        path.unlink()
        reading = asyncio.create_task(reload(before))
        await asyncio.sleep(1)
        path.write_text(RULES)
        async with asyncio.timeout(DEADLINE):
            return await reading

    assert asyncio.run(scenario()).config == before.config


def test_files_that_keep_changing_are_not_loaded(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MAX_SETTLE_S", 1.0)
    before = folder.load(RULES)

    async def scenario() -> None:
        reading = asyncio.create_task(reload(before))
        number = 0
        while not reading.done():
            number += 1
            before.path.write_text(f"{RULES}# {number}\n")
            await asyncio.sleep(0.01)
        await reading

    with pytest.raises(ConfigError, match=r"kept changing for 1 seconds.* \[CFG035\]"):
        asyncio.run(scenario())


@pytest.mark.parametrize("name", ["waypost.yaml", "rules.yaml"])
@pytest.mark.parametrize(
    ("text", "code"),
    [
        (RULES, ""),
        (RULES.replace("no-mail", "no-post"), ""),
        ("prompts: {p: {template: x}}\n", "CFG069"),
        (RULES.partition("policies")[0], "CFG069"),
        ("policies" + RULES.partition("policies")[2], "CFG069"),
        ("", "CFG034"),
    ],
    ids=["the same", "another rule", "neither", "without rules", "without auth", "empty"],
)
@pytest.mark.usefixtures("short_wait")
def test_a_replaced_link_does_not_lose_rules_silently(name: str, text: str, code: str, folder: Folder) -> None:
    """Volumes of Kubernetes do this: the link is replaced and points to another file."""
    link = folder.path / name
    link.symlink_to(folder.write("first/file.yaml", RULES))
    if name != "waypost.yaml":
        folder.write("waypost.yaml", f"include: [{name}]\n")
    before = loader.load(folder.path / "waypost.yaml", {})
    second = folder.write("second/file.yaml", text)
    link.with_suffix(".new").symlink_to(second)
    os.replace(link.with_suffix(".new"), link)
    if code:
        assert code in refusal(before)
    else:
        assert asyncio.run(reload(before)).config.auth == before.config.auth


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
@pytest.mark.usefixtures("short_wait")
def test_a_file_that_became_unreadable_is_refused(folder: Folder) -> None:
    before = folder.load(RULES)
    before.path.chmod(0)
    assert "CFG001" in refusal(before)
