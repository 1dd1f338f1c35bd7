"""Clients that answer a question with an error, or disconnect before they answer it."""

import asyncio
import logging
from typing import Any

import pytest

from tests.protocol.busy import accepted, served
from tests.protocol.conftest import Json, asynchronous, idle
from waypost import Context, Hub, NoAnswer, RemoteError
from waypost.capabilities.context import ask_client
from waypost.capabilities.questions import roots_question
from waypost.wire.versions import V2025_11_25

FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}}


def curious(**options: Any) -> Hub:
    """A hub with handlers that ask every kind of question."""
    hub = Hub("curious", version="1", **options)

    @hub.tool(input_schema={"type": "object"})
    async def ask(args: Json, ctx: Context) -> str:
        """Ask, and let whatever comes pass."""
        match args["what"]:
            case "form":
                return str((await ctx.elicit("Who?", FORM)).content)
            case "model":
                return (await ctx.sample("Hi")).text
            case _:
                return str(await ctx.roots())

    @hub.tool
    async def careful(ctx: Context) -> str:
        """Ask, and go on without an answer."""
        try:
            return str(await ctx.roots())
        except NoAnswer as error:
            return f"without: {error.message}"

    @hub.tool
    async def handing_on(ctx: Context) -> str:
        """Ask what somebody else wants to know."""
        try:
            return str(await ask_client(ctx, roots_question(None, 5.0)))
        except RemoteError as error:
            return f"{error.code} {error.message}"

    @hub.prompt
    async def letter(ctx: Context) -> str:
        """Ask whom it is for."""
        return f"Dear {(await ctx.elicit('Who?', FORM)).content}"

    @hub.tool(task="required")
    async def job(ctx: Context) -> str:
        """Ask in a task."""
        return str((await ctx.elicit("Who?", FORM)).content)

    return hub


def no(_params: Json) -> Json:
    raise RemoteError("no", -1)


REFUSING: dict[str, Any] = {"elicitation": no, "sampling": no, "roots": no}


@pytest.mark.parametrize(
    ("what", "method"), [("form", "elicitation/create"), ("model", "sampling/createMessage"), ("places", "roots/list")]
)
@asynchronous
async def test_an_error_of_the_client_is_an_error_result_of_the_call(
    what: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(curious(), V2025_11_25, **REFUSING) as client:
        result = await client.call_tool("ask", {"what": what})
    assert result["isError"] is True
    assert result.text == f"The client answered {method} with an error: no"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@asynchronous
async def test_a_handler_can_continue_without_an_answer() -> None:
    async with served(curious(), V2025_11_25, **REFUSING) as client:
        assert (await client.call_tool("careful")).text == "without: The client answered roots/list with an error: no"


@asynchronous
async def test_a_handler_that_forwards_a_question_gets_the_original_error() -> None:
    async with served(curious(), V2025_11_25, **REFUSING) as client:
        assert (await client.call_tool("handing_on")).text == "-1 no"


@asynchronous
async def test_a_prompt_without_an_answer_is_an_error_with_the_reason() -> None:
    async with served(curious(), V2025_11_25, **REFUSING) as client:
        with pytest.raises(RemoteError, match="The client answered elicitation/create with an error: no") as caught:
            await client.get_prompt("letter", {})
    assert caught.value.code == -32000


@asynchronous
async def test_a_task_that_waits_for_an_answer_ends_without_warnings_when_the_hub_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = asyncio.Event()

    async def never(_params: Json) -> Json:
        asked.set()
        await asyncio.Event().wait()
        return accepted(name="nobody")

    hub = curious()
    async with served(hub, V2025_11_25, elicitation=never) as client:
        await client.request("tools/call", {"name": "job", "task": {}})
        await asked.wait()
        await hub.stop()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@asynchronous
async def test_a_task_fails_when_its_session_ends_before_the_answer() -> None:
    asked = asyncio.Event()

    async def never(_params: Json) -> Json:
        asked.set()
        await asyncio.Event().wait()
        return accepted(name="nobody")

    hub = curious()
    async with served(hub, V2025_11_25, elicitation=never) as client:
        task = (await client.request("tools/call", {"name": "job", "task": {}}))["task"]
        await asked.wait()
        (session,) = hub.engine.sessions
        live = hub.engine.tasks._running[task["taskId"]]
        hub.engine.sessions.close(session, "closed")
        await live.ended.wait()
        await idle()
        assert live.record.result is not None
        assert live.record.result["content"][0]["text"] == "The session ended before the client answered."
