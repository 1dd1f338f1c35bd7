"""Random steps of a client: once it is gone, no state of it is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings

from tests.protocol.conftest import asynchronous, cancelled, idle, notification, until
from tests.protocol.plays import PLAYS, Client, Line, Requests, Step, opening
from tests.protocol.stage import Stage, wait_briefly
from tests.transports.http.conftest import Call, Visitor, Web
from waypost.wire.versions import V2025_06_18, V2025_11_25, V2026_07_28, is_modern

PLAYED: Final = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the log messages about crashing tools."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


async def begun() -> tuple[Stage, set[asyncio.Task[Any]]]:
    """A started hub, and the tasks that run before the first client."""
    stage = Stage()
    await stage.hub.start()
    return stage, asyncio.all_tasks()


@pytest.mark.parametrize("version", [V2025_06_18, V2025_11_25, V2026_07_28])
@PLAYED
@given(steps=PLAYS)
@example(steps=[("call", "slow")])
@example(steps=[("call", "asking"), ("cancel", 0)])
@example(steps=[("call", "asking_twice"), ("wait", 5), ("answer", (0, "right"))])
@example(steps=[("listen", None), ("change", None)])
def test_a_closed_connection_leaves_no_state(version: str, steps: list[Step]) -> None:
    @asynchronous
    async def scenario() -> None:
        stage, before = await begun()
        line = Line(stage, version)
        client = Client(stage, line)
        await client.play(steps)
        assert await line.peer.connection.close()
        await idle()
        client.answered_once()
        connection = line.peer.connection
        assert (connection._tasks, connection._modern_requests) == (set(), {})
        await stage.ends_clean(before)

    scenario()


@pytest.mark.parametrize("version", [V2025_06_18, V2025_11_25, V2026_07_28])
@PLAYED
@given(steps=PLAYS)
def test_a_client_that_cancels_all_requests_leaves_an_idle_connection(version: str, steps: list[Step]) -> None:
    @asynchronous
    async def scenario() -> None:
        stage, before = await begun()
        line = Line(stage, version)
        client = Client(stage, line)
        await client.play(steps)
        await idle()
        for number in client.ids:
            line.send(cancelled(number))
        connection = line.peer.connection
        await wait_briefly(lambda: asyncio.all_tasks() == before)
        await idle()
        assert asyncio.all_tasks() - before == set()
        assert (connection._tasks, connection._modern_requests) == (set(), {})
        assert [(session.running, len(session.calls)) for session in stage.sessions] in ([], [({}, 0)])
        client.answered_once()
        await connection.close()
        await stage.ends_clean(before)

    scenario()


@pytest.mark.parametrize("version", [V2025_06_18, V2025_11_25, V2026_07_28])
@PLAYED
@given(steps=PLAYS)
@example(steps=[("call", "slow"), ("leave", 0)])
@example(steps=[("leave", 0), ("change", None), ("leave", 1), ("leave", 0)])
def test_http_clients_that_disconnect_and_end_their_session_leave_no_state(version: str, steps: list[Step]) -> None:
    @asynchronous
    async def scenario() -> None:
        stage, before = await begun()
        web = Web(stage.hub)
        visitor = None if is_modern(version) else await visit(web, version)
        client = Client(stage, Requests(web, version, visitor))
        await client.play(steps)
        calls: list[Call] = list(web.calls)
        if visitor is not None:
            assert (await visitor.delete()).status == 204
        for call in calls:
            call.leave()
        await until(lambda: all(call.task.done() for call in calls), "a request never ended")
        for call in calls:
            call.task.result()
            assert call.status < 500
        client.answered_once()
        await stage.ends_clean(before)

    scenario()


async def visit(web: Web, version: str) -> Visitor:
    """Open a session over HTTP."""
    opened = await web.post(opening(version))
    visitor = Visitor(web, opened.headers["mcp-session-id"], version)
    await visitor.post(notification("notifications/initialized"))
    return visitor
