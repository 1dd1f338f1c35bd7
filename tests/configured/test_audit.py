"""The section `audit`: where calls go on record."""

from __future__ import annotations

import asyncio

import pytest

from tests.configured.conftest import CONFIG, Folder, run, using


@pytest.mark.parametrize(("sink", "entries"), [("", 2), ("audit: {sink: store}\n", 2), ("audit: {sink: none}\n", 0)])
def test_calls_go_on_record_where_the_file_says(sink: str, entries: int, folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG + sink)

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            await client.call_tool("speak")
            if hub.guard.audit is not None:
                await hub.guard.audit.written()
            assert len(await hub.store.audit.latest()) == entries

    asyncio.run(scenario())


def test_the_audit_can_be_a_file_for_its_owner_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    folder.write("waypost.yaml", CONFIG + "audit: {sink: file}\n")
    run(folder, lambda client: client.call_tool("speak"))
    file = folder.path / ".waypost" / "audit.jsonl"
    assert '"capability":"speak"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
