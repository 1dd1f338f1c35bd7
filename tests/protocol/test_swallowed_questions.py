"""Handlers that catch the exception of their own question: the client is still asked."""

import asyncio
from typing import Any

import pytest

from tests.protocol.busy import ABLE as WITH_TASKS
from tests.protocol.conftest import Json, asynchronous, connected, stateless
from waypost import CapabilityNotSupported, Context, Hub, ToolError
from waypost.testing import connect
from waypost.wire.params import CLIENT_CAPABILITIES

FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}}


def stubborn() -> Hub:
    """A hub whose handlers swallow exceptions."""
    # A call that asks later than this becomes a task first.
    hub = Hub("stubborn", version="1", task_after=1)

    @hub.tool
    async def gathered(ctx: Context) -> str:
        """Take exceptions for answers."""
        asked = (ctx.elicit(f"{key}?", FORM, key=key) for key in "ab")
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return " ".join(str(getattr(answer, "content", answer)) for answer in answers)

    @hub.tool
    async def bare(ctx: Context) -> str:
        """Catch whatever comes."""
        try:
            return str((await ctx.elicit("a?", FORM, key="a")).content)
        except BaseException as error:
            return f"caught {error!r}"

    @hub.tool
    async def turned(ctx: Context) -> str:
        """Turn whatever comes into something else."""
        try:
            return str((await ctx.elicit("a?", FORM, key="a")).content)
        except BaseException as error:
            raise ToolError("cannot ask") from error

    @hub.tool(task="optional")
    async def slow(ctx: Context) -> str:
        """Catch whatever comes, then take long."""
        try:
            return str((await ctx.elicit("a?", FORM, key="a")).content)
        except BaseException:
            await asyncio.Event().wait()
            raise

    @hub.tool
    async def both(ctx: Context) -> str:
        """Ask what the client can answer, and what it cannot."""
        answers = await asyncio.gather(ctx.elicit("a?", FORM, key="a"), ctx.roots(), return_exceptions=True)
        refusal = next(answer for answer in answers if isinstance(answer, CapabilityNotSupported))
        raise refusal

    @hub.resource("stubborn://a")
    async def read(ctx: Context) -> str:
        """Catch whatever comes, and crash."""
        try:
            return str((await ctx.elicit("a?", FORM, key="a")).content)
        except BaseException:
            raise ValueError("cannot ask") from None

    return hub


def asking(name: str) -> Json:
    return stateless(1, "tools/call", {"name": name}, **{CLIENT_CAPABILITIES: {**WITH_TASKS, "elicitation": {}}})


@pytest.mark.parametrize(
    ("name", "keys"), [("gathered", {"a", "b"}), ("bare", {"a"}), ("turned", {"a"}), ("slow", {"a"})]
)
@asynchronous
async def test_a_swallowed_question_is_still_asked(name: str, keys: set[str]) -> None:
    hub = stubborn()
    async with connected(hub) as peer:
        result = await peer.result(asking(name))
        assert result["resultType"] == "input_required"
        assert result["inputRequests"].keys() == keys
        assert "content" not in result
        assert len(hub.engine.tasks._running) == 0


@pytest.mark.parametrize("name", ["gathered", "bare", "turned", "slow"])
@asynchronous
async def test_the_answer_reaches_the_handler_that_swallowed_the_question(name: str) -> None:
    def answer(params: Json) -> Json:
        return {"action": "accept", "content": {"name": params["message"]}}

    async with connect(stubborn(), elicitation=answer, capabilities=WITH_TASKS) as client:
        result = await client.call_tool(name)
    assert result.text == ("{'name': 'a?'} {'name': 'b?'}" if name == "gathered" else "{'name': 'a?'}")


@asynchronous
async def test_a_resource_that_crashes_on_its_question_still_asks() -> None:
    able: dict[str, Any] = {CLIENT_CAPABILITIES: {"elicitation": {}}}
    async with connected(stubborn()) as peer:
        result = await peer.result(stateless(1, "resources/read", {"uri": "stubborn://a"}, **able))
    assert result["resultType"] == "input_required"


@asynchronous
async def test_an_unsupported_question_is_an_error_before_any_question_is_asked() -> None:
    async with connected(stubborn()) as peer:
        assert (await peer.error(asking("both")))["code"] == -32021


@asynchronous
async def test_a_question_that_cannot_be_sent_is_a_crash_of_the_tool() -> None:
    hub = stubborn()

    @hub.tool
    async def odd(ctx: Context) -> str:
        """Ask with something that is no data."""
        return (await ctx.sample("Hi", metadata={"a": object()})).text

    able: dict[str, Any] = {CLIENT_CAPABILITIES: {"sampling": {}}}
    async with connected(hub) as peer:
        result = await peer.result(stateless(1, "tools/call", {"name": "odd"}, **able))
    assert result["content"][0]["text"].startswith("Tool crashed: TypeError: ")
