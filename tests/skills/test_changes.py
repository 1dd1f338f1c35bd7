"""Loading, replacing and unloading skills while the hub serves: atomic, one change each, and persistent."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import DEADLINE, asynchronous
from tests.skills.workbench import ECHO, Workbench, workbench
from waypost.errors import RemoteError, StaleVersion, StoreError
from waypost.skills import files
from waypost.skills.files import SkillRefused
from waypost.skills.skill_set import MAX_VERSIONS
from waypost.stores.records import Documents


def says(answer: str, version: str = "1") -> str:
    """A skill with a constant answer."""
    return f"version = {version!r}\ndef run(args):\n    return {answer!r}\n"


async def tool(bench: Workbench, name: str) -> dict[str, Any]:
    """The tool of a skill in the list of a client."""
    (found,) = [tool for tool in await bench.client.list_tools() if tool["name"] == f"skill:{name}"]
    return dict(found)


@asynchronous
async def test_a_tool_has_the_metadata_of_its_skill(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("bare", ECHO)
        await bench.load(
            "full",
            """
            description = "Sorts things"
            version = "2.1"
            permissions = ["web_read", "llm"]
            routes = ["on_items", "on_empty"]
            input_schema = {"query": {"type": "string"}, "count": {"type": "integer"}}

            async def run(args, ctx):
                return args
            """,
        )
        bare, full = await tool(bench, "bare"), await tool(bench, "full")
        row = bench.hub.registry.tool("skill:full")

    said = "Input data passed to the skill (string, or JSON-encoded)"
    assert bare["description"] == "bare skill [dynamic]"
    assert bare["inputSchema"] == {
        "type": "object",
        "properties": {"input": {"type": "string", "description": said}, "config": {"type": "object"}},
    }
    assert full["description"] == "Sorts things [dynamic]"
    assert set(full["inputSchema"]["properties"]) == {"input", "config", "query", "count"}
    assert full["inputSchema"]["properties"]["input"]["description"] == (
        f"{said} Possible output branches: on_items, on_empty."
    )
    assert "required" not in full["inputSchema"]
    assert (row.owner, row.permissions, row.mcp.task) == ("dynamic", ("web_read", "llm"), "forbidden")


@asynchronous
async def test_typed_fields_reach_the_skill_directly_and_in_config(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        schema = {
            "type": "object",
            "properties": {"query": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["query"],
        }
        await bench.load("show", f"input_schema = {schema!r}\ndef run(args):\n    return args\n")

        assert await bench.value("show", query="q", count=2, config={"count": 5, "own": 1}) == {
            "query": "q",
            "count": 2,
            "input": "",
            "config": {"query": "q", "count": 5, "own": 1},
        }
        missing = await bench.call("show")
        assert missing["isError"]
        assert missing["content"][0]["text"].startswith("Invalid arguments for tool skill:show:")
        assert (await bench.call("show", query="q", count="many"))["isError"]


@asynchronous
async def test_each_change_causes_one_notification(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        file = bench.write("say", says("one"))

        async def assert_one_change() -> None:
            await bench.client.assert_notification("tools/list_changed")
            await bench.client.ping()
            await bench.client.refute_notification("tools/list_changed")

        await bench.skills.load(file)
        await assert_one_change()
        assert "skill:say" in [tool["name"] for tool in await bench.client.list_tools()]
        await bench.skills.reload("say")
        await assert_one_change()
        bench.write("say", says("two"))
        await bench.skills.reload("say")
        await assert_one_change()
        await bench.skills.rollback("say")
        await assert_one_change()
        await bench.skills.unload("say")
        await assert_one_change()
        assert "skill:say" not in [tool["name"] for tool in await bench.client.list_tools()]
        assert len(bench.changes) == 5


@asynchronous
async def test_a_failed_reload_leaves_the_old_version_serving(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("say", says("old"))
        before = await bench.skills.list_skills()
        for broken in ("def run(", "raise ValueError", "permissions = ['x']\n" + ECHO, "import socket\n" + ECHO):
            bench.write("say", broken)
            with pytest.raises(SkillRefused):
                await bench.skills.reload("say")
            with pytest.raises(SkillRefused):
                await bench.skills.load("say.py")
        (tmp_path / "say.py").unlink()
        with pytest.raises(SkillRefused):
            await bench.skills.reload("say")

        assert await bench.text("say") == "old"
        assert await bench.skills.list_skills() == before
        assert len(bench.changes) == 1


@asynchronous
async def test_a_store_error_leaves_the_old_version_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("say", says("one"))
        await bench.load("say", says("two", "2"))

        async def refuse(*_: object) -> None:
            raise StaleVersion

        with monkeypatch.context() as patched:
            patched.setattr(Documents, "put", refuse)
            bench.write("say", says("three", "3"))
            for change in (bench.skills.reload, bench.skills.rollback, bench.skills.unload):
                with pytest.raises(StoreError):
                    await change("say")

        assert await bench.text("say") == "two"
        assert (tmp_path / "say.py").read_text() == says("three", "3")
        assert len(bench.changes) == 2
        assert len(bench.skills.pool.list_pids()) == 1


@asynchronous
async def test_a_running_call_ends_on_the_version_it_started_with(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load(
            "say",
            """
            async def run(args, ctx):
                await ctx.progress(1)
                return (await ctx.elicit("go on?", {"type": "object", "properties": {}})).action + " on the old"
            """,
        )
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def answer(_: object) -> dict[str, Any]:
            reached.set()
            await go_on.wait()
            return {"action": "accept", "content": {}}

        async with asyncio.TaskGroup() as group, _second_client(bench, answer) as client:
            call = group.create_task(client.call_tool("skill:say", {}))
            await reached.wait()
            bench.write("say", says("new", "2"))
            await bench.skills.reload("say")
            assert await bench.text("say") == "new"
            await bench.skills.unload("say")
            go_on.set()
            answered = await call

        assert answered["content"][0]["text"] == "accept on the old"
        assert bench.skills.pool.list_pids() == []


def _second_client(bench: Workbench, answer: Any) -> Any:
    from waypost.testing import connect
    from waypost.wire.versions import V2025_11_25

    return connect(bench.hub, V2025_11_25, elicitation=answer)


@asynchronous
async def test_a_rollback_restores_the_previous_version_and_its_file(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        for number in ("1", "2", "3"):
            await bench.load("say", says(f"number {number}", number))

        assert (await bench.skills.rollback("say")).version == "2"
        assert await bench.text("say") == "number 2"
        assert (tmp_path / "say.py").read_text() == says("number 2", "2")
        assert (await bench.skills.rollback("say")).version == "3"
        assert (await bench.skills.rollback("say", "1")).version == "1"
        with pytest.raises(SkillRefused) as refused:
            await bench.skills.rollback("say", "9")
        assert refused.value.code == "no_earlier_version"
        (info,) = await bench.skills.list_skills()
        assert await bench.text("say") == "number 1"
        assert len(info.previous) == 2
        assert (await bench.skills.rollback("say", info.previous[0])).version == "2"


class Disk:
    """The real writing of files, which must not happen in the thread of the loop, and can be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes = 0
        self.is_writing = asyncio.Event()
        self.may_write = threading.Event()
        self.may_write.set()
        self._loop = asyncio.get_running_loop()
        self._write = files._write_atomically
        monkeypatch.setattr(files, "_write_atomically", self.write)

    def write(self, directory: int, name: str, data: bytes) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.writes += 1
        self._loop.call_soon_threadsafe(self.is_writing.set)
        assert self.may_write.wait(DEADLINE)
        self._write(directory, name, data)


