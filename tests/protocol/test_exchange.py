import asyncio
import json
import math
from typing import Any

import pytest

from tests.protocol.conftest import Json, asynchronous, idle
from waypost.errors import InvalidParams
from waypost.protocol.exchange import SILENT, Exchange, level_number, parse_client_level
from waypost.wire.definitions import Implementation
from waypost.wire.params import LOG_LEVELS, RequestMeta
from waypost.wire.versions import ALL, V2024_11_05, V2026_07_28


class Outlet:
    """Collects the messages of a request before its response."""

    def __init__(self) -> None:
        self.sent: list[Json] = []
        self.closed_early = False

    async def send(self, message: bytes) -> None:
        self.sent.append(json.loads(message))

    async def close_early(self) -> None:
        self.closed_early = True


def exchange(version: str = V2026_07_28, token: int | str | None = None) -> tuple[Exchange, Outlet]:
    outlet = Outlet()
    made = Exchange(1, version, outlet)
    if token is not None:
        made.meta = RequestMeta(progress_token=token)
    return made, outlet


@asynchronous
async def test_progress_that_does_not_increase_is_not_sent() -> None:
    made, outlet = exchange(token="t")
    for value in (0, 0, 10, 5, 10, 10.5, -1, 100, 100):
        await made.progress(value, None, None)
    assert [message["params"]["progress"] for message in outlet.sent] == [0, 10, 10.5, 100]


@asynchronous
async def test_progress_that_is_not_finite_is_not_sent() -> None:
    made, outlet = exchange(token="t")
    for value in (1, math.nan, math.inf, 2):
        await made.progress(value, math.inf, None)
    await made.session.send_progress("t", math.nan)
    assert [message["params"] for message in outlet.sent] == [
        {"progressToken": "t", "progress": 1},
        {"progressToken": "t", "progress": 2},
    ]


@pytest.mark.parametrize("token", ["7", 7, 0, "", -3])
@asynchronous
async def test_progress_keeps_the_json_type_of_its_token(token: int | str) -> None:
    made, outlet = exchange(token=token)
    await made.progress(1, 2, "half")
    [message] = outlet.sent
    assert message["method"] == "notifications/progress"
    assert message["params"] == {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
    assert type(message["params"]["progressToken"]) is type(token)


@asynchronous
async def test_progress_is_not_sent_to_a_client_that_did_not_ask() -> None:
    made, outlet = exchange()
    await made.progress(1, 2, "half")
    assert outlet.sent == []


@asynchronous
async def test_progress_omits_a_missing_total_and_message() -> None:
    made, outlet = exchange(token="t")
    await made.progress(1, None, None)
    assert outlet.sent[0]["params"] == {"progressToken": "t", "progress": 1}


@pytest.mark.parametrize("version", ALL)
@asynchronous
async def test_only_the_oldest_version_gets_progress_without_its_message(version: str) -> None:
    made, outlet = exchange(version, token="t")
    await made.progress(1, 2, "half")
    assert ("message" in outlet.sent[0]["params"]) == (version != V2024_11_05)


@pytest.mark.parametrize("least", LOG_LEVELS)
@asynchronous
async def test_log_messages_below_the_level_are_not_sent(least: str) -> None:
    made, outlet = exchange()
    made.log_level = level_number(least)
    for level in LOG_LEVELS:
        await made.log(level, "hello", None)
    sent = tuple(message["params"]["level"] for message in outlet.sent)
    assert sent == LOG_LEVELS[LOG_LEVELS.index(least) :]


@asynchronous
async def test_without_a_log_level_no_log_messages_are_sent() -> None:
    made, outlet = exchange()
    assert made.log_level == SILENT
    await made.log("emergency", "fire", None)
    assert outlet.sent == []


@pytest.mark.parametrize(
    ("data", "body"), [(None, "hello"), ({}, {"message": "hello"}), ({"a": 1}, {"message": "hello", "a": 1})]
)
@asynchronous
async def test_log_data_is_the_message_or_an_object_that_contains_it(data: Any, body: Any) -> None:
    made, outlet = exchange()
    made.log_level = level_number("debug")
    await made.log("warning", "hello", data)
    assert outlet.sent == [
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "warning", "data": body}}
    ]


@pytest.mark.parametrize("level", ["", "INFO", "fatal", "warn"])
def test_the_error_for_an_unknown_log_level_names_the_known_ones(level: str) -> None:
    with pytest.raises(ValueError, match="emergency"):
        level_number(level)
    with pytest.raises(InvalidParams, match="emergency"):
        parse_client_level(level)


@asynchronous
async def test_logging_at_an_unknown_level_raises_even_without_a_log_level() -> None:
    made, outlet = exchange()
    with pytest.raises(ValueError, match="loud"):
        await made.log("loud", "hello", None)
    assert outlet.sent == []


@asynchronous
async def test_a_stateless_request_has_a_session_of_its_own() -> None:
    made, outlet = exchange()
    made.meta = RequestMeta(client_info=Implementation("tester", "1"))
    made.log_level = level_number("info")
    session = made.session
    await session.put("seen", True)
    await session.notify_changed("tools")
    await session.send_resource_updated("a://x")
    await session.send_log("info", "hello")
    assert made.session is session
    assert session.assigns == {"seen": True}
    assert session.client_info == made.client_info == Implementation("tester", "1")
    assert [message["method"] for message in outlet.sent] == ["notifications/message"]
    assert exchange()[0].session.assigns == {}


@asynchronous
async def test_cancelling_stops_the_work_and_is_attributed_to_the_client() -> None:
    made, _ = exchange()
    seen: list[bool] = []

    async def work() -> None:
        made.task = asyncio.current_task()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(made.was_cancelled())

    task = asyncio.create_task(work())
    await idle()
    made.cancel()
    await task
    assert seen == [True]
    assert not task.cancelling()


@asynchronous
async def test_cancelling_a_request_that_does_not_run_only_marks_it() -> None:
    made, _ = exchange()
    assert not made.was_cancelled()
    made.cancel()
    assert made.cancelled


@asynchronous
async def test_closing_the_stream_is_up_to_the_outlet() -> None:
    made, outlet = exchange()
    await made.close_stream()
    assert outlet.closed_early
