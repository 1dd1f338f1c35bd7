"""Questions of tasks of sessions: the status meanwhile, and the stream that carries the question."""

import asyncio

import pytest

from tests.protocol.busy import accepted, busy_hub, reached, served
from tests.protocol.conftest import CLIENT, Json, asynchronous, notification, request, until
from tests.transports.http.conftest import Call, Visitor, Web, browsing
from waypost import NoAnswer
from waypost.capabilities.questions import Question
from waypost.protocol.task_methods import SessionTaskAsker
from waypost.protocol.tasks import RELATED_TASK
from waypost.wire.versions import V2025_11_25

WHO = Question("elicitation/create", {"message": "Who?"}, {})


async def visit(web: Web, able: Json | None = None) -> Visitor:
    """A client with a session, without a stream, that supports elicitation."""
    capabilities = {"elicitation": {}} if able is None else able
    given = {"protocolVersion": V2025_11_25, "capabilities": capabilities, "clientInfo": CLIENT}
    call = await web.post(request("init", "initialize", given))
    visitor = Visitor(web, call.headers["mcp-session-id"], V2025_11_25)
    await visitor.post(notification("notifications/initialized"))
    return visitor


async def begun(visitor: Visitor, name: str = "ask_then_wait") -> str:
    """The id of a task that asks."""
    created = await visitor.ask("tools/call", {"name": name, "task": {}})
    task_id: str = created["result"]["task"]["taskId"]
    return task_id


async def asked(call: Call) -> Json:
    """The question on a stream."""
    while True:
        event = await call.event()
        if event.data and event.message.get("method") == "elicitation/create":
            return event.message


def questions(call: Call) -> list[Json]:
    return [message for message in call.messages() if message.get("method") == "elicitation/create"]


def answered(question: Json, name: str = "Ada") -> Json:
    return {"jsonrpc": "2.0", "id": question["id"], "result": accepted(name=name)}


def how(answer: Json) -> str:
    return str(answer["result"]["status"])


@asynchronous
async def test_a_task_of_a_session_is_input_required_until_its_question_is_answered() -> None:
    answers = asyncio.Event()

    async def answer(_params: Json) -> Json:
        await answers.wait()
        return accepted(name="Ada")

    hub, work = busy_hub()
    async with served(hub, V2025_11_25, elicitation=answer) as client:
        task_id = (await client.request("tools/call", {"name": "ask_then_wait", "task": {}}))["task"]["taskId"]
        assert (await reached(client, task_id, "input_required"))["taskId"] == task_id
        await client.assert_notification("tasks/status", taskId=task_id, status="input_required")
        answers.set()
        await client.assert_notification("tasks/status", taskId=task_id, status="working")
        assert (await client.request("tasks/get", {"taskId": task_id}))["status"] == "working"
        work.gate.set()
        assert (await client.request("tasks/result", {"taskId": task_id})).text == "through with {'name': 'Ada'}"


@asynchronous
async def test_a_task_with_two_questions_is_input_required_until_both_are_answered() -> None:
    async with browsing(busy_hub()[0]) as web:
        visitor = await visit(web)
        task_id = await begun(visitor, "pair")
        waiting = visitor.open(request(9, "tasks/result", {"taskId": task_id}))
        first, second = await asked(waiting), await asked(waiting)
        await visitor.post(answered(first, "A"))
        live = web.hub.engine.tasks._running[task_id]
        await until(lambda: len(live.record.input_requests) == 1)
        assert how(await visitor.ask("tasks/get", {"taskId": task_id})) == "input_required"
        await visitor.post(answered(second, "B"))
        result = (await waiting.done()).messages()[-1]["result"]
        assert result["content"][0]["text"] == "{'name': 'A'} {'name': 'B'}"


