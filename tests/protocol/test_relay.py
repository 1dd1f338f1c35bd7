"""A session client may send each message to any replica, which relays it to the right one."""

from __future__ import annotations

import asyncio

import pytest

from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.conftest import Json, notification, request
from tests.protocol.replica_pair import next_message, run, running_pair, until
from tests.protocol.replica_pair import settings as settings
from tests.protocol.waiting import call
from waypost.buses.bus import MAX_MESSAGE_BYTES
from waypost.errors import NoHolder
from waypost.protocol import relay, tasks
from waypost.protocol.exchange import level_number
from waypost.settings import Settings
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

ACCEPTED: Json = {"action": "accept", "content": {"name": "Ada"}}


def said(text: str) -> Json:
    """The result of sampling."""
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


def answer(question: Json, result: Json) -> Json:
    """The response to a question."""
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


@pytest.mark.parametrize(
    ("tool", "method", "result", "text"),
    [
        ("greet", "elicitation/create", ACCEPTED, "Hello, Ada!"),
        ("model", "sampling/createMessage", said("hello"), "hello"),
        ("model", "sampling/createMessage", said("x" * 1_200_000), "x" * 1_200_000),  # too large for the bus
    ],
    ids=["elicitation", "sampling", "large"],
)
def test_a_question_of_one_replica_is_answered_through_the_other(
    postgres_url: str, settings: Settings, tool: str, method: str, result: Json, text: str
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            calling = at_a.open(request(1, "tools/call", call(tool)))
            question = await next_message(calling, method)
            assert (await at_b.post(answer(question, result))).status == 202
            response = await next_message(calling)
            assert response["result"]["content"][0]["text"] == text
            assert (await at_b.post(answer(question, result))).status == 202  # answered already: ignored

    run(scenario())


def test_a_call_of_one_replica_is_cancelled_through_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            calling = at_a.open(request(7, "tools/call", call("wait")))
            await pair.a.entered.wait()
            assert (await at_b.post(notification("notifications/cancelled", {"requestId": 8}))).status == 202
            assert (await at_b.post(notification("notifications/cancelled", {"requestId": 7}))).status == 202
            await pair.a.stopped.wait()
            await calling.done()
            assert all("result" not in message for message in calling.messages())

    run(scenario())


def test_the_session_of_another_client_cannot_answer_or_cancel(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            _, stranger = await pair.visitors()
            calling = at_a.open(request(1, "tools/call", call("greet")))
            question = await next_message(calling, "elicitation/create")
            wrong: Json = {"action": "accept", "content": {"name": "Eve"}}
            assert (await stranger.post(answer(question, wrong))).status == 202
            assert (await stranger.post(notification("notifications/cancelled", {"requestId": 1}))).status == 202
            assert (await at_b.post(answer(question, ACCEPTED))).status == 202
            response = await next_message(calling)
            assert response["result"]["content"][0]["text"] == "Hello, Ada!"

    run(scenario())


@pytest.mark.parametrize("unknown", ["hub-1", "x", "hub-0000000000000000-00000000-1 "])
def test_an_answer_to_no_question_is_ignored(postgres_url: str, unknown: str) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, Settings()) as pair:
            _, at_b = await pair.visitors()
            assert (await at_b.post({"jsonrpc": "2.0", "id": unknown, "result": {}})).status == 202

    run(scenario())


def test_an_answer_for_a_replica_that_has_ended_is_refused_and_names_the_reason(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            calling = at_a.open(request(1, "tools/call", call("greet")))
            question = await next_message(calling, "elicitation/create")
            await pair.a.hub.stop()
            refused = await at_b.post(answer(question, ACCEPTED))
            assert refused.status == 400
            assert "has ended" in refused.json["error"]["message"]

    run(scenario())


def test_a_replica_is_registered_as_alive_before_its_question_is_sent(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, _ = await pair.visitors()
            question = await next_message(at_a.open(request(1, "tools/call", call("greet"))), "elicitation/create")
            holder = question["id"].split("-")[1]
            assert await pair.b.hub.runtime.core.engine.sessions.liveness.is_alive(holder)

    run(scenario())


def test_a_message_that_cannot_be_relayed_is_refused_and_may_be_sent_again(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            calling = at_a.open(request(1, "tools/call", call("greet")))
            waiting = at_a.open(request(2, "tools/call", call("wait")))
            question = await next_message(calling, "elicitation/create")
            await pair.a.entered.wait()
            cancellation = notification("notifications/cancelled", {"requestId": 2})
            bus = pair.b.hub.runtime.core.bus
            await bus.close()
            for message in (answer(question, ACCEPTED), cancellation):
                refused = await at_b.open(message).started()
                await refused.task
                assert refused.status == 503
                assert "again" in refused.json["error"]["message"]
            await bus.open()
            for message in (answer(question, ACCEPTED), cancellation):
                assert (await at_b.post(message)).status == 202
            response = await next_message(calling)
            assert response["result"]["content"][0]["text"] == "Hello, Ada!"
            await pair.a.stopped.wait()
            await waiting.done()

    run(scenario())


def test_the_log_level_and_subscriptions_of_a_session_are_shared_between_replicas(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            session = pair.a.hub.engine.sessions.get(at_a.id)
            assert session is not None
            await at_b.ask("resources/subscribe", {"uri": "note://one"})
            await at_b.ask("resources/subscribe", {"uri": "note://two"})
            await until(lambda: session.subscriptions == {"note://one", "note://two"})
            assert pair.a.hub.engine.broadcast.subscribed_uris() == {"note://one", "note://two"}
            await at_b.ask("resources/unsubscribe", {"uri": "note://one"})
            await until(lambda: session.subscriptions == {"note://two"})
            await at_b.ask("logging/setLevel", {"level": "error"})
            await until(lambda: session.log_level == level_number("error"))

    run(scenario())


def test_a_stream_of_one_replica_gets_the_updates_subscribed_to_at_the_other(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            listening = await at_a.listen().started()
            await at_b.ask("resources/subscribe", {"uri": "note://one"})
            await until(lambda: "note://one" in pair.a.hub.engine.broadcast.subscribed_uris())
            await pair.b.hub.notify_resource_updated("note://one")
            updated = await next_message(listening, "notifications/resources/updated")
            assert updated["params"] == {"uri": "note://one"}

    run(scenario())


def test_a_session_ended_at_one_replica_ends_its_stream_at_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            listening = await at_a.listen().started()
            assert (await at_b.delete()).status == 204
            await listening.done()

    run(scenario())


def test_changes_at_two_replicas_at_once_are_all_kept(postgres_url: str) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, Settings()) as pair:
            at_a, at_b = await pair.visitors()
            uris = [f"note://{number}" for number in range(10)]
            await asyncio.gather(
                *((at_a, at_b)[number % 2].ask("resources/subscribe", {"uri": uri}) for number, uri in enumerate(uris))
            )
            stored = await pair.a.hub.runtime.core.store.sessions.load(at_a.id)
            assert stored is not None
            assert stored.subscriptions == uris

    run(scenario())


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable polling, so that replicas learn of task changes only by messages."""
    monkeypatch.setattr(tasks, "POLL_INTERVAL_S", 3600.0)
    monkeypatch.setattr(tasks, "HEARTBEAT_S", 3600.0)
    monkeypatch.setattr(relay, "HOLDER_TIMEOUT_S", 3600.0)


@pytest.mark.usefixtures("no_polling")
def test_the_result_of_a_task_wakes_a_client_of_the_other_replica(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            started = await at_a.ask("tools/call", {**call("wait"), "task": {}})
            waiting = at_b.open(request(2, "tasks/result", {"taskId": started["result"]["task"]["taskId"]}))
            await pair.a.entered.wait()
            await until(lambda: bool(pair.b.hub.engine.tasks._changed_elsewhere))
            pair.a.release.set()
            assert (await waiting.done()).messages()[-1]["result"]["content"][0]["text"] == "waited"

    run(scenario())


@pytest.mark.usefixtures("no_polling")
def test_a_task_of_one_replica_is_cancelled_through_the_other(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            started = await at_a.ask("tools/call", {**call("wait"), "task": {}})
            await pair.a.entered.wait()
            task = {"taskId": started["result"]["task"]["taskId"]}
            listening = await at_b.listen().started()
            assert (await at_b.ask("tasks/cancel", task))["result"]["status"] == "cancelled"
            await pair.a.stopped.wait()
            notified = await next_message(listening, "notifications/tasks/status")
            assert notified["params"]["status"] == "cancelled"

    run(scenario())


def test_a_message_that_is_too_large_for_the_bus_arrives_whole_and_is_not_in_the_store_in_clear() -> None:
    async def scenario() -> None:
        store = Store(SqliteDatabase())
        store.set_secrets(["sk-0123456789"])
        message = b'{"key":"sk-0123456789","more":"' + b"x" * MAX_MESSAGE_BYTES + b'"}'
        carried = await relay.wrap_message(store, message)
        assert len(carried) < 200
        kept = await store.requests.get("handed over", carried[1:].decode().partition(".")[0])
        assert kept is not None and "x" * 20 not in kept.answer
        assert await relay.unwrap_message(store, carried) == message
        with pytest.raises(NoHolder):
            await relay.unwrap_message(store, b"#other." + bytes(32).hex().encode())
        await store.close()

    run(scenario())
