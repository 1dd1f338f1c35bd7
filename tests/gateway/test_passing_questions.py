"""Requests of an upstream during a call reach the client of that call, in every pair of eras."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import Json
from tests.gateway.passers import client_of, downstream, importing, red, transports, upstream
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from waypost import Context, Hub, RemoteError
from waypost.imports.relay import ClientRelay
from waypost.testing import connect
from waypost.wire.versions import LATEST_LEGACY, V2025_06_18, V2026_07_28


@downstream
@upstream
@transports
def test_a_form_is_filled_in_by_the_client_of_the_call(tmp_path: Path, version: str, era: str, transport: str) -> None:
    asked: list[Json] = []

    def answer(params: Json) -> Json:
        asked.append(params)
        return red(params)

    @asynchronous
    async def filled_in() -> None:
        async with client_of(tmp_path, version, era, transport, elicitation=answer) as (client, _):
            painted = await client.call_tool("up.paint", {"what": "door"})
            assert painted.text == "door: red"
        (one,) = asked
        assert one["message"] == "Which colour for door?"
        assert one["requestedSchema"]["required"] == ["colour"]
        assert one["mode"] == "form"

    filled_in()


@downstream
@upstream
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_or_cancelled_elicitation_reaches_the_upstream(
    tmp_path: Path, version: str, era: str, action: str
) -> None:
    @asynchronous
    async def refused() -> None:
        async with client_of(tmp_path, version, era, elicitation=lambda _: {"action": action}) as (client, _):
            assert (await client.call_tool("up.paint", {"what": "door"})).text == f"door: {action}"

    refused()


@downstream
@upstream
def test_a_call_that_asks_twice_is_made_once_by_a_server_with_a_session(tmp_path: Path, version: str, era: str) -> None:
    colours = iter(["red", "blue"])

    def answer(params: Json) -> Json:
        return {"action": "accept", "content": {"colour": next(colours)}}

    @asynchronous
    async def asked_twice() -> None:
        async with client_of(tmp_path, version, era, elicitation=answer) as (client, far):
            assert (await client.call_tool("up.two_questions")).text == "red blue"
            assert far is not None
            # A stateless server runs the tool again for each answer, and continues from its own state.
            assert len(far.calls) == (1 if era == LATEST_LEGACY else 3)

    asked_twice()


@downstream
@upstream
def test_url_elicitations_sampling_and_roots_are_passed_on(tmp_path: Path, version: str, era: str) -> None:
    outcome: list[Json] = []

    def think(params: Json) -> Json:
        outcome.append(params)
        return {"role": "assistant", "content": {"type": "text", "text": "A cat."}, "model": "m"}

    answers: dict[str, Any] = {
        "elicitation": lambda params: {"action": "accept" if params["url"].endswith("/login") else "decline"},
        "sampling": think,
        "roots": lambda _: {"roots": [{"uri": "file:///work"}]},
    }

    @asynchronous
    async def all_asked() -> None:
        async with client_of(tmp_path, version, era, **answers) as (client, _):
            assert (await client.call_tool("up.log_in")).text == "accept"
            assert (await client.call_tool("up.think")).text == "A cat."
            assert (await client.call_tool("up.look_around")).text == "file:///work"
            assert (outcome[0]["maxTokens"], outcome[0]["temperature"]) == (7, 0.5)

    all_asked()


@downstream
@upstream
def test_a_client_that_cannot_answer_is_not_asked(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def unasked() -> None:
        async with client_of(tmp_path, version, era, roots=lambda _: {"roots": []}) as (client, _):
            try:
                said = (await client.call_tool("up.paint", {"what": "door"})).text
            except RemoteError as error:
                assert (version, error.code) == (V2026_07_28, -32021)
                said = error.message
            assert "does not support elicitation.form" in said
            assert (await client.call_tool("up.look_around")).text == ""

    unasked()


@downstream
@upstream
def test_a_prompt_may_elicit_before_its_result(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def written() -> None:
        async with client_of(tmp_path, version, era, elicitation=red) as (client, _):
            assert (await client.get_prompt("up.ask_first")).text == "In red."

    written()


@downstream
@upstream
@transports
def test_two_callers_at_once_are_asked_only_about_their_own_calls(
    tmp_path: Path, version: str, era: str, transport: str
) -> None:
    """On a shared channel a request cannot be assigned to a call, so it is refused."""

    @asynchronous
    async def apart() -> None:
        async with importing(tmp_path, era, transport) as (hub, _):
            both, waiting = asyncio.Event(), 0
            asked: dict[str, list[str]] = {"ada": [], "bob": []}

            def person(name: str) -> Any:
                async def answer(params: Json) -> Json:
                    nonlocal waiting
                    asked[name].append(params["message"])
                    waiting += 1
                    if waiting == 2:
                        both.set()
                    await both.wait()
                    return {"action": "accept", "content": {"colour": name}}

                return answer

            async with (
                connect(hub, version, elicitation=person("ada")) as ada,
                connect(hub, version, elicitation=person("bob")) as bob,
            ):
                await ada.call_tool("up.chatter")  # opens a connection that later calls reuse
                calls = [ada.call_tool("up.paint", {"what": "ada's"}), bob.call_tool("up.paint", {"what": "bob's"})]
                if transport == "stdio" and era == LATEST_LEGACY:
                    both.set()
                painted = [answer.text for answer in await asyncio.gather(*calls)]
            assert all("ada's" in message for message in asked["ada"])
            assert all("bob's" in message for message in asked["bob"])
            if transport == "stdio" and era == LATEST_LEGACY:
                assert any("could be for any of them" in text for text in painted)
            else:
                assert painted == ["ada's: ada", "bob's: bob"]

    apart()


@asynchronous
async def test_an_upstream_may_cancel_its_elicitation(tmp_path: Path) -> None:
    dropped = asyncio.Event()

    async def slow(params: Json) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()

    async with client_of(tmp_path, LATEST_LEGACY, LATEST_LEGACY, elicitation=slow) as (client, _):
        assert (await client.call_tool("up.hurry")).text == "too late"
        await client.assert_notification("cancelled", within=60)
        async with asyncio.timeout(60):
            await dropped.wait()


@asynchronous
async def test_a_late_answer_of_a_stateless_client_still_gets_the_result(tmp_path: Path) -> None:
    async with importing(tmp_path, LATEST_LEGACY) as (hub, far):
        assert far is not None

        async def slow(params: Json) -> Json:
            await until(lambda: not any(session.running for session in far.engine.sessions))
            return red(params)

        async with connect(hub, V2026_07_28, elicitation=slow) as client:
            assert (await client.call_tool("up.hurry")).text == "too late"


@downstream
def test_a_server_that_asks_too_many_questions_at_once_is_refused(tmp_path: Path, version: str) -> None:
    @asynchronous
    async def refused() -> None:
        async with client_of(tmp_path, version, V2026_07_28, elicitation=red) as (client, _):
            assert (await client.call_tool("up.crowd", {"count": 3})).text == "3"
            answer = await client.call_tool("up.crowd", {"count": 33})
            assert answer.is_error and "33 questions at once" in answer.text

    refused()


@asynchronous
async def test_a_choice_without_values_is_refused_to_the_server() -> None:
    hub = Hub("relaying", version="1", store="sqlite://")
    form = {"type": "object", "properties": {"colour": {"type": "string", "oneOf": [{}]}}}

    @hub.tool
    async def relay(ctx: Context) -> str:
        """Pass on a malformed form to a client that needs it in an older form."""
        downstream = ClientRelay(ctx, lambda _: None)
        assert not downstream.can_answer("elicitation/create", {"message": "Which?", "requestedSchema": form})
        with pytest.raises(RemoteError) as refused:
            await downstream.ask("elicitation/create", {"message": "Which?", "requestedSchema": form})
        return str(refused.value.code)

    async with connect(hub, V2025_06_18, elicitation=red) as client:
        assert (await client.call_tool("relay")).text == "-32602"
