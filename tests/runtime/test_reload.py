"""A reload is prepared by all components and committed by all, or nothing changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.capabilities.capability import Capability, Kind
from waypost.runtime.component import Change, Component
from waypost.runtime.core import Core
from waypost.settings import Settings

KIT = """
from waypost import Toolkit, tool

class Kit(Toolkit):
    @tool
    def {name}(self) -> str:
        \"\"\"Say a word.\"\"\"
        return "{name}"
"""
SKILL = """
def run(args):
    return "ok"
"""
BEFORE = """
server: {name: desk, version: "1", surface: both}
toolkits: [./before.py]
prompts: {ask: {template: Before.}}
skills: {core: [system_info], dynamic: ./skills}
connections: {far: {kind: mcp, command: "true"}}
proxy: {expose: [{name: one, executor: {kind: noop}}]}
workflows: {flow: {initialState: a, states: {a: {transitions: {go: {target: b}}}, b: {terminal: true}}}}
policies: [{name: no-one, type: mcp_restriction, config: {tool_pattern: one, action: deny}}]
auth: {anonymous: {roles: [agent]}}
search: {ranking: weighted}
mcp: {tool_timeout_ms: 1000}
"""
AFTER = """
server: {name: desk, version: "1", surface: both}
toolkits: [./after.py]
prompts: {reply: {template: After.}}
skills: {core: [web_search], dynamic: ./skills}
connections: {far: {kind: mcp, command: "false"}}
proxy: {expose: [{name: two, executor: {kind: noop}}], import: [{connection: far, prefix: far}]}
workflows: {other: {initialState: a, states: {a: {transitions: {go: {target: b}}}, b: {terminal: true}}}}
policies: [{name: no-two, type: mcp_restriction, config: {tool_pattern: two, action: deny}}]
auth: {anonymous: {roles: [guest]}}
search: {ranking: hybrid}
mcp: {tool_timeout_ms: 2000}
"""
CHANGING = ["rows", "access", "skills", "upstreams", "imports", "gateway", "workflows", "toy"]
"""Every part of a reload: two of the configuration itself, and the components whose settings change."""


class Toy(Component):
    """A component of a program, after all others."""

    name = "toy"
    ranking = ""

    async def prepare(self, settings: Settings) -> Change | None:
        return ToyChange(self, settings.search.ranking)


class ToyChange(Change):
    def __init__(self, toy: Toy, ranking: str) -> None:
        self._toy, self._new, self._old = toy, ranking, toy.ranking

    def commit(self) -> None:
        self._toy.ranking = self._new

    async def rollback(self) -> None:
        self._toy.ranking = self._old


def write(folder: Path) -> Path:
    (folder / "before.py").write_text(KIT.format(name="old_word"))
    (folder / "after.py").write_text(KIT.format(name="new_word"))
    (folder / "skills").mkdir()
    (folder / "skills" / "echo.py").write_text(SKILL)
    file = folder / "waypost.yaml"
    file.write_text(BEFORE)
    return file


def state_of(hub: Hub) -> dict[str, Any]:
    """Everything that a reload may change."""
    assert hub.runtime.configuration is not None
    core = hub.core
    return {
        "names": {kind: sorted(row.id for row in hub.registry[kind]) for kind in Kind},
        "rows": {row.id: id(row.handler) for row in hub.registry.tools},
        "rules": [rule.name for rule in core.guard.policy.rules],
        "timeout": core.pipeline.timeout,
        "anonymous": hub.runtime.authentication.known({}),
        "ranking": hub.runtime.gateway.directory.index.ranking,
        "connections": dict(hub.runtime.upstreams.connections),
        "workflows": sorted(one.id for one in hub.workflows.engine.library),
        "loaded": hub.runtime.configuration.loaded,
        "toy": hub.components[0].ranking,  # type: ignore[attr-defined]  # the toy
    }


async def served(folder: Path) -> tuple[Hub, Path]:
    file = write(folder)
    hub = Hub.from_config(file).add(Toy())
    await hub.start()
    assert hub.runtime.configuration is not None
    await hub.runtime.configuration.stop()  # the test says when to reload
    _ = hub.runtime.make_imports()
    return hub, file


@asynchronous
async def test_a_reload_changes_everything_at_once(tmp_path: Path) -> None:
    hub, file = await served(tmp_path)
    changes: list[frozenset[Kind]] = []
    hub.registry.subscribe(lambda change: changes.append(change.kinds))
    file.write_text(AFTER)
    try:
        assert await hub.reload()
        after = state_of(hub)
        answer = len(changes)
    finally:
        await hub.stop()

    assert "new_word" in after["names"][Kind.TOOL] and "old_word" not in after["names"][Kind.TOOL]
    assert after["rules"] == ["no-two"] and after["timeout"] == 2.0 and after["ranking"] == "hybrid"
    assert after["workflows"] == ["other"] and after["toy"] == "hybrid"
    assert after["anonymous"].roles == ("guest",)
    assert answer == 1


@pytest.mark.parametrize("step", ["prepare", "commit"])
@pytest.mark.parametrize("part", CHANGING)
def test_a_failure_in_any_part_changes_nothing(
    part: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        hub, file = await served(tmp_path)
        try:
            break_part(hub, part, step, monkeypatch)
            before = state_of(hub)
            file.write_text(AFTER)
            assert not await hub.reload()
            assert state_of(hub) == before
            assert "injected" in caplog.text
            monkeypatch.undo()
            assert await hub.reload()
            assert state_of(hub) != before
        finally:
            await hub.stop()

    asyncio.run(scenario())


def break_part(hub: Hub, part: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one step of one part of the next reload fail."""

    def fail(*_: Any) -> Any:
        raise RuntimeError("injected")

    from waypost.runtime import configuration

    if part in ("rows", "access"):
        name = "_Rows" if part == "rows" else "_Access"
        if step == "prepare":
            monkeypatch.setattr(configuration, name, fail)
        else:
            monkeypatch.setattr(getattr(configuration, name), "commit", fail)
        return
    component = next(one for one in hub.runtime.components if one.name == part)
    prepare = component.prepare

    async def prepared(settings: Settings) -> Change | None:
        if step == "prepare":
            fail()
        change = await prepare(settings)
        assert change is not None, f"{part} has nothing to change"
        monkeypatch.setattr(change, "commit", fail)
        return change

    monkeypatch.setattr(component, "prepare", prepared)


