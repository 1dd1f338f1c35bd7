"""`GET /api/v1/events`: changes as they happen, within bounds."""

from __future__ import annotations

import json

import pytest

from tests.api.conftest import ADMIN, AGENT, operated_hub
from tests.api.releasing import releasing
from tests.console.conftest import Person
from tests.protocol.conftest import asynchronous
from tests.transports.http.conftest import Call
from waypost import Hub
from waypost.api import events
from waypost.console.pages import PAGES


async def follow(hub: Hub, query: str = "", key: str = ADMIN) -> Call:
    """A stream that has begun, or that was refused."""
    call = await Person(hub).visit(f"/api/v1/events{query}", authorization=f"Bearer {key}")
    return await call.started()


@asynchronous
async def test_changes_of_the_registry_of_keys_and_of_instances_are_sent_as_they_happen() -> None:
    async with releasing() as releases:
        hub = releases.hub
        stream = await follow(hub)
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        await stream.until(lambda: b": connected" in stream.body)

        @hub.tool
        async def later() -> str:
            return ""

        await stream.until(lambda: b'{"kind":"tools","id":"later"}' in stream.body)
        await releases.fetch("POST", "/api/v1/keys", {"id": "ci"})
        await stream.until(lambda: b'{"kind":"keys","id":"ci"}' in stream.body)
        run, _ = await releases.asked(service="shop")
        await stream.until(lambda: f'{{"kind":"instances","id":"{run}"}}'.encode() in stream.body)
        await stream.until(lambda: f'{{"kind":"approvals","id":"{run}"}}'.encode() in stream.body)
        stream.leave()


@asynchronous
async def test_only_the_kinds_that_were_asked_for_are_sent() -> None:
    async with releasing() as releases:
        stream = await follow(releases.hub, "?kinds=keys,upstreams")
        await releases.start()
        await releases.fetch("POST", "/api/v1/keys", {"id": "ci"})
        await stream.until(lambda: b'"ci"' in stream.body)
        assert b"instances" not in stream.body
        stream.leave()


@asynchronous
async def test_a_kind_that_does_not_exist_is_refused() -> None:
    async with releasing() as releases:
        call = await Person(releases.hub).visit("/api/v1/events?kinds=keys,instance", authorization=f"Bearer {ADMIN}")
        await call.started()
        assert call.status == 400
        assert (
            "There are no changes of the kind 'instance'; use approvals or audit or" in json.loads(call.body)["error"]
        )
        page = ",".join(kind for page in PAGES for kind in page.live)
        stream = await follow(releases.hub, f"?kinds={page}")
        assert stream.status == 200
        stream.leave()


@asynchronous
async def test_a_stream_ends_with_its_key_and_with_the_hub() -> None:
    async with releasing() as releases:
        key = await releases.hub.keys.create("vera", roles=["viewer"])
        ended, stays = await follow(releases.hub, key=key), await follow(releases.hub)
        await releases.hub.keys.revoke("vera")
        await ended.task
        assert ended.complete
        assert not stays.task.done()
        releases.hub.engine.release()
        await stays.task
        assert stays.complete


@asynchronous
async def test_a_key_without_a_role_follows_approvals_and_nothing_else() -> None:
    async with releasing() as releases:
        stream = await follow(releases.hub, "?kinds=keys,approvals", key=AGENT)
        await releases.fetch("POST", "/api/v1/keys", {"id": "ci"})
        await releases.asked()
        await stream.until(lambda: b'"kind":"approvals"' in stream.body)
        assert (b'"keys"' in stream.body, b'"instances"' in stream.body) == (False, False)
        stream.leave()


@asynchronous
async def test_streams_are_limited() -> None:
    hub = operated_hub(rules=(), max_streams=1)
    try:
        first = await follow(hub)
        second = await follow(hub)
        assert second.status == 503
        assert b"maxStreams" in second.body
        first.leave()
        await first.task
        third = await follow(hub)
        assert third.status == 200
        third.leave()
    finally:
        await hub.stop()


@asynchronous
async def test_many_rows_are_one_event_and_observation_ends_with_the_last_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "MAX_ROWS", 1)
    hub = operated_hub(rules=())
    try:
        stream = await follow(hub)
        await stream.until(lambda: b": connected" in stream.body)
        with hub.registry.as_one_change():
            hub.tool(name="one")(do_nothing)
            hub.tool(name="two")(do_nothing)
        await stream.until(lambda: b'{"kind":"tools","id":""}' in stream.body)
        assert b'"one"' not in stream.body
        stream.leave()
        await stream.task
        assert hub.guard.audit is not None
        assert hub.guard.audit.on_act is None
    finally:
        await hub.stop()


async def do_nothing() -> None:
    return None
