import asyncio
from typing import Any

import pytest

from tests.protocol.conftest import Json, Peer, asynchronous, connected, stateless
from waypost import Context, Hub
from waypost.capabilities.principals import Principal
from waypost.capabilities.questions import InputNeeded, is_input_needed
from waypost.protocol import modern
from waypost.protocol.exchange import CLOSED_OUTLET, Exchange
from waypost.testing import connect
from waypost.wire import messages
from waypost.wire.messages import decode
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import V2026_07_28

ABLE: Json = {CLIENT_CAPABILITIES: {"elicitation": {}, "sampling": {}, "roots": {}}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}


def form(field: str) -> Json:
    return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}


def accepted(**content: Any) -> Json:
    return {"action": "accept", "content": content}


def asking_hub(**options: Any) -> tuple[Hub, list[str]]:
    """A hub whose handlers ask, and the list of steps that ran."""
    hub = Hub("asking", version="1", **options)
    done: list[str] = []

    @hub.tool(name="greet", input_schema={"type": "object"})
    async def greet(args: Json, ctx: Context) -> str:
        """Ask for a name."""
        done.append("ran")
        answer = await ctx.elicit("Who?", form("name"), key="who")
        return f"Hello {answer.content}"

    @hub.tool
    async def steps(ctx: Context) -> str:
        """Ask twice, with work before and between."""

        async def work() -> list[int]:
            done.append("first")
            return [1]

        def more() -> str:
            done.append("second")
            return "two"

        first = await ctx.once("first", work)
        name = await ctx.elicit("Who?", form("name"), key="who")
        second = await ctx.once("second", more)
        color = await ctx.elicit("Which?", form("color"), key="which")
        return f"{first} {name.content} {second} {color.content}"

    add_tools(hub)

    @hub.prompt
    async def letter(ctx: Context) -> str:
        """Ask for a name."""
        return f"Dear {(await ctx.elicit('Who?', form('name'), key='who')).content}"

    @hub.resource("docs://mine")
    async def mine(ctx: Context) -> str:
        """Ask for a name."""
        return f"Mine: {(await ctx.elicit('Who?', form('name'), key='who')).content}"

    return hub, done


def add_tools(hub: Hub) -> None:
    """Register tools that ask in every possible way."""

    @hub.tool
    async def gathered(ctx: Context) -> str:
        """Ask three things at once."""
        name, said, roots = await asyncio.gather(
            ctx.elicit("Who?", form("name"), key="who"), ctx.sample("Hi", key="said"), ctx.roots(key="where")
        )
        return f"{name.action} {said.text} {len(roots)}"

    @hub.tool
    async def grouped(ctx: Context) -> str:
        """Ask two things in a task group."""
        async with asyncio.TaskGroup() as group:
            name = group.create_task(ctx.elicit("Who?", form("name"), key="who"))
            said = group.create_task(ctx.sample("Hi", key="said"))
        return f"{name.result().action} {said.result().text}"

    @hub.tool
    async def unnamed(ctx: Context) -> str:
        """Ask without keys."""
        first = await ctx.elicit("One?", form("a"))
        second = await ctx.elicit("Two?", form("b"))
        return f"{first.content} {second.content}"

    @hub.tool
    async def endless(ctx: Context) -> str:
        """Never stop asking."""
        number = 0
        while True:
            await ctx.elicit("Again?", form("a"), key=f"again-{number}")
            number += 1

    @hub.tool
    async def careful(ctx: Context) -> str:
        """Catch every error there is."""
        try:
            return str((await ctx.elicit("Who?", form("name"), key="who")).content)
        except Exception:
            return "caught"


def call(name: str, arguments: Any = None, **more: Any) -> Json:
    """A tool call by a client with every capability."""
    params = {"name": name, **({} if arguments is None else {"arguments": arguments}), **more}
    return stateless(1, "tools/call", params, **ABLE)


async def ask(peer: Peer, message: Json) -> Json:
    peer.received.clear()
    return await peer.result(message)


async def refused(peer: Peer, message: Json) -> Json:
    peer.received.clear()
    return await peer.error(message)


def text(result: Json) -> str:
    assert result["resultType"] == "complete", result
    return str(result["content"][0]["text"])


@asynchronous
async def test_the_response_of_a_tool_that_asks_is_its_question() -> None:
    hub, _ = asking_hub()
    async with connected(hub) as peer:
        asked = await ask(peer, call("greet", {}))
        assert asked["resultType"] == "input_required"
        assert asked["inputRequests"] == {
            "who": {
                "method": "elicitation/create",
                "params": {"mode": "form", "message": "Who?", "requestedSchema": form("name")},
            }
        }
        assert "content" not in asked
        answers = {"who": accepted(name="Ada")}
        done = await ask(peer, call("greet", {}, inputResponses=answers, requestState=asked["requestState"]))
        assert text(done) == "Hello {'name': 'Ada'}"


