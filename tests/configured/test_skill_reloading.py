"""The section `skills` after a reload: its changes apply at once, with one notification."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.configured.conftest import CONFIG, ERAS, Folder, listening, names, using
from tests.protocol.conftest import asynchronous, until
from tests.skills.core.calling import serving
from waypost import Hub
from waypost.capabilities.capability import Kind
from waypost.skills.files import SkillRefused
from waypost.testing import TestClient

ECHO = "def run(args):\n    return args['input']\n"
SLOW = """\
import time
from pathlib import Path


def run(args):
    while not Path(args["input"]).exists():
        time.sleep(0.01)
    return "waited"
"""
CLASH = """\
from waypost import tool


@tool(name="skill:third", description="In the way")
async def third() -> str:
    return "third"
"""
GUARDED = "permissions = ['paint']\n" + ECHO
SKILL = "---\nname: {name}\ndescription: What {name} is for.\n---\n# {name}\n"
PROMPT = "---\nname: hello\ndescription: Say hello\n---\nHello from {where}.\n"


class Reloading:
    """A hub, a client of it, and its file."""

    def __init__(self, folder: Folder, hub: Hub, client: TestClient) -> None:
        self.folder, self.hub, self.client = folder, hub, client

    async def reload(self, section: str) -> bool:
        self.folder.write("waypost.yaml", CONFIG + section)
        return await self.hub.reload()

    async def skills(self) -> list[str]:
        found = names(await self.client.list_tools())
        return [name.removeprefix("skill:") for name in found if name.startswith("skill:")]

    async def call(self, skill: str, given: str = "in") -> str:
        text: str = (await self.client.call_tool(f"skill:{skill}", {"input": given})).text
        return text


@asynccontextmanager
async def reloading(folder: Folder, section: str, version: str = ERAS[0]) -> AsyncIterator[Reloading]:
    """A hub whose file has the given section."""
    for name in ("made", "others", "shelf", "cards"):
        (folder.path / name).mkdir(exist_ok=True)
    folder.write("made/echo.py", ECHO)
    folder.write("waypost.yaml", CONFIG + section)
    hub = folder.hub()
    async with using(hub, version) as client:
        yield Reloading(folder, hub, client)


def write_skill(folder: Folder, shelf: str, name: str) -> None:
    (folder.path / shelf / name).mkdir(exist_ok=True)
    folder.write(f"{shelf}/{name}/SKILL.md", SKILL.format(name=name))


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    ("before", "after", "skills"),
    [
        ("", "skills: {core: [web_search]}\n", ["web_search"]),
        ("skills: {core: [web_search]}\n", "", []),
        ("skills: {core: [web_search]}\n", "skills: {core: [shell, web_browse]}\n", ["shell", "web_browse"]),
        ("", "skills: {core: [], dynamic: ./made}\n", ["echo", "second"]),
        ("skills: {core: [], dynamic: ./made}\n", "skills: {core: [shell]}\n", ["shell"]),
        ("skills: {core: [], dynamic: ./made}\n", "skills: {core: [], dynamic: ./others}\n", ["third"]),
    ],
)
@asynchronous
async def test_a_reload_adds_and_removes_skills_with_one_notification(
    before: str, after: str, skills: list[str], version: str, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    async with reloading(folder, before, version) as desk, listening(desk.client):
        folder.write("made/second.py", ECHO)
        folder.write("others/third.py", ECHO)

        assert await desk.reload(after)

        assert await desk.skills() == skills
        assert "next start" not in caplog.text
        await desk.client.assert_notification("tools/list_changed")
        await desk.client.refute_notification("tools/list_changed")
        if "echo" in skills:
            assert await desk.call("echo") == "in"


@asynchronous
async def test_a_reload_adds_and_removes_folders_of_skills_and_prompts(folder: Folder) -> None:
    async with reloading(folder, "skills: {core: []}\n") as desk:
        for shelf, name in (("shelf", "alpha"), ("others", "beta")):
            write_skill(folder, shelf, name)
        folder.write("cards/hello.md", PROMPT.format(where="cards"))

        assert await desk.reload("skills: {core: [], folders: [./shelf], prompts: [./cards]}\n")
        assert await found(desk) == (["skill://alpha/SKILL.md"], ["hello"])
        assert desk.hub.engine.profile.offers("skills")
        for kind in ("resources", "prompts"):
            await desk.client.assert_notification(f"{kind}/list_changed")
            await desk.client.refute_notification(f"{kind}/list_changed")

        assert await desk.reload("skills: {core: [], folders: [./others], prompts: [./cards]}\n")
        assert await found(desk) == (["skill://beta/SKILL.md"], ["hello"])
        await desk.client.assert_notification("resources/list_changed")
        await desk.client.refute_notification("prompts/list_changed")

        assert await desk.reload("")
        assert await found(desk) == ([], [])
        assert not desk.hub.engine.profile.offers("skills")


async def found(desk: Reloading) -> tuple[list[str], list[str]]:
    """The documents and prompts that are listed."""
    uris = sorted(row.id for row in desk.hub.registry[Kind.RESOURCE] if not row.metadata.hidden)
    return uris, [row.id for row in desk.hub.registry[Kind.PROMPT]]


@asynchronous
async def test_a_folder_added_by_a_reload_is_watched(folder: Folder) -> None:
    async with reloading(folder, "") as desk:
        assert await desk.reload("skills: {core: [], folders: [./shelf]}\n")
        write_skill(folder, "shelf", "late")
        await until(lambda: "skill://late/SKILL.md" in desk.hub.registry[Kind.RESOURCE])


@asynchronous
async def test_a_name_moves_from_the_file_to_a_folder_and_back_in_one_reload(folder: Folder) -> None:
    of_file = "prompts: {hello: {description: Hi, template: Hello from the file.}}\n"
    of_folder = "skills: {core: [], prompts: [./cards]}\n"
    async with reloading(folder, of_file) as desk:
        folder.write("cards/hello.md", PROMPT.format(where="cards"))
        for section, said in ((of_folder, "cards"), (of_file, "the file")):
            assert await desk.reload(section)
            answer = await desk.client.get_prompt("hello")
            assert f"Hello from {said}." in answer["messages"][0]["content"]["text"]


@asynchronous
async def test_new_settings_apply_to_loaded_skills_without_reloading_their_files(folder: Folder) -> None:
    section = "skills: {core: [], dynamic: ./made%s}\n"
    async with reloading(folder, section % "") as desk:
        folder.write("made/echo.py", ECHO.replace("args['input']", "'edited, and not loaded'"))

        assert await desk.reload(section % ", timeoutMs: 50, limits: {processes: 1}")

        tool = desk.hub.registry.tool("skill:echo")
        assert tool.timeout == 0.05
        assert desk.hub.skills is not None
        assert desk.hub.skills.pool.limits.processes == 1
        await desk.client.refute_notification("tools/list_changed")
        assert await desk.reload(section % "")
        assert await desk.call("echo") == "in"


@asynchronous
async def test_a_skill_with_a_removed_permission_is_unloaded_and_logged(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    section = "skills: {core: [], dynamic: ./made, permissions: [%s]}\n"
    async with reloading(folder, "") as desk:
        folder.write("made/paint.py", GUARDED)
        assert await desk.reload(section % "paint")
        assert await desk.skills() == ["echo", "paint"]

        assert await desk.reload(section % "")

        assert await desk.skills() == ["echo"]
    assert caplog.text.count("The skill paint is refused") == 1


@asynchronous
async def test_a_running_call_ends_with_the_section_it_started_with(folder: Folder) -> None:
    async with reloading(folder, "skills: {core: [], dynamic: ./made}\n") as desk:
        folder.write("made/slow.py", SLOW)
        assert desk.hub.skills is not None
        await desk.hub.skills.load("slow.py")
        old, gate = desk.hub.skills, folder.path / "gate"
        async with asyncio.TaskGroup() as group:
            call = group.create_task(desk.call("slow", str(gate)))
            await until(lambda: old.pool._busy)

            assert await desk.reload("skills: {core: [shell]}\n")

            assert await desk.skills() == ["shell"]
            gate.touch()
        assert call.result() == "waited"
        await until(lambda: not old.pool.list_pids())


@asynchronous
async def test_a_running_call_is_awaited_despite_a_shorter_new_timeout(folder: Folder) -> None:
    here, asked = asyncio.Event(), asyncio.Event()

    async def late(request: web.BaseRequest) -> web.Response:
        asked.set()
        await here.wait()
        return web.Response(text="late")

    section = "skills: {core: [api_request], dynamic: ./made, allowPrivate: true}\n"
    async with serving(late) as base, reloading(folder, section) as desk, asyncio.TaskGroup() as group:
        old, gate = desk.hub.runtime.executable_skills.section, folder.path / "gate"
        assert old is not None and old.dynamic is not None
        folder.write("made/slow.py", SLOW)
        await old.dynamic.load("slow.py")
        pool = old.dynamic.pool
        calls = [group.create_task(desk.call("slow", str(gate))), group.create_task(desk.call("api_request", base))]
        await asked.wait()
        await until(lambda: pool._busy)

        assert await desk.reload("mcp: {toolTimeoutMs: 1}\nskills: {core: [], dynamic: ./made, timeoutMs: 20000}\n")

        assert await desk.call("echo") == "in"  # in a new process, which takes longer than the timeout
        here.set()
        assert '"late"' in await calls[1]
        assert old._egress._http is not None
        gate.touch()
        assert await calls[0] == "waited"
        await until(lambda: old._egress._http is None and not pool.list_pids())


@asynchronous
async def test_a_stop_ends_running_calls_of_a_replaced_section(folder: Folder) -> None:
    async with reloading(folder, "skills: {core: [], dynamic: ./made}\n") as desk:
        folder.write("made/slow.py", SLOW)
        assert desk.hub.skills is not None
        await desk.hub.skills.load("slow.py")
        pool = desk.hub.skills.pool
        call = asyncio.create_task(desk.call("slow", "never"))
        await until(lambda: pool._busy)
        assert await desk.reload("skills: {core: [shell]}\n")
        assert pool.list_pids()

        await desk.hub.runtime.executable_skills.stop()

        assert not pool.list_pids()
        assert "killed by SIGKILL" in await call


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("skills: {core: [no_such_skill]}\n", "skills.core[0]"),
        ("skills: {core: [web_search], limits: {processes: 0}}\n", "processes"),
        ("skills: {core: [web_search], dynamic: ./others}\ntoolkits: [./clash.py]\n", "skill:third"),
    ],
)
@asynchronous
async def test_an_error_leaves_the_skills_unchanged(
    section: str, said: str, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write("clash.py", CLASH)
    async with reloading(folder, "skills: {core: [shell], dynamic: ./made, folders: [./shelf]}\n") as desk:
        folder.write("others/third.py", ECHO)
        before = desk.hub.skills

        folder.write("waypost.yaml", CONFIG.replace("toolkits:\n  - ./tools.py\n", "") + section)
        assert not await desk.hub.reload()

        assert said in caplog.text
        assert await desk.skills() == ["echo", "shell"]
        assert await desk.call("echo") == "in"
        await desk.client.refute_notification("tools/list_changed")
        assert desk.hub.skills is before
        assert before is not None
        assert (await before.reload("echo")).name == "echo"


@asynchronous
async def test_a_change_of_skills_in_a_replaced_section_is_refused(folder: Folder) -> None:
    async with reloading(folder, "skills: {core: [], dynamic: ./made}\n") as desk:
        old = desk.hub.skills
        assert old is not None
        assert await desk.reload("skills: {core: [], dynamic: ./made, watch: true}\n")
        with pytest.raises(SkillRefused, match="has just changed") as refused:
            await old.load("echo.py")
        assert refused.value.code == "section_changed"
        assert await desk.skills() == ["echo"]

        folder.write("made/fresh.py", ECHO)  # the new section watches the folder
        await until(lambda: desk.hub.registry.find_tool("skill:fresh"))


@asynchronous
async def test_a_reload_before_the_start_applies_at_the_start(folder: Folder) -> None:
    (folder.path / "made").mkdir()
    folder.write("made/echo.py", ECHO)
    hub = folder.hub()
    folder.write("waypost.yaml", CONFIG + "skills: {core: [shell], dynamic: ./made}\n")
    assert await hub.reload()
    async with using(hub) as client:
        assert names(await client.list_tools()) == ["skill:echo", "skill:shell", "speak"]