@pytest.mark.parametrize("early", [True, False], ids=["before it asks", "after it asked"])
@asynchronous
async def test_a_client_without_a_stream_is_asked_on_its_request_for_the_result(early: bool) -> None:
    hub, work = busy_hub()
    async with browsing(hub) as web:
        visitor = await visit(web)
        task_id = await begun(visitor)
        if not early:
            live = hub.engine.tasks._running[task_id]
            await until(lambda: live.record.status == "input_required")
        waiting = visitor.open(request(9, "tasks/result", {"taskId": task_id}))
        question = await asked(waiting)
        assert question["params"]["_meta"] == {RELATED_TASK: {"taskId": task_id}}
        assert (await visitor.post(answered(question))).status == 202
        work.gate.set()
        answer = (await waiting.done()).messages()[-1]
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (9, "through with {'name': 'Ada'}")
        assert len(questions(waiting)) == 1
        later = visitor.listen()
        await later.started()
        await hub.notify_changed("tools")
        while "list_changed" not in str((await later.event()).data):
            pass
        assert not questions(later)


@asynchronous
async def test_a_client_with_a_stream_is_asked_there_unless_it_waits_for_the_result() -> None:
    hub, work = busy_hub()
    async with browsing(hub) as web:
        visitor = await visit(web)
        stream = visitor.listen()
        await stream.started()
        task_id = await begun(visitor)
        question = await asked(stream)
        waiting = visitor.open(request(9, "tasks/result", {"taskId": task_id}))
        await visitor.post(answered(question))
        work.gate.set()
        assert not questions(await waiting.done())


@asynchronous
async def test_a_question_waits_for_the_stream_that_is_opened_later() -> None:
    hub, work = busy_hub()
    async with browsing(hub) as web:
        visitor = await visit(web)
        task_id = await begun(visitor)
        live = hub.engine.tasks._running[task_id]
        await until(lambda: live.record.status == "input_required")
        question = await asked(visitor.listen())
        await visitor.post(answered(question))
        work.gate.set()
        await live.ended.wait()
        assert live.record.status == "completed"


@pytest.mark.parametrize("able", [{"elicitation": {}}, {}], ids=["one that can be asked", "one that cannot"])
@asynchronous
async def test_another_session_that_waits_for_the_result_is_not_asked(able: Json) -> None:
    hub, work = busy_hub()
    async with browsing(hub) as web:
        visitor, other = await visit(web), await visit(web, able)
        task_id = await begun(visitor)
        curious = other.open(request(8, "tasks/result", {"taskId": task_id}))
        live = hub.engine.tasks._running[task_id]
        await until(lambda: live.record.status == "input_required")
        waiting = visitor.open(request(9, "tasks/result", {"taskId": task_id}))
        question = await asked(waiting)
        await other.post(answered(question, "Eve"))
        await visitor.post(answered(question, "Ada"))
        work.gate.set()
        for call in (waiting, curious):
            answer = (await call.done()).messages()[-1]
            assert answer["result"]["content"][0]["text"] == "through with {'name': 'Ada'}"
        assert not questions(curious)


@asynchronous
async def test_a_session_does_not_expire_while_its_task_may_ask() -> None:
    hub, work = busy_hub()
    async with browsing(hub) as web:
        visitor = await visit(web)
        (session,) = hub.engine.sessions
        task_id = await begun(visitor)
        live = hub.engine.tasks._running[task_id]
        session.last_seen = float("-inf")
        hub.engine.sessions.sweep()
        assert hub.engine.sessions.get(visitor.id) is session
        await visitor.post(answered(await asked(visitor.open(request(9, "tasks/result", {"taskId": task_id})))))
        work.gate.set()
        await live.ended.wait()
        assert live.record.status == "completed"
        await until(lambda: not session.is_busy)


@asynchronous
async def test_a_question_that_cannot_be_delivered_times_out() -> None:
    hub, _ = busy_hub()
    async with browsing(hub) as web:
        await visit(web)
        (session,) = hub.engine.sessions
        task = await hub.engine.tasks.start(session.principal, V2025_11_25)
        asker = SessionTaskAsker(session, task)
        with pytest.raises(NoAnswer, match=r"did not answer elicitation/create within 0\.05 s"):
            await asker.ask(Question(WHO.method, WHO.params, {}, within=0.05))
        assert task.record.status == "working"
        assert session.streams.general.last == 0
        asking = asyncio.ensure_future(asker.ask(WHO))
        await until(lambda: task.record.status == "input_required")
        hub.engine.sessions.close(session, "closed")
        with pytest.raises(NoAnswer, match="The session ended before the client answered"):
            await asking