@asynchronous
async def test_prompts_and_resources_may_ask_too() -> None:
    hub, _ = asking_hub()
    answers = {"who": accepted(name="Ada")}
    async with connected(hub) as peer:
        for method, params in (("prompts/get", {"name": "letter"}), ("resources/read", {"uri": "docs://mine"})):
            asked = await ask(peer, stateless(1, method, params, **ABLE))
            assert asked["resultType"] == "input_required"
            assert "ttlMs" not in asked
            given = {**params, "inputResponses": answers, "requestState": asked["requestState"]}
            done = await ask(peer, stateless(1, method, given, **ABLE))
            assert done["resultType"] == "complete"
            assert "Ada" in str(done)


@asynchronous
async def test_answers_may_be_sent_before_the_question() -> None:
    hub, done = asking_hub()
    async with connected(hub) as peer:
        assert text(await ask(peer, call("greet", {}, inputResponses={"who": accepted(name="Ada")})))
    assert done == ["ran"]


@pytest.mark.parametrize("responses", [None, 12345, "x", [], {}, {"other": accepted(name="Eve")}])
def test_a_question_without_an_answer_is_asked_again(responses: Any) -> None:
    @asynchronous
    async def run() -> None:
        hub, _ = asking_hub()
        async with connected(hub) as peer:
            first = await ask(peer, call("greet", {}))
            again = call("greet", {}, inputResponses=responses, requestState=first["requestState"])
            second = await ask(peer, again)
            assert second["inputRequests"] == first["inputRequests"]
            assert second["requestState"] != first["requestState"]

    run()


@pytest.mark.parametrize("answer", [12345, None, "x", []])
def test_an_answer_that_is_not_an_object_is_not_accepted(answer: Any) -> None:
    @asynchronous
    async def run() -> None:
        hub, _ = asking_hub()
        async with connected(hub) as peer:
            response = await peer.ask(call("greet", {}, inputResponses={"who": answer}))
            assert "error" in response or response["result"]["resultType"] == "input_required"

    run()


@asynchronous
async def test_answers_to_unknown_questions_are_ignored() -> None:
    hub, _ = asking_hub()
    async with connected(hub) as peer:
        answers = {"who": accepted(name="Ada"), "extra": {"action": 7}, "": None}
        assert text(await ask(peer, call("greet", {}, inputResponses=answers))) == "Hello {'name': 'Ada'}"


@asynchronous
async def test_a_step_runs_once_and_earlier_answers_are_remembered() -> None:
    hub, done = asking_hub()
    async with connected(hub) as peer:
        first = await ask(peer, call("steps", {}))
        given: Json = {"inputResponses": {"who": accepted(name="Ada")}, "requestState": first["requestState"]}
        second = await ask(peer, call("steps", {}, **given))
        assert list(second["inputRequests"]) == ["which"]
        assert second["requestState"] != first["requestState"]
        given = {"inputResponses": {"which": accepted(color="red")}, "requestState": second["requestState"]}
        assert text(await ask(peer, call("steps", {}, **given))) == "[1] {'name': 'Ada'} two {'color': 'red'}"
    assert done == ["first", "second"]


@pytest.mark.parametrize(("tool", "keys"), [("gathered", ["said", "where", "who"]), ("grouped", ["said", "who"])])
def test_several_questions_are_asked_at_once(tool: str, keys: list[str]) -> None:
    answers: Json = {"who": accepted(name="Ada"), "said": SAID, "where": {"roots": []}}

    @asynchronous
    async def run() -> None:
        hub, _ = asking_hub()
        async with connected(hub) as peer:
            asked = await ask(peer, call(tool, {}))
            assert sorted(asked["inputRequests"]) == keys
            part = {key: answers[key] for key in keys[:1]}
            rest = await ask(peer, call(tool, {}, inputResponses=part, requestState=asked["requestState"]))
            assert sorted(rest["inputRequests"]) == keys[1:]
            left = {key: answers[key] for key in keys[1:]}
            done = await ask(peer, call(tool, {}, inputResponses=left, requestState=rest["requestState"]))
            assert text(done).startswith("accept hello")

    run()


@asynchronous
async def test_questions_without_keys_are_numbered() -> None:
    hub, _ = asking_hub()
    async with connected(hub) as peer:
        first = await ask(peer, call("unnamed", {}))
        (key,) = first["inputRequests"]
        answers = {key: accepted(a="1")}
        second = await ask(peer, call("unnamed", {}, inputResponses=answers, requestState=first["requestState"]))
        (other,) = second["inputRequests"]
        assert other != key
        answers = {other: accepted(b="2")}
        done = await ask(peer, call("unnamed", {}, inputResponses=answers, requestState=second["requestState"]))
        assert text(done) == "{'a': '1'} {'b': '2'}"


@asynchronous
async def test_a_tool_that_catches_all_errors_still_asks() -> None:
    hub, _ = asking_hub()
    async with connected(hub) as peer:
        assert (await ask(peer, call("careful", {})))["resultType"] == "input_required"


