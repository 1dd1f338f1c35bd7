"""The last messages of the protocol: their order, their bounds, and no secret in them."""

from __future__ import annotations

import json

import pytest

from tests.api.conftest import AGENT, operated_hub, operating
from tests.protocol.conftest import asynchronous, initialization, request
from waypost.api.requests import mask_message
from waypost.protocol.session import MAX_MESSAGE_BYTES, MessageLog

CLIENT = {"authorization": f"Bearer {AGENT}"}


@asynchronous
async def test_requests_and_responses_are_listed_the_last_one_first_and_by_session() -> None:
    async with operating(operated_hub(rules=())) as operator:
        opened = await operator.post(initialization(), CLIENT)
        session = {"mcp-session-id": opened.headers["mcp-session-id"], **CLIENT}
        await operator.post(request(2, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}), session)
        await operator.use("add", {"a": 3, "b": 4})

        rows = (await operator.fetch("GET", "/api/v1/requests"))["requests"]
        assert [(row["direction"], row["method"]) for row in rows] == [
            ("out", "tools/call"),
            ("in", "tools/call"),
            ("out", "tools/call"),
            ("in", "tools/call"),
            ("out", "initialize"),
            ("in", "initialize"),
        ]
        assert rows[0]["message"]["result"]["structuredContent"] == {"result": 7}
        public = rows[2]["session"]
        assert opened.headers["mcp-session-id"] not in json.dumps(rows)

        own = (await operator.fetch("GET", f"/api/v1/requests?session={public}"))["requests"]
        assert {row["session"] for row in own} == {public}
        assert len(own) == 3  # the request that opened it had no session yet

        page = await operator.fetch("GET", "/api/v1/requests?limit=2")
        rest = await operator.fetch("GET", f"/api/v1/requests?limit=10&before={page['next']}")
        assert [row["number"] for row in page["requests"] + rest["requests"]] == [row["number"] for row in rows]
        assert (await operator.refused("GET", "/api/v1/requests?before=x"))[0] == 400


@asynchronous
async def test_secrets_of_arguments_and_results_are_masked() -> None:
    async with operating(operated_hub(rules=())) as operator:
        await operator.use("note", {"text": "Bearer abcdef123456", "password": "hunter22"}, key=AGENT)
        text = (await operator.ask("GET", "/api/v1/requests")).body.decode()
        assert ("abcdef123456" in text, "hunter22" in text, "[REDACTED]" in text) == (False, False, True)


@pytest.mark.parametrize(
    "message",
    [
        {"params": {"arguments": {"api_key": "hunter2-secret"}}},
        {"params": {"arguments": {"headers": {"Cookie": "hunter2-secret"}}}},
        {"result": {"content": [{"type": "text", "text": json.dumps({"token": "hunter2-secret"})}]}},
        {"result": {"text": json.dumps({"inner": json.dumps({"password": "hunter2-secret"})})}},
        {"result": {"text": "the configured one: s3cr3t-value"}},
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_secret_does_not_show_in_whole_nor_in_cut_messages(message: dict[str, object], is_whole: bool) -> None:
    sent = json.dumps(message).encode()
    sent = sent if is_whole else sent[:-1]
    shown = json.dumps(mask_message(sent, ("s3cr3t-value",), is_whole=is_whole))
    assert ("hunter2" in shown, "s3cr3t-value" in shown, "[REDACTED]" in shown) == (False, False, True)


def test_cursors_and_progress_tokens_stay() -> None:
    assert mask_message(b'{"progressToken":"abcdefgh","nextCursor":"cursor12"}', ()) == {
        "progressToken": "abcdefgh",
        "nextCursor": "cursor12",
    }


def test_the_log_is_bounded_in_number_and_bytes() -> None:
    log = MessageLog(3)
    for number in range(10):
        log.add("in", "ada", "", b"x" * (MAX_MESSAGE_BYTES + number))
    kept = list(log.latest())
    assert [one.size - MAX_MESSAGE_BYTES for one in kept] == [9, 8, 7]
    assert kept[0].number > kept[1].number > kept[2].number
    assert {len(one.message) for one in kept} == {MAX_MESSAGE_BYTES}

    nothing = MessageLog(0)
    nothing.add("in", "ada", "", b"x")
    assert list(nothing.latest()) == []


@asynchronous
async def test_of_a_long_request_and_a_long_response_only_the_beginning_is_kept() -> None:
    hub = operated_hub(rules=())

    @hub.tool
    def repeat(text: str) -> str:
        """Return the text twice."""
        return text + text

    async with operating(hub) as operator:
        await operator.use("repeat", {"text": "x" * MAX_MESSAGE_BYTES})
        response, question = hub.runtime.core.engine.messages.latest()
        assert (question.direction, response.direction) == ("in", "out")
        assert response.size > 2 * MAX_MESSAGE_BYTES and question.size > MAX_MESSAGE_BYTES
        assert len(response.message) == len(question.message) == MAX_MESSAGE_BYTES


@asynchronous
async def test_a_hub_that_keeps_no_messages_lists_none() -> None:
    async with operating(operated_hub(rules=(), kept_messages=0)) as operator:
        await operator.use("add", {"a": 3, "b": 4})
        page = await operator.fetch("GET", "/api/v1/requests")
        assert (page["requests"], page["kept"], page["next"]) == ([], 0, None)
