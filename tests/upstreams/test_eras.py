"""Negotiating the era of a server, with answers of real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.upstreams.conftest import DEADLINE
from tests.upstreams.programs import nothing_left, program
from waypost.errors import RemoteError
from waypost.upstreams.client import NEWEST_FIRST, Client, negotiate_version
from waypost.upstreams.stdio import StdioTransport
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

WELCOME = {"protocolVersion": LATEST_LEGACY, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}


class Answers:
    """A link to a server with a fixed answer for each method and none for others."""

    round_trips = False

    def __init__(self, **answers: dict[str, Any]) -> None:
        self.asked: list[str] = []
        self._answers = answers
        self.is_silent = None in answers.values()
        self._receive: Callable[[bytes], None] = lambda _: None

    async def open(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive

    async def send(self, data: bytes, version: str, method: str | None, name: str | None, *more: Any) -> None:
        message = json.loads(data)
        self.asked.append(message["method"])
        answer = self._answers.get(message["method"].rpartition("/")[2])
        if answer is not None and "id" in message:
            self._receive(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode())

    async def close(self) -> None:
        pass


def refusal(code: int, data: Any = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": "No.", "data": data}}


def introduced(link: Answers, versions: tuple[str, ...] = NEWEST_FIRST) -> Client:
    async def scenario() -> Client:
        async with asyncio.timeout(DEADLINE):
            client = Client(link)
            await negotiate_version(client, versions, 0.01 if link.is_silent else DEADLINE)
            return client

    return asyncio.run(scenario())


def test_the_newest_era_is_used_if_the_server_supports_it() -> None:
    link = Answers(discover={"result": {"supportedVersions": [V2026_07_28]}}, initialize={"result": WELCOME})

    assert introduced(link).version == V2026_07_28
    assert link.asked == ["server/discover"]


@pytest.mark.parametrize(
    "answer",
    [
        refusal(-32601),
        refusal(-32602),
        refusal(-32600),
        refusal(-32000),
        refusal(-32022, {"supported": ["2025-06-18"]}),
        refusal(-32022),
        {"result": 5},
        None,
    ],
)
def test_a_session_is_opened_after_any_refusal_of_the_newest_era(answer: Any) -> None:
    link = Answers(discover=answer, initialize={"result": WELCOME})

    assert introduced(link).version == LATEST_LEGACY


@pytest.mark.parametrize("answer", [refusal(-32020), refusal(-32021), refusal(-32022, {"supported": ["2027-01-01"]})])
def test_an_error_code_of_the_newest_era_has_no_fallback(answer: Any) -> None:
    link = Answers(discover=answer, initialize={"result": WELCOME})

    with pytest.raises(RemoteError, match=r"No\."):
        introduced(link)
    assert link.asked == ["server/discover"]


def test_the_newest_era_is_used_if_a_remembered_session_is_refused() -> None:
    link = Answers(discover={"result": {}}, initialize=refusal(-32601))

    assert introduced(link, NEWEST_FIRST[::-1]).version == V2026_07_28


def test_an_unknown_version_is_refused() -> None:
    link = Answers(discover=refusal(-32601), initialize={"result": {**WELCOME, "protocolVersion": "1999-01-01"}})

    with pytest.raises(RemoteError, match="version 1999-01-01 of MCP, which is not supported"):
        introduced(link)


def test_a_slow_server_of_both_eras_uses_the_newest() -> None:
    async def scenario() -> None:
        with nothing_left():
            link = StdioTransport("slow", program("official"), lambda _: None)
            client = Client(link, patience=DEADLINE)
            try:
                await negotiate_version(
                    client, NEWEST_FIRST, 0.3
                )  # longer than a process takes to start, shorter than Python
                assert client.version == V2026_07_28
            finally:
                await client.close()

    asyncio.run(scenario())
