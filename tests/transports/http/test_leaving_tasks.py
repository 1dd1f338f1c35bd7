"""Tasks end with the key that started them, unless its id has another key."""

from __future__ import annotations

import asyncio

import pytest

from tests.protocol.conftest import Json, asynchronous, idle, request, stateless
from tests.transports.http.conftest import Call, Web, browsing
from tests.transports.http.guarded import READER, WRITER, bearer, guarded, sign_in
from waypost.identity import Authentication, Key, digest
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import V2025_11_25, V2026_07_28

OTHER = "wp_" + "o" * 43
LAST = {"name": "last", "arguments": {}}


async def started(web: Web, version: str, credential: str) -> Call:
    """A call that is answered with a task."""
    if version == V2025_11_25:
        return await (await sign_in(web, credential)).post(request(1, "tools/call", {**LAST, "task": {}}))
    can: Json = {CLIENT_CAPABILITIES: {"extensions": {TASKS_EXTENSION: {}}}}
    return await web.open_modern(stateless(1, "tools/call", LAST, **can), bearer(credential)).done()


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_a_task_ends_with_its_key_and_goes_on_while_its_id_has_another(version: str) -> None:
    auth = Authentication([Key("ci", digest(WRITER)), Key("me", digest(READER))])
    hub = guarded(auth)

    @hub.tool(task="required")
    async def last() -> None:
        """Last for ever."""
        await asyncio.Event().wait()

    async with browsing(hub) as web:
        for credential in (WRITER, READER):
            assert "result" in (await started(web, version, credential)).json
        tasks = list(hub.engine.tasks._running.values())
        auth.exchange(Authentication([Key("ci", digest(OTHER)), Key("me", digest(READER), roles=("agent",))]))
        await idle()
        assert [task.record.status for task in tasks] == ["working", "working"]

        auth.keys.revoke("ci")
        auth.keys.revoke("me")
        for task in tasks:
            await asyncio.wait_for(task.ended.wait(), 60)

    assert {(task.record.status, task.record.status_message) for task in tasks} == {
        ("cancelled", "The task was stopped: its key is refused by now.")
    }


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_a_principal_is_in_use_while_its_task_runs_and_not_by_a_session_that_waits(version: str) -> None:
    auth = Authentication([Key("ci", digest(WRITER)), Key("me", digest(READER))])
    hub, going = guarded(auth), asyncio.Event()

    @hub.tool(task="required")
    async def last() -> None:
        """Last until it is released."""
        await going.wait()

    async with browsing(hub) as web:
        await sign_in(web, READER)
        await started(web, version, WRITER)
        (task,) = hub.engine.tasks._running.values()
        assert hub.engine.find_principals_in_use() == {id(task.principal)}
        going.set()
        await asyncio.wait_for(task.ended.wait(), 60)
        await idle()

        assert hub.engine.find_principals_in_use() == set()
