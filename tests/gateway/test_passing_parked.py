"""A call in an upstream session is suspended while a stateless client answers, and always ends."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.importers import Json, stdio, write
from tests.gateway.passers import importing, red, started, upstream
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from waypost import Context
from waypost.protocol.rounds import Seal
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ABLE: Json = {"elicitation": {"form": {}}}
PAINT: Json = {"name": "up.paint", "arguments": {"what": "door"}}


@asynchronous
async def test_a_suspended_call_without_an_answer_ends_with_the_hub(tmp_path: Path) -> None:
    async with importing(tmp_path, LATEST_LEGACY) as (hub, far):
        assert far is not None
        async with connect(hub, capabilities=ABLE) as client:
            asked = await client.request("tools/call", PAINT)
            assert asked["resultType"] == "input_required"
            (question,) = asked["inputRequests"].values()
            assert question["params"]["message"] == "Which colour for door?"
            assert far.calls == ["paint"]
        await hub.stop()
        await until(lambda: far.calls == ["paint", "cancelled"])


@asynchronous
async def test_a_suspended_call_is_resumed_and_made_once(tmp_path: Path) -> None:
    async with importing(tmp_path, LATEST_LEGACY) as (hub, far), connect(hub, capabilities=ABLE) as client:
        assert far is not None
        asked = await client.request("tools/call", PAINT)
        (key,) = asked["inputRequests"]
        again = {**PAINT, "requestState": asked["requestState"], "inputResponses": {key: red({})}}
        without = {name: value for name, value in again.items() if name != "inputResponses"}
        assert list((await client.request("tools/call", without))["inputRequests"]) == [key]
        assert (await client.request("tools/call", again)).text == "door: red"
        assert (await client.request("tools/call", again)).text == "door: red"
        assert far.calls == ["paint"]


@asynchronous
async def test_a_suspended_call_of_another_process_has_to_be_repeated(tmp_path: Path) -> None:
    file = write(tmp_path, {"up": stdio("curious", LATEST_LEGACY)}, [{"connection": "up"}])
    seal = Seal(b"one for all processes")
    async with started(file) as hub, connect(hub, capabilities=ABLE) as client:
        hub.engine.seal = seal
        asked = await client.request("tools/call", PAINT)
    again = {**PAINT, "requestState": asked["requestState"], "inputResponses": {}}
    async with started(file) as hub, connect(hub, capabilities=ABLE) as client:
        hub.engine.seal = seal
        answer = await client.request("tools/call", again)
        assert answer.is_error
        assert "no longer waits for an answer; make it again" in answer.text


@upstream
def test_the_same_call_made_twice_in_one_request_is_two_calls(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def twice() -> None:
        asked: list[Json] = []

        def answer(params: Json) -> Json:
            asked.append(params)
            return {"action": "accept", "content": {"colour": f"colour {len(asked)}"}}

        async with importing(tmp_path, era) as (hub, _), connect(hub, V2026_07_28, elicitation=answer) as client:

            @hub.tool
            async def both(ctx: Context) -> str:
                """Paint twice."""
                first = await ctx.invoke("up.paint", {"what": "door"})
                second = await ctx.invoke("up.paint", {"what": "door"})
                return f"{first.text}, {second.text}"

            assert (await client.call_tool("both")).text == "door: colour 1, door: colour 2"

    twice()
