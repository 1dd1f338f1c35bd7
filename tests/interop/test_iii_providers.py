"""A worker on an SDK of the iii project that offers a trigger type of another worker is refused, and waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.iii_peers import LANGUAGES, Language, peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.test_triggers import bind, provide
from tests.workers.wire import address, at_work, hub_for_workers, rows, wired

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_logs_the_refusal_continues_and_takes_over(language: Language, tmp_path: Path) -> None:
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
            await second.send_command("type", id="tick")
            answer = "The kind of trigger tick was not taken: it is provided by first"
            assert any(answer in line for line in await second.send_command("wait_for_log", text=answer))
            await second.offer("peer::echo")
            assert (await second.call_until_found("peer::echo", "still there"))["echo"] == "still there"
            assert rows(hub)["workers"] == 3
            await first.socket.close()
            assert (await second.wait_for_event("bound"))["function"] == "a::b"
            assert len(await second.logged_errors()) == 1
            await until(lambda: rows(hub)["kinds"] == 1)

    scenario()
