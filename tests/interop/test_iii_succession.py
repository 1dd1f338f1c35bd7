"""The second owner of a function serves it when the first has disconnected, with the SDKs of the iii project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.iii_peers import Failed, peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, at_work, hub_for_workers, rows

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("end", ["killed", "taken back"])
def test_the_second_owner_of_a_function_takes_over_from_the_first(end: str, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub) as client,
            peer("python", address(hub), tmp_path, {"worker_name": "first"}) as first,
            peer("python", address(hub), tmp_path, {"worker_name": "second"}) as second,
        ):
            await first.offer("peer::echo")
            await until(lambda: rows(hub)["functions"] == 1)
            await second.offer("peer::echo")
            await second.send_command("wait_for_log", text="FUNCTION_NAMESPACE_CONFLICT")
            if end == "killed":
                await first.kill()
                await until(lambda: rows(hub)["workers"] == 1)
            else:
                await first.send_command("unfunction", id="peer::echo")
                await until(lambda: [len(one.functions) for one in hub.workers.connected] == [0, 1])
            assert (await second.call("peer::echo", "whose?"))["echo"] == "whose?"
            await second.wait_for_event("called", data="whose?")
            await client.call_tool("peer__echo", {"by": "an agent"})
            await second.wait_for_event("called", data={"by": "an agent"})
            await second.send_command("unfunction", id="peer::echo")
            await until(lambda: rows(hub)["functions"] == 0)
            with pytest.raises(Failed, match="function_not_found"):
                await second.call("peer::echo", 1)

    scenario()