@asynchronous
async def test_there_is_a_limit_to_how_often_a_request_may_ask() -> None:
    hub, _ = asking_hub()
    async with connected(hub) as peer:
        given: Json = {}
        rounds = 0
        while True:
            peer.received.clear()
            response = await peer.ask(call("endless", {}, **given))
            if "error" in response:
                break
            rounds += 1
            assert rounds < 20
            (key,) = response["result"]["inputRequests"]
            given = {"inputResponses": {key: accepted(a="x")}, "requestState": response["result"]["requestState"]}
        assert response["error"]["code"] == -32602
        assert "limit" in response["error"]["message"]
        assert rounds == 15


@asynchronous
async def test_a_request_state_is_valid_only_for_its_request() -> None:
    hub, done = asking_hub()
    answers = {"who": accepted(name="Ada")}
    async with connected(hub) as peer:
        state = (await ask(peer, call("greet", {"n": 1})))["requestState"]
        done.clear()
        given: Json = {"inputResponses": answers, "requestState": state}
        others = [
            call("greet", {"n": 2}, **given),
            call("greet", None, **given),
            call("careful", {"n": 1}, **given),
            stateless(1, "prompts/get", {"name": "greet", "arguments": {"n": "1"}, **given}, **ABLE),
            call("greet", {"n": 1}, inputResponses=answers, requestState=state + "-TAMPERED"),
            call("greet", {"n": 1}, inputResponses=answers, requestState="v1.AAAA"),
            call("greet", {"n": 1}, inputResponses=answers, requestState=""),
            call("greet", {"n": 1}, inputResponses=answers, requestState=5),
        ]
        for message in others:
            assert (await refused(peer, message))["code"] == -32602
        assert done == []
        assert text(await ask(peer, call("greet", {"n": 1}, **given)))


@asynchronous
async def test_a_request_state_is_refused_for_another_principal() -> None:
    hub, _ = asking_hub()

    async def answer(who: str, message: Json) -> Any:
        exchange = Exchange(1, V2026_07_28, CLOSED_OUTLET)
        exchange.principal = Principal(who)
        outcome = await modern.answer(hub.engine, messages.parse(messages.encode(message)), exchange)
        assert outcome is not None
        return decode(outcome.payload)

    state = (await answer("ada", call("greet", {})))["result"]["requestState"]
    message = call("greet", {}, inputResponses={"who": accepted(name="Ada")}, requestState=state)
    assert (await answer("eve", message))["error"]["code"] == -32602
    assert "result" in await answer("ada", message)
    await hub.stop()


def test_a_state_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynchronous
    async def run() -> None:
        hub, _ = asking_hub()
        now = 1_000_000.0
        monkeypatch.setattr("waypost.protocol.rounds.time.time", lambda: now)
        async with connected(hub) as peer:
            state = (await ask(peer, call("greet", {})))["requestState"]
            now += 601
            again = call("greet", {}, inputResponses={"who": accepted(name="Ada")}, requestState=state)
            assert "expired" in (await refused(peer, again))["message"]

    run()


@asynchronous
async def test_a_replica_with_the_same_secret_continues_a_request() -> None:
    (first, _), (second, _), (stranger, _) = (asking_hub(secret=b"s"), asking_hub(secret=b"s"), asking_hub())
    async with connected(first) as peer:
        state = (await ask(peer, call("greet", {})))["requestState"]
    message = call("greet", {}, inputResponses={"who": accepted(name="Ada")}, requestState=state)
    async with connected(second) as peer:
        assert text(await ask(peer, message))
    async with connected(stranger) as peer:
        assert (await refused(peer, message))["code"] == -32602


@asynchronous
async def test_the_test_client_answers_all_rounds_by_itself() -> None:
    hub, done = asking_hub()

    def fill_in(params: Json) -> Json:
        (field,) = params["requestedSchema"]["properties"]
        return accepted(**{field: "x"})

    async with connect(hub, elicitation=fill_in) as client:
        assert (await client.call_tool("steps")).text == "[1] {'name': 'x'} two {'color': 'x'}"
    assert done == ["first", "second"]
    await hub.stop()


def test_input_needed_is_recognised_inside_exception_groups() -> None:
    assert is_input_needed(InputNeeded())
    assert is_input_needed(BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [InputNeeded()])]))
    assert not is_input_needed(ValueError())
    assert not is_input_needed(BaseExceptionGroup("", [ValueError(), asyncio.CancelledError()]))


@asynchronous
async def test_a_step_with_a_result_that_is_not_json_is_a_crash_of_the_tool() -> None:
    hub, _ = asking_hub()

    @hub.tool
    async def forgetful(ctx: Context) -> str:
        """Keep something that is no data."""
        await ctx.once("thing", object)
        return str(await ctx.elicit("Who?", form("name"), key="who"))

    async with connected(hub) as peer:
        async with asyncio.timeout(60):
            result = await ask(peer, call("forgetful", {}))
    assert result["isError"] is True
    assert text(result).startswith("Tool crashed: TypeError: ")