class PlainToy:
    """A component and its change, which inherit nothing."""

    name = "plain"
    leaving: tuple[Capability, ...] = ()
    arriving: tuple[Capability, ...] = ()
    commits = 0

    async def start(self, core: Core) -> None: ...
    async def stop(self) -> None: ...
    async def refresh(self) -> None: ...

    async def prepare(self, settings: Settings) -> PlainToy:
        return self

    def commit(self) -> None:
        self.commits += 1

    async def rollback(self) -> None: ...


@asynchronous
async def test_a_component_and_its_change_need_to_inherit_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, toy = write(tmp_path), PlainToy()
    hub = Hub.from_config(file).add(toy)
    await hub.start()
    try:
        file.write_text(AFTER)
        assert await hub.reload()
    finally:
        await hub.stop()
    assert toy.commits == 1
    assert "did not follow" not in caplog.text


@asynchronous
async def test_a_change_that_inherits_nothing_may_have_work_to_finish(tmp_path: Path) -> None:
    class Finishing(PlainToy):
        finished_after = 0

        async def finish(self) -> None:
            self.finished_after = self.commits

    file, toy = write(tmp_path), Finishing()
    hub = Hub.from_config(file).add(toy)
    await hub.start()
    try:
        file.write_text(AFTER)
        assert await hub.reload()
    finally:
        await hub.stop()
    assert toy.finished_after == 1
