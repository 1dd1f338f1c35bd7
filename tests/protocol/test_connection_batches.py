"""Batches, which one protocol version has and the others refuse."""

import pytest

from tests.protocol.conftest import (
    Json,
    assorted_hub,
    asynchronous,
    cancelled,
    connected,
    in_session,
    initialization,
    notification,
    request,
    until,
)
from tests.protocol.waiting import Waiting, call
from waypost.errors import InvalidRequest
from waypost.wire.messages import parse_batch
from waypost.wire.versions import LEGACY, V2025_03_26


def batch_of(*messages: Json) -> list[Json]:
    return list(messages)


@asynchronous
async def test_a_batch_is_answered_as_one_array_in_its_version() -> None:
    async with in_session(assorted_hub(), V2025_03_26) as peer:
        peer.send(
            batch_of(
                request(1, "ping"),
                notification("notifications/roots/list_changed"),
                request("two", "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
                request(3, "no/such/method"),
            )
        )
        answers = await peer.first(lambda message: isinstance(message, list))
        by_id = {answer["id"]: answer for answer in answers}
        assert by_id.keys() == {1, "two", 3}
        assert by_id["two"]["result"]["content"] == [{"type": "text", "text": "3"}]
        assert by_id[3]["error"]["code"] == -32601


@pytest.mark.parametrize("version", [version for version in LEGACY if version != V2025_03_26])
@asynchronous
async def test_other_versions_refuse_batches(version: str) -> None:
    async with in_session(assorted_hub(), version) as peer:
        peer.send(batch_of(request(1, "ping")))
        refusal = await peer.response(None)
        assert refusal["error"]["code"] == -32600
        assert V2025_03_26 in refusal["error"]["message"]
        assert await peer.result(request(2, "ping")) == {}


@asynchronous
async def test_messages_right_after_initialize_belong_to_the_session() -> None:
    async with connected(assorted_hub()) as peer:
        peer.send(initialization(V2025_03_26))
        peer.send(request(1, "tools/list"))
        peer.send(batch_of(request(2, "ping"), request(3, "tools/list")))
        peer.send(notification("notifications/initialized"))
        answers = await peer.first(lambda message: isinstance(message, list) or message.get("id", 0) is None)
        assert isinstance(answers, list), answers
        assert {answer["id"] for answer in answers} == {2, 3}
        assert "result" in await peer.response(1)


@asynchronous
async def test_a_batch_before_initialize_is_refused() -> None:
    async with connected(assorted_hub()) as peer:
        peer.send(batch_of(initialization(V2025_03_26)))
        assert (await peer.response(None))["error"]["code"] == -32600
        assert len(peer.hub.engine.sessions) == 0


@pytest.mark.parametrize(("batch", "code"), [(b"[]", -32600), (b"[1,", -32700), (b"[" * 66 + b"]" * 66, -32700)])
@asynchronous
async def test_a_malformed_batch_is_refused_as_a_whole(batch: bytes, code: int) -> None:
    async with in_session(assorted_hub(), V2025_03_26) as peer:
        peer.send(batch)
        assert (await peer.response(None))["error"]["code"] == code


@asynchronous
async def test_an_invalid_message_in_a_batch_is_refused_and_the_others_are_answered() -> None:
    async with in_session(assorted_hub(), V2025_03_26) as peer:
        peer.send(b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}, 1, {"jsonrpc": "1.0", "id": 8, "method": "ping"}]')
        answers = await peer.first(lambda message: isinstance(message, list))
        assert {answer["id"]: answer.get("error", {}).get("code") for answer in answers} == {
            7: None,
            None: -32600,
            8: -32600,
        }


@asynchronous
async def test_a_batch_of_only_invalid_messages_is_answered() -> None:
    async with in_session(assorted_hub(), V2025_03_26) as peer:
        peer.send(b"[1, 2]")
        answers = await peer.first(lambda message: isinstance(message, list))
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(None, -32600)] * 2


@asynchronous
async def test_a_batch_without_requests_is_not_answered() -> None:
    async with in_session(assorted_hub(), V2025_03_26) as peer:
        before = len(peer.received)
        peer.send(batch_of(notification("notifications/initialized"), {"jsonrpc": "2.0", "id": 1, "result": {}}))
        await peer.result(request(2, "ping"))
        assert len(peer.received) == before + 1


def test_a_batch_of_too_many_messages_is_refused_as_a_whole() -> None:
    message = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    with pytest.raises(InvalidRequest, match="at most 100 messages, not 101"):
        parse_batch(b"[" + b",".join([message] * 101) + b"]")
    assert len(parse_batch(b"[" + b",".join([message] * 100) + b"]")) == 100


@asynchronous
async def test_initialize_in_a_batch_is_refused() -> None:
    async with in_session(assorted_hub(), V2025_03_26) as peer:
        peer.send(batch_of(initialization(request_id=1), request(2, "ping")))
        answers = await peer.first(lambda message: isinstance(message, list))
        assert {answer["id"]: "error" in answer for answer in answers} == {1: True, 2: False}
        assert len(peer.hub.engine.sessions) == 1


@asynchronous
async def test_a_request_of_a_batch_can_be_cancelled() -> None:
    waiting = Waiting()
    async with in_session(waiting.hub, V2025_03_26) as peer:
        peer.send(batch_of(request(1, "tools/call", call("wait")), request(2, "tools/call", call("quick"))))
        await until(lambda: waiting.entered)
        peer.send(cancelled(1))
        answers = await peer.first(lambda message: isinstance(message, list))
        assert [answer["id"] for answer in answers] == [2]
