"""A replica that drains refuses new work so that clients ask another one, and serves what belongs to running work."""

from __future__ import annotations

import json

import pytest

from tests.protocol.conftest import Json, assorted_hub, asynchronous, initialization, notification, request, stateless
from tests.transports.http.conftest import ADD, Call, browsing, code
from waypost.wire.versions import V2025_03_26


async def assert_refused(call: Call) -> None:
    """Check that the client is asked to retry on another connection."""
    await call.task
    assert (call.status, code(call)) == (503, -32000)
    assert (call.headers["retry-after"], call.headers["connection"]) == ("1", "close")
    assert "another replica" in call.json["error"]["message"]


@asynchronous
async def test_new_work_is_refused_in_both_eras() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        web.app.refuse_new_work()

        await assert_refused(web.open_post(initialization()))
        await assert_refused(web.open_modern(stateless(7, "tools/call", ADD)))
        call = visitor.open(request(7, "tools/call", ADD))
        await assert_refused(call)
        assert call.json["id"] == 7
        await assert_refused(visitor.listen())
        operated = web.open("POST", path="/api/v1/runs")
        await operated.task
        assert (operated.status, operated.headers["retry-after"], operated.headers["connection"]) == (503, "1", "close")
        answer = json.loads(operated.body)
        assert (list(answer), "another replica" in answer["error"]) == (["error"], True)


@asynchronous
async def test_a_batch_with_new_work_is_refused_as_a_whole() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session(V2025_03_26)
        web.app.refuse_new_work()

        await assert_refused(visitor.open([request(1, "ping"), request(2, "tools/call", ADD)]))
        assert (await visitor.post([request(1, "ping")])).status == 200


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (request(1, "ping"), 200),
        (request(1, "tools/list"), 200),
        (notification("notifications/cancelled", {"requestId": 5}), 202),
        ({"jsonrpc": "2.0", "id": 9, "result": {}}, 202),
        (b"{", 400),
    ],
)
@asynchronous
async def test_messages_about_running_work_are_served(message: Json | bytes, status: int) -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        web.app.refuse_new_work()
        web.app.refuse_new_work()  # once more changes nothing

        assert (await visitor.post(message)).status == status


@asynchronous
async def test_a_session_can_be_ended_and_health_be_read() -> None:
    async with browsing(assorted_hub()) as web:
        visitor = await web.session()
        web.app.refuse_new_work()

        assert (await visitor.delete()).status == 204
        assert (await web.open("GET", path="/health").done()).status == 200
