"""What a replica has for the client of a session reaches it at the replica where it reads."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.conftest import Json, request
from tests.protocol.replica_pair import Pair, next_message, run, running_pair, until
from tests.protocol.replica_pair import settings as settings
from tests.protocol.waiting import call
from tests.transports.http.conftest import Call, Visitor
from waypost.buses.remote import RemoteBus
from waypost.protocol.session import LegacySession
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.settings import Settings
from waypost.wire.messages import notification
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import V2026_07_28

ACCEPTED: Json = {"action": "accept", "content": {"name": "Ada"}}


def find_session(pair: Pair, visitor: Visitor) -> LegacySession:
    """The session of a client at the first replica."""
    session = pair.a.hub.engine.sessions.get(visitor.id)
    assert session is not None
    return session


async def read(stream: Call, count: int) -> list[Any]:
    """The data of the next log messages of a stream."""
    return [(await next_message(stream, "notifications/message"))["params"]["data"] for _ in range(count)]


async def start_asking_task(visitor: Visitor) -> Json:
    """Start a task that asks its client, and return the parameters that name it."""
    started = await visitor.ask("tools/call", {**call("greet-as-task"), "task": {}})
    return {"taskId": started["result"]["task"]["taskId"]}


async def answer(question: Json, visitor: Visitor) -> None:
    """Answer a question."""
    assert (await visitor.post({"jsonrpc": "2.0", "id": question["id"], "result": ACCEPTED})).status == 202


def test_messages_of_one_replica_reach_the_stream_at_the_other_once_and_in_order(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            session = find_session(pair, at_a)
            await session.send_log("info", "early")
            listening = await at_b.listen().started()
            assert await read(listening, 1) == ["early"]
            for number in range(20):
                await session.send_log("info", str(number))
            assert await read(listening, 20) == [str(number) for number in range(20)]
            await until(lambda: not session.streams.general.unread())
            listening.leave()
            await listening.task
            here = await at_a.listen().started()
            await session.send_log("info", "late")
            assert await read(here, 1) == ["late"]

    run(scenario())


def test_a_change_that_every_replica_sends_is_not_brought_over(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            listening = await at_b.listen().started()
            await pair.a.hub.notify_changed("tools")
            assert (await next_message(listening))["method"] == "notifications/tools/list_changed"
            await find_session(pair, at_a).send_log("info", "done")
            assert (await next_message(listening))["method"] == "notifications/message"

    run(scenario())


def test_what_waits_while_the_bus_is_down_is_brought_over_afterwards(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            listening = await at_b.listen().started()
            bus = pair.a.hub.runtime.core.bus
            assert isinstance(bus, RemoteBus)
            assert bus._link is not None
            bus._link.lose()
            await find_session(pair, at_a).send_log("info", "waits")
            assert await read(listening, 1) == ["waits"]

    run(scenario())


def test_thousands_of_clients_that_connect_at_once_are_announced_in_few_messages(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, _ = await pair.visitors()
            relay = find_session(pair, at_a).streams.liveness.relay
            assert relay is not None
            messages: list[bytes] = []
            await pair.b.hub.runtime.core.bus.subscribe("stream.read", lambda _, message: messages.append(message))
            for number in range(3000):
                relay.streams.announce_reader(f"session-{number}")
            await until(lambda: b"session-2999" in b"".join(messages))
            assert b"".join(messages).count(b"session-") == 3000
            assert len(messages) <= 20

    run(scenario())


def test_the_session_of_another_principal_gets_nothing(postgres_url: str) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, Settings()) as pair:
            at_a, at_b = await pair.visitors()
            listening = await at_b.listen().started()
            session = find_session(pair, at_a)
            relay = session.streams.liveness.relay
            other = pair.b.hub.engine.sessions.get(at_b.id)
            assert relay is not None
            assert other is not None
            holder = pair.b.hub.engine.sessions.liveness.holder
            own = other.principal
            other.principal = type(own)("ada")
            assert not await relay.streams.send(holder, session, notification("notifications/x"))
            other.principal = own
            assert await relay.streams.send(holder, session, notification("notifications/y"))
            assert (await next_message(listening))["method"] == "notifications/y"

    run(scenario())


def test_a_task_asks_on_the_stream_of_the_request_for_its_result_at_the_other_replica(
    postgres_url: str, settings: Settings
) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            task = await start_asking_task(at_a)
            waiting = at_b.open(request(2, "tasks/result", task))
            await answer(await next_message(waiting, "elicitation/create"), at_b)
            response = (await waiting.done()).messages()[-1]
            assert response["result"]["content"][0]["text"] == "Hello, Ada!"

    run(scenario())


def test_a_task_asks_on_the_stream_of_its_session_at_the_other_replica(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            listening = await at_b.listen().started()
            task = await start_asking_task(at_a)
            await answer(await next_message(listening, "elicitation/create"), at_b)
            response = await at_b.ask("tasks/result", task)
            assert response["result"]["content"][0]["text"] == "Hello, Ada!"

    run(scenario())


def test_a_question_waits_for_a_client_that_no_longer_reads_where_it_did(postgres_url: str) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, Settings()) as pair:
            at_a, at_b = await pair.visitors()
            session = find_session(pair, at_a)
            relay = session.streams.liveness.relay
            assert relay is not None
            # It read there a moment ago.
            relay.streams._readers[session.id] = pair.b.hub.engine.sessions.liveness.holder
            task = await start_asking_task(at_a)
            await until(lambda: session.id not in relay.streams._readers)
            waiting = at_b.open(request(2, "tasks/result", task))
            await answer(await next_message(waiting, "elicitation/create"), at_a)
            response = (await waiting.done()).messages()[-1]
            assert response["result"]["content"][0]["text"] == "Hello, Ada!"

    run(scenario())


def test_two_tasks_of_a_session_ask_at_the_other_replica_at_once(postgres_url: str, settings: Settings) -> None:
    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, at_b = await pair.visitors()
            tasks = [await start_asking_task(at_a) for _ in range(2)]
            waiting = [at_b.open(request(number, "tasks/result", task)) for number, task in enumerate(tasks)]
            for one in waiting:
                await answer(await next_message(one, "elicitation/create"), at_a)
            for one in waiting:
                assert (await one.done()).messages()[-1]["result"]["content"][0]["text"] == "Hello, Ada!"

    run(scenario())


def test_a_listen_stream_gets_the_changes_of_a_task_of_the_other_replica(postgres_url: str, settings: Settings) -> None:
    able: Json = {"extensions": {TASKS_EXTENSION: {}}}

    async def scenario() -> None:
        async with running_pair(postgres_url, settings) as pair:
            at_a, _ = await pair.visitors()
            started = await at_a.ask("tools/call", {**call("wait"), "task": {}})
            task = started["result"]["task"]["taskId"]
            await pair.a.entered.wait()
            listening = pair.b.web.open_post(
                request(
                    1,
                    "subscriptions/listen",
                    {
                        "notifications": {"taskIds": [task]},
                        "_meta": {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: able},
                    },
                ),
                {"mcp-protocol-version": V2026_07_28, "mcp-method": "subscriptions/listen"},
            )
            await next_message(listening, "notifications/subscriptions/acknowledged")
            pair.a.release.set()
            changed = await next_message(listening, "notifications/tasks")
            assert changed["params"]["status"] == "completed"
            assert changed["params"]["result"]["content"][0]["text"] == "waited"
            listening.leave()
            await asyncio.wait({listening.task})

    run(scenario())
