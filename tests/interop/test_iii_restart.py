"""After a hub is killed and restarted at the same port, workers of both SDKs reconnect with their registrations."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Serving, serving
from tests.interop.iii_peers import LANGUAGES, Failed, Language, Peer, peer
from tests.ports import free_port
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

pytestmark = pytest.mark.timeout(300)
DEADLINE = 150.0
STATE = {
    "type": "state",
    "event_type": "state:created",
    "scope": "s",
    "key": "k",
    "old_value": None,
    "new_value": 1,
}


@contextlib.contextmanager
def served(folder: Path, port: int) -> Iterator[Serving]:
    """A hub with a port for workers, until the block ends or it is killed."""
    settings = {
        "version": "1",
        "server": {"name": "hub", "port": 0},
        "store": {"url": "sqlite:///kept.db"},
        "workers": {"port": port},
    }
    (folder / "waypost.yaml").write_text(json.dumps(settings))
    with serving("waypost.yaml", "--data", folder / "data", cwd=folder) as hub:
        hub.wait_for(" is ready at ")
        yield hub


async def waits(database: Path) -> None:
    """Wait until a queued call is scheduled for a retry and is not claimed."""
    store = Store(SqliteDatabase(database))
    try:
        for _ in range(5000):
            if 0 < ((await store.jobs.next_due("workers")) or 0) - time.time() < 30:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("no call waits")
    finally:
        await store.close()


async def answered(caller: Peer, function: str, payload: object) -> dict[str, object]:
    """The answer of a function, once its caller and owner have reconnected."""
    while True:
        try:
            answer: dict[str, object] = await caller.call_until_found(function, payload, timeout_ms=10_000)
        except Failed as failed:
            assert failed.code in ("TIMEOUT", "invocation_stopped"), failed
        else:
            return answer


@pytest.mark.parametrize("language", LANGUAGES)
def test_workers_of_a_killed_hub_reconnect_with_their_functions_and_bindings(
    language: Language, tmp_path: Path
) -> None:
    port = free_port()

    async def scenario() -> None:
        other: Language = "node" if language == "python" else "python"
        address = f"ws://127.0.0.1:{port}"
        async with contextlib.AsyncExitStack() as stack:
            with served(tmp_path, port) as hub:
                provider = await stack.enter_async_context(peer(language, address, tmp_path))
                binder = await stack.enter_async_context(peer(other, address, tmp_path))
                await provider.send_command("type", id="tick")
                await provider.offer("peer::provided")
                await binder.offer("peer::echo")
                await binder.bind("b", "tick", "peer::echo", {"every": 5})
                bound = await provider.wait_for_event("bound")
                await binder.bind("s", "state", "peer::echo", {"scope": "s"})
                await answered(provider, "peer::echo", "before")
                await provider.call("state::set", {"scope": "t", "key": "k", "value": "kept"})
                await provider.call("not::yet", "for later", action="enqueue")
                await waits(tmp_path / "data" / "kept.db")
                hub.signal(signal.SIGKILL)
                assert hub.wait() == -signal.SIGKILL
            await binder.offer("not::yet")
            with served(tmp_path, port) as hub:
                again = await provider.wait_for_event("bound", config={"every": 5})
                assert again["id"] == bound["id"]
                assert (await answered(provider, "peer::echo", "after"))["echo"] == "after"
                assert (await answered(binder, "peer::provided", "too"))["echo"] == "too"
                assert await provider.call("state::get", {"scope": "t", "key": "k"}) == "kept"
                await provider.call("state::set", {"scope": "s", "key": "k", "value": 1})
                await binder.wait_for_event("called", function="peer::echo", data=STATE)
                await binder.wait_for_event("called", function="not::yet", data="for later")
                listed = await provider.call("engine::workers::list", {})
                assert len(listed["workers"]) == 2
                assert not [line for line in hub.lines if "Traceback" in line]
                message = json.loads((tmp_path / "data" / "hub.json").read_text())
                assert message["workers"] == address
                for worker in (provider, binder):
                    await worker.kill()

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
