"""A worker on an SDK of the iii project that offers a kind of trigger which another provides is told so, and waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.iii_peers import LANGUAGES, Language, peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.test_triggers import bind, provide
from tests.workers.wire import address, at_work, hub_for_workers, rows, wired

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_logs_what_it_was_told_goes_on_and_takes_over(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub),
            wired(hub) as binder,
            wired(hub) as first,
            peer(language, address(hub), tmp_path, {"worker_name": "second"}) as second,
        ):
            await provide(first, name="first")
            await bind(binder)
            await first.next("registertrigger")
            await second.tell("type", id="tick")
            told = "The kind of trigger tick was not taken: it is provided by first"
            assert any(told in line for line in await second.tell("wait_for_log", text=told))
            await second.offer("peer::echo")
            assert (await second.call_until_found("peer::echo", "still there"))["echo"] == "still there"
            assert rows(hub)["workers"] == 3
            await first.socket.close()
            assert (await second.heard("bound"))["function"] == "a::b"
            assert len(await second.complaints()) == 1
            await until(lambda: rows(hub)["kinds"] == 1)

    scenario()
