"""Resource subscriptions are made at the server in the way of its era, and keep its session open."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.upstreams.pools import listening, pooled
from tests.upstreams.servers.curious import Dated, curious
from waypost.config.models import McpConnection
from waypost.upstreams.jsonrpc import Reply
from waypost.upstreams.upstream import Listener, ResourceSubscriptions
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

eras = pytest.mark.parametrize("era", [LATEST_LEGACY, V2026_07_28])
TODAY, PICTURE = "notes://today", "notes://picture"


class Patient(Listener):
    """A listener that needs the session and records updates."""

    wants_changes = True

    def __init__(self) -> None:
        self.is_patient = True
        self.heard_of: list[str] = []

    def is_needed(self, name: str) -> bool:
        return self.is_patient

    def on_notification(self, name: str, note: Reply) -> None:
        if note["method"] == "notifications/resources/updated":
            self.heard_of.append(note["params"]["uri"])


def is_known(far: Dated, wanted: set[str]) -> bool:
    """Whether a server has exactly these subscriptions."""
    return far.engine.broadcast.subscribed_uris() == wanted


def nothing() -> None:
    """Do nothing."""


@eras
def test_a_server_has_exactly_the_requested_subscriptions(era: str) -> None:
    @asynchronous
    async def scenario() -> None:
        far, watched, listener = curious(era), ResourceSubscriptions(), Patient()
        async with listening(far.asgi()) as url, pooled(McpConnection(url=url)) as pool:
            pool.listener = listener
            for wanted in ({TODAY, PICTURE}, {PICTURE}, set(), {TODAY}):
                await pool.subscribe("up", watched, set(wanted), nothing)
                await until(partial(is_known, far, wanted))
                assert watched.uris == wanted
            far.engine.broadcast.resource_updated(PICTURE)
            far.engine.broadcast.resource_updated(TODAY)
            await until(lambda: listener.heard_of == [TODAY])
        await far.stop()

    scenario()


@asynchronous
async def test_the_end_of_a_stream_is_reported_unless_it_was_requested() -> None:
    far, watched, ended = curious(V2026_07_28), ResourceSubscriptions(), asyncio.Event()
    async with listening(far.asgi()) as url, pooled(McpConnection(url=url)) as pool:
        await pool.subscribe("up", watched, {TODAY}, ended.set)
        await pool.subscribe("up", watched, {PICTURE}, ended.set)
        await until(lambda: far.engine.broadcast.subscribed_uris() == {PICTURE})
        assert not ended.is_set()
        far.engine.broadcast.close()
        await ended.wait()
        assert watched.uris == set()
    await far.stop()


def sessions(far: Dated) -> int:
    """How many sessions a server has."""
    return len(list(far.engine.sessions))


@asynchronous
async def test_a_needed_session_stays_open_without_calls() -> None:
    far, listener = curious(LATEST_LEGACY), Patient()
    async with listening(far.asgi()) as url, pooled(McpConnection(url=url), idle=0.05) as pool:
        pool.listener = listener
        asked = 0

        def is_needed(name: str) -> bool:
            nonlocal asked
            asked += 1
            return listener.is_patient

        listener.is_needed = is_needed  # type: ignore[method-assign]  # to count
        await pool.list_tools("up")
        await until(lambda: asked > 2)
        assert sessions(far) == 1
        listener.is_patient = False
        await until(lambda: sessions(far) == 0)
    await far.stop()