@asynchronous
async def test_a_rollback_writes_and_restores_its_file_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("say", says("one"))
        await bench.load("say", says("two", "2"))
        disk = Disk(monkeypatch)
        await bench.skills.rollback("say")
        assert disk.writes == 1

        async def refuse(*_: object) -> None:
            raise StaleVersion

        with monkeypatch.context() as patched, pytest.raises(StoreError):
            patched.setattr(Documents, "put", refuse)
            await bench.skills.rollback("say")
        assert disk.writes == 3
        assert (tmp_path / "say.py").read_text() == says("one")


@asynchronous
async def test_a_rollback_that_is_cancelled_while_it_writes_restores_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("say", says("one"))
        await bench.load("say", says("two", "2"))
        disk = Disk(monkeypatch)
        disk.may_write.clear()
        rollback = asyncio.create_task(bench.skills.rollback("say"))
        await disk.is_writing.wait()
        rollback.cancel()
        await asyncio.sleep(0)
        disk.may_write.set()
        with pytest.raises(asyncio.CancelledError):
            await rollback

        assert (tmp_path / "say.py").read_text() == says("two", "2")
        assert await bench.text("say") == "two"


@asynchronous
async def test_ten_versions_are_kept(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        for number in range(MAX_VERSIONS + 3):
            await bench.load("say", says("something", str(number)))
            await bench.skills.reload("say")

        kept = await bench.hub.store.executables.get("say")
        assert kept is not None
        assert kept.value["version"] == str(MAX_VERSIONS + 2)
        assert [version["version"] for version in kept.value["previous"]] == [
            str(number) for number in range(2, MAX_VERSIONS + 2)
        ]
        with pytest.raises(SkillRefused):
            await bench.skills.rollback("say", "0")


@asynchronous
async def test_skills_survive_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with workbench(tmp_path / "skills", store=store, autoload=False) as bench:
        for name in ("same", "gone", "changed", "unloaded"):
            await bench.load(name, says(name))
        await bench.skills.unload("unloaded")
    (tmp_path / "skills" / "gone.py").unlink()
    (tmp_path / "skills" / "changed.py").write_text(says("something else"))
    (tmp_path / "skills" / "new.py").write_text(says("new"))

    async with workbench(tmp_path / "skills", store=store, autoload=False) as bench:
        assert await bench.text("same") == "same"
        for name in ("gone", "changed", "unloaded", "new"):
            with pytest.raises(RemoteError, match=f"Unknown skill: {name}"):
                await bench.call(name)
        assert len(bench.alerts) == 2
        assert "The skill changed is refused (checksum_mismatch)" in bench.alerts[0]
        assert "The skill gone is refused (file_not_found)" in bench.alerts[1]
        assert {info.name: info.status for info in await bench.skills.list_skills()} == {
            "same": "serving",
            "gone": "refused",
            "changed": "refused",
            "unloaded": "unloaded",
        }

        await bench.skills.reload("changed")
        assert await bench.text("changed") == "something else"

    async with workbench(tmp_path / "skills", store=store, autoload=False) as bench:
        assert await bench.text("changed") == "something else"


@asynchronous
async def test_new_files_are_loaded_at_the_start_and_invalid_ones_are_reported(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "good.py").write_text(ECHO)
    (tmp_path / "sub" / "deep.py").write_text(ECHO)
    (tmp_path / "bad.py").write_text("def run(")
    (tmp_path / "_part.py").write_text("x = 1")
    (tmp_path / "bad-name.py").write_text(ECHO)

    async with workbench(tmp_path, store=f"sqlite:///{tmp_path}/store.db") as bench:
        listed = {info.file: info.status for info in await bench.skills.list_skills()}
        served = {"sub/deep.py": "serving", "good.py": "serving"}
        assert listed == {**served, "bad.py": "refused", "bad-name.py": "refused"}
        assert await bench.text("deep", input="x") == "x"
        assert [alert.partition(":")[0] for alert in bench.alerts] == [
            "The skill bad-name.py is refused (bad_name)",
            "The skill bad.py is refused (compilation_error)",
        ]
        await bench.skills.unload("good")

    async with workbench(tmp_path, store=f"sqlite:///{tmp_path}/store.db") as bench:
        assert {info.name: info.status for info in await bench.skills.list_skills()} == {
            "deep": "serving",
            "good": "unloaded",
            "bad": "refused",
            "bad-name": "refused",
        }
        await bench.skills.load("good.py")
        assert await bench.text("good", input="again") == "again"


@asynchronous
async def test_a_skill_with_an_unknown_permission_is_refused_at_the_start(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with workbench(tmp_path / "skills", store=store, permissions=["paint"]) as bench:
        await bench.load("say", "permissions = ['paint']\n" + ECHO)
    async with workbench(tmp_path / "skills", store=store) as bench:
        assert "unknown_permissions" in bench.alerts[0]
        assert len(bench.hub.registry.tools) == 0


@asynchronous
async def test_changed_and_new_files_are_noticed(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("say", says("one"))
        changed: asyncio.Queue[None] = asyncio.Queue()
        bench.hub.registry.subscribe(lambda _: changed.put_nowait(None))
        stop = asyncio.Event()
        watching = asyncio.create_task(bench.skills.watch(stop))
        await asyncio.sleep(0)

        bench.write("say", says("two"))
        await changed.get()
        assert await bench.text("say") == "two"
        bench.write("other", says("new"))
        await changed.get()
        assert await bench.text("other") == "new"

        stop.set()
        await watching


@asynchronous
async def test_concurrent_changes_are_serialised(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("say", says("one"))
        await asyncio.gather(*(bench.skills.reload("say") for _ in range(10)))

        (info,) = await bench.skills.list_skills()
        assert info.revision == 11
        assert len(bench.changes) == 11
        assert len(bench.skills.pool.list_pids()) == 1


@asynchronous
async def test_a_missing_directory_has_no_skills(tmp_path: Path) -> None:
    async with workbench(tmp_path / "skills") as bench:
        (tmp_path / "skills").rmdir()
        await bench.skills.start()
        assert await bench.skills.list_skills() == []
        with pytest.raises(SkillRefused):
            await bench.skills.load("any.py")


@asynchronous
async def test_an_invalid_record_does_not_affect_other_skills(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with workbench(tmp_path / "skills", store=store) as bench:
        await bench.load("say", says("one"))
        await bench.hub.store.executables.put("broken", {"file": 5})
    async with workbench(tmp_path / "skills", store=store) as bench:
        assert await bench.text("say") == "one"
        assert [info.name for info in await bench.skills.list_skills()] == ["say"]


@asynchronous
async def test_starting_twice_changes_nothing(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("say", says("one"))
        pids = bench.skills.pool.list_pids()
        await bench.skills.start()

        assert bench.skills.pool.list_pids() == pids
        assert len(bench.changes) == 1
