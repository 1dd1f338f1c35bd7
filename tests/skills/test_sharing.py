"""Several hubs on one store and one directory serve the same loaded skills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.contract.conftest import asynchronous
from tests.skills.test_changes import says
from tests.skills.workbench import Workbench, workbench


@asynccontextmanager
async def both(folder: Path, **options: bool) -> AsyncIterator[tuple[Workbench, Workbench]]:
    """Two hubs with the same skills."""
    store, directory = f"sqlite:///{folder}/store.db", folder / "skills"
    async with workbench(directory, store=store, **options) as one, workbench(directory, store=store, **options) as two:
        yield one, two


def served(bench: Workbench) -> list[str]:
    """The skills a hub serves."""
    return [row.id for row in bench.skills.rows]


@asynchronous
async def test_a_refresh_applies_loads_reloads_and_unloads_of_another_hub(tmp_path: Path) -> None:
    async with both(tmp_path) as (here, there):
        await there.load("hi", says("one"))
        await here.skills.refresh()
        assert await here.text("hi") == "one"

        there.write("hi", says("two"))
        await there.skills.reload("hi")
        assert await here.text("hi") == "one"
        await here.skills.refresh()
        assert await here.text("hi") == "two"

        await there.skills.rollback("hi")
        await here.skills.refresh()
        assert await here.text("hi") == "one"

        await there.skills.unload("hi")
        await here.skills.refresh()
        assert served(here) == []
        assert [(info.name, info.status) for info in await here.skills.list_skills()] == [("hi", "unloaded")]
        assert here.alerts == []


@asynchronous
async def test_a_refresh_without_changes_causes_no_notification(tmp_path: Path) -> None:
    async with both(tmp_path) as (here, there):
        await here.load("hi", says("one"))
        here.changes.clear()
        await here.skills.refresh()
        await there.skills.refresh()
        await here.skills.refresh()
        assert here.changes == []
        assert served(there) == ["skill:hi"]


@asynchronous
async def test_a_file_that_differs_from_the_loaded_version_is_refused_and_reported_once(tmp_path: Path) -> None:
    async with both(tmp_path) as (here, there):
        await there.load("hi", says("one"))
        await here.skills.refresh()
        there.write("hi", says("two"))
        await there.skills.reload("hi")
        here.write("hi", says("three"))
        await here.skills.refresh()
        await there.load("other", says("other"))
        await here.skills.refresh()
        assert served(here) == ["skill:other"]
        (alert,) = here.alerts
        assert alert.startswith("The skill hi is refused (checksum_mismatch): ")

        await here.skills.reload("hi")
        await there.skills.refresh()
        assert await there.text("hi") == "three"


@asynchronous
async def test_hubs_that_load_the_same_new_files_concurrently_all_serve_them(tmp_path: Path) -> None:
    async with both(tmp_path) as (here, there):
        for name in ("a", "b"):
            here.write(name, says(name))
        await asyncio.gather(here.skills.start(), there.skills.start())
        for bench in (here, there):
            assert sorted(served(bench)) == ["skill:a", "skill:b"]
            assert bench.alerts == []


@asynchronous
async def test_a_refresh_does_not_wait_for_a_running_change(tmp_path: Path) -> None:
    async with both(tmp_path) as (here, there):
        await there.load("hi", says("one"))
        await here.skills.hold()
        await here.skills.refresh()
        assert served(here) == []
        here.skills.release()
        await here.skills.refresh()
        assert served(here) == ["skill:hi"]
