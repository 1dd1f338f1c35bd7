"""Several hubs on one PostgreSQL notice each other's changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.conftest import asynchronous, until
from waypost import Hub
from waypost.capabilities.capability import Kind
from waypost.config.models import State, Workflow
from waypost.documents.records import OPERATOR
from waypost.runtime import runtime as runtime_module
from waypost.testing import connect

SKILL = "def run(args):\n    return 'hi'\n"


@asynccontextmanager
async def both(folder: Path, url: str, more: str = "") -> AsyncIterator[tuple[Hub, Hub]]:
    """Two hubs of one configuration."""
    file = folder / "waypost.yaml"
    file.write_text(f'store: {{url: "{url}"}}\nserver: {{surface: full}}\n{more}')
    hubs = Hub.from_config(file), Hub.from_config(file)
    try:
        async with connect(hubs[0]), connect(hubs[1]):
            yield hubs
    finally:
        for hub in hubs:
            await hub.stop()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the refresh interval."""
    monkeypatch.setattr(runtime_module, "REFRESH_INTERVAL_S", 0.02)


def has(hub: Hub, kind: Kind, name: str) -> Callable[[], bool]:
    """Whether a hub offers something."""
    return lambda: name in hub.registry[kind]


@asynchronous
async def test_a_skill_unloaded_and_loaded_at_one_hub_changes_at_the_other(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "hi.py").write_text(SKILL)
    async with both(tmp_path, postgres_url, "skills: {core: [], dynamic: ./skills}\n") as (one, other):
        assert one.skills is not None
        is_there = has(other, Kind.TOOL, "skill:hi")
        assert is_there()
        await one.skills.unload("hi")
        await until(lambda: not is_there())
        await one.skills.load("hi.py")
        await until(is_there)


@asynchronous
async def test_a_hub_without_workflows_and_documents_notices_the_first_ones_of_another(
    tmp_path: Path, postgres_url: str
) -> None:
    async with both(tmp_path, postgres_url) as (one, other):
        assert not other.runtime.has_workflows
        model = Workflow(initial_state="s", states={"s": State(terminal=True)})
        await one.workflows.stored.create("release", model)
        await one.documents.skills.register("team/x", "# X\n\nText.", OPERATOR)
        await until(has(other, Kind.TOOL, "workflow:release"))
        await until(has(other, Kind.RESOURCE, "iii://team/x"))


@asynchronous
async def test_a_failing_refresh_does_not_prevent_other_refreshes(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise RuntimeError("by accident")

    async with both(tmp_path, postgres_url) as (one, other):
        monkeypatch.setattr(other.keys, "refresh", fail)
        for name in ("team/x", "team/y"):
            await one.documents.skills.register(name, "# X\n\nText.", OPERATOR)
            await until(has(other, Kind.RESOURCE, f"iii://{name}"))
    assert "changes of other replicas were not read" in caplog.text
