"""Log messages, progress and cancellation pass between a server and the client of the call, in every pair of eras."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.gateway.importers import Json
from tests.gateway.passers import client_of, downstream, importing, transports, upstream
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY


@downstream
@upstream
@transports
def test_logs_and_progress_reach_the_caller(tmp_path: Path, version: str, era: str, transport: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with client_of(tmp_path, version, era, transport, elicitation=lambda _: {"action": "cancel"}) as (
            client,
            _,
        ):
            await client.set_log_level("info")
            await client.call_with_progress("up.chatter")
            note = await client.assert_notification("message", level="warning")
            assert note["params"]["data"] == {"message": "Careful.", "depth": 3}
            await client.assert_notification("progress", progress=1, total=2, message="half")
            await client.set_log_level("error")
            await client.call_tool("up.chatter")
            await client.refute_notification("message")

    scenario()


@downstream
@upstream
def test_logs_and_progress_of_concurrent_calls_reach_only_their_callers(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def apart() -> None:
        async with importing(tmp_path, era) as (hub, _), connect(hub, version) as ada, connect(hub, version) as bob:
            for client in (ada, bob):
                await client.set_log_level("info")
            hanging = asyncio.get_running_loop().create_task(ada.call_with_progress("up.hang"))
            await ada.assert_notification("progress", within=60)
            await bob.call_with_progress("up.chatter")
            await bob.assert_notification("message", level="warning")
            await bob.assert_notification("progress", total=2)
            await ada.refute_notification("message")
            await ada.refute_notification("progress")
            hanging.cancel()

    apart()


@downstream
@upstream
def test_a_cancelled_call_is_cancelled_at_the_upstream(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def cancelled() -> None:
        async with client_of(tmp_path, version, era, elicitation=lambda _: {"action": "cancel"}) as (client, far):
            assert far is not None
            call = asyncio.get_running_loop().create_task(client.call_with_progress("up.hang"))
            await client.assert_notification("progress", within=60)
            call.cancel()
            await until(lambda: far.calls == ["hang", "cancelled"])

    cancelled()


@downstream
@upstream
def test_a_cancelled_call_cancels_its_elicitation(tmp_path: Path, version: str, era: str) -> None:
    """A stateless client has its result already and only does not continue the call."""

    @asynchronous
    async def taken_back() -> None:
        asked, dropped = asyncio.Event(), asyncio.Event()

        async def never(params: Json) -> Any:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                dropped.set()

        async with client_of(tmp_path, version, era, elicitation=never) as (client, far):
            assert far is not None
            call = asyncio.get_running_loop().create_task(client.call_tool("up.paint", {"what": "door"}))
            async with asyncio.timeout(60):
                await asked.wait()
                call.cancel()
                if version == LATEST_LEGACY:
                    await client.assert_notification("cancelled", within=60)
                await dropped.wait()
            if version == LATEST_LEGACY and era == LATEST_LEGACY:
                await until(lambda: not any(session.running for session in far.engine.sessions))

    taken_back()
