"""The section `skills`: the skills that it enables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.configured.conftest import CONFIG, Folder, names, run, using
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.workflows.maintenance import Watch

CORE = ["api_request", "llm_transform", "rss_collector", "send_to_workflow", "system_info", "web_browse", "web_search"]


@pytest.mark.parametrize(
    ("section", "skills"),
    [
        ("", []),
        ("skills: {}\n", CORE),
        ("skills: {core: []}\n", []),
        ("skills: {core: [shell, web_search]}\n", ["shell", "web_search"]),
        ("skills: {core: [], dynamic: ./made}\n", ["echo"]),
        ("skills: {core: [], dynamic: ./made, autoload: false}\n", []),
    ],
)
def test_the_configured_skills_are_listed(section: str, skills: list[str], folder: Folder) -> None:
    (folder.path / "made").mkdir()
    folder.write("made/echo.py", "def run(args):\n    return args['input']\n")
    folder.write("waypost.yaml", CONFIG + section)
    found = run(folder, lambda client: client.list_tools())
    assert names(found) == [*(f"skill:{name}" for name in skills), "speak"]


@asynchronous
async def test_a_file_that_was_named_relatively_has_the_same_folders_after_a_reload(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder.path / "made").mkdir()
    folder.write("waypost.yaml", CONFIG + "skills: {core: [], dynamic: ./made, folders: [./made]}\n")
    monkeypatch.chdir(folder.path)
    hub = Hub.from_config(Path("waypost.yaml"))
    async with using(hub):
        assert await hub.reload()

    assert "next start" not in caplog.text


@asynchronous
async def test_interrupted_instances_are_resumed_after_the_skills_are_loaded(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.path / "made").mkdir()
    folder.write("made/echo.py", "def run(args):\n    return args['input']\n")
    workflows = "workflows: {walk: {steps: [{skill: echo}]}}\n"
    folder.write("waypost.yaml", CONFIG + "skills: {core: [], dynamic: ./made}\n" + workflows)
    hub = Hub.from_config(folder.path / "waypost.yaml")
    there: list[bool] = []
    monkeypatch.setattr(Watch, "start", lambda _: there.append(hub.registry.find_tool("skill:echo") is not None))

    async with using(hub):
        assert there == [True]
