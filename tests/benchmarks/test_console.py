"""The hub of the scenario `console` is filled as it says, and every page it measures answers within its size."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders.console_hub import make_hub
from benchmarks.scenarios.console import MAX_BYTES, list_places
from benchmarks.stores.busy_hub import APPROVALS, LONG, Size, fill
from tests.console.conftest import browsing
from tests.protocol.conftest import asynchronous
from waypost.identity import new_key

SIZE = Size(instances=600, events=300, entries=3_000)


@asynchronous
async def test_every_page_of_a_filled_hub_answers_within_its_size(tmp_path: Path) -> None:
    key, database = new_key(), tmp_path / "waypost.db"
    await fill(make_hub(1, key, database), database, SIZE)
    hub = make_hub(500, key, database)
    await hub.store.open()
    async with browsing(hub, key) as person:
        counts = await hub.store.counts()
        assert counts["instances"] == SIZE.instances + APPROVALS + 1
        assert len(await hub.store.audit.latest(10_000)) >= SIZE.entries
        assert f"Version {SIZE.events}" in await person.read(f"instances/{LONG}")
        for place in list_places():
            assert len((await person.read(place)).encode()) <= MAX_BYTES, place
