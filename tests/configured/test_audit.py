"""The section `audit`: the sink of audit entries."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from tests.configured.conftest import CONFIG, Folder, run, using
from tests.contract.samples import audited, head_of
from tests.protocol.conftest import asynchronous
from tests.worker.engine import working
from waypost.policy.audit import AdministrativeAction


@pytest.mark.parametrize(("sink", "entries"), [("", 2), ("audit: {sink: store}\n", 2), ("audit: {sink: none}\n", 0)])
def test_calls_are_written_to_the_configured_sink(sink: str, entries: int, folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG + sink)

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            await client.call_tool("speak")
            if hub.guard.audit is not None:
                await hub.guard.audit.written()
            assert len(await hub.store.audit.latest()) == entries

    asyncio.run(scenario())


def test_entries_are_deleted_after_the_configured_days(folder: Folder) -> None:
    config = CONFIG.replace("surface: full", "surface: full, sessionIdleMs: 20")
    folder.write("waypost.yaml", config + "audit: {retentionDays: 3}\n")

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub):
            ages = {"a": 2.9, "b": 3.1, "c": 100.0}
            for chain, days in ages.items():
                at = hub.store.now() - days * 86_400
                await hub.store.audit.append(audited(chain=chain, number=1, at=at), head=head_of)
            while {entry.chain for entry in await hub.store.audit.latest()} != {"a"}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_the_audit_can_be_a_file_with_owner_permissions(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    folder.write("waypost.yaml", CONFIG + "audit: {sink: file}\n")
    run(folder, lambda client: client.call_tool("speak"))
    file = folder.path / ".waypost" / "audit.jsonl"
    assert '"capability":"speak"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


@asynchronous
async def test_changes_by_files_and_workers_are_in_the_audit(folder: Folder) -> None:
    (folder.path / "made").mkdir()
    folder.write("made/echo.py", "def run(args):\n    return args['input']\n")
    rest = "skills: {core: [], dynamic: ./made, watch: false}\nworkers: {port: 0}\n"
    folder.write("waypost.yaml", CONFIG + rest)
    hub = folder.hub()
    async with using(hub):
        folder.write("waypost.yaml", CONFIG + rest + "policies: [{name: calm, type: rate_limit}]\n")
        assert await hub.reload()
        async with working(hub, "mailer") as worker:
            await worker.publish_skill("mail/send", "# Mail")
            await worker.trigger("skills::unregister", {"id": "mail/send"})
        assert hub.guard.audit is not None
        await hub.guard.audit.written()
        entries = [entry.value for entry in (await hub.store.audit.latest())[::-1]]

    known = get_args(AdministrativeAction)
    found = [
        (one["action"], one["principal"], one["callerType"], one["capability"], one.get("reason", ""))
        for one in entries
        if one.get("action") in known
    ]
    assert list(dict.fromkeys(found)) == [  # the watcher of the file may reload it too
        ("skill.loaded", "hub", "file", "echo", "echo.py"),
        ("policy.changed", "hub", "file", "policies", "calm"),
        ("config.reloaded", "hub", "file", "config", str(folder.config)),
        ("document.published", "worker:mailer", "worker", "mail/send", ""),
        ("document.removed", "worker:mailer", "worker", "mail/send", ""),
    ]
