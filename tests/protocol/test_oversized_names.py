"""Names, URIs and ids of four megabytes are refused quickly and not echoed."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.contract.conftest import asynchronous
from waypost import Hub
from waypost.capabilities.resources import MAX_URI_CHARACTERS
from waypost.errors import MAX_ECHOED_CHARACTERS, RemoteError
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25, V2026_07_28

SIZE = 4_000_000
MAX_SECONDS = 5.0
"""Of processor time; reading the message takes about a tenth of it."""


def oversized(text: str) -> str:
    return (text * (SIZE // len(text) + 1))[:SIZE]


async def read_note(topic: str, number: str) -> str:
    """A note."""
    return f"{topic} {number}"


@asynccontextmanager
async def crowd(version: str) -> AsyncIterator[TestClient]:
    """A client of a hub with many similar names."""
    hub = Hub("crowd", version="1", workers={"port": 0}, capabilities={"logging": {}, "resources": {"subscribe": True}})
    hub.tool(name="echo")(lambda text="": "heard")
    for number in range(500):
        hub.prompt(name=f"customer-letter-{number:05}")(lambda: "Dear customer")
        hub.resource(f"docs://customer/letter/{number:05}", name=f"letter{number}")(lambda: "Dear customer")
    for number in range(50):
        hub.resource(f"notes://{{+topic}}-{{number}}-{number:03}", name=f"note{number}")(read_note)
    async with connect(hub, version) as client:
        try:
            yield client
        finally:
            await hub.stop()


PROMPT = {"type": "ref/prompt", "name": oversized("customer-letter-00007-")}
RESOURCE = {"type": "ref/resource", "uri": oversized("notes://a-b-")}
REQUESTS = [
    ("prompts/get", {"name": oversized("customer-letter-00007-")}),
    ("resources/read", {"uri": oversized("docs://customer/letter/00007/")}),
    ("resources/read", {"uri": oversized("notes://a-b-")}),
    ("resources/read", {"uri": "notes://" + "-a" * 4000 + "/-007"}),
    ("resources/read", {"uri": "iii://" + oversized("customer/letter/")}),
    ("resources/read", {"uri": "iii://" + oversized("customer-letter-")}),
    ("resources/read", {"uri": "iii://x/" + oversized("customer::letter")}),
    ("resources/read", {"uri": "iii://fn/" + oversized("customer/") + "x"}),
    ("resources/read", {"uri": "iii://fn/" + "customer/" * 800 + "x"}),
    ("resources/read", {"uri": oversized("iii://")}),
    ("completion/complete", {"ref": PROMPT, "argument": {"name": "x", "value": ""}}),
    ("completion/complete", {"ref": RESOURCE, "argument": {"name": "x", "value": ""}}),
    ("tasks/get", {"taskId": oversized("0")}),
    (oversized("tools/"), {}),
]


@pytest.mark.parametrize(("method", "params"), REQUESTS, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_an_oversized_name_is_refused_quickly_and_truncated_in_the_error(
    method: str, params: dict[str, object], version: str
) -> None:
    async with crowd(version) as client:
        began = time.thread_time()
        with pytest.raises(RemoteError) as refused:
            await client.request(method, params)
        assert time.thread_time() - began < MAX_SECONDS
        assert len(refused.value.message) < 10 * MAX_ECHOED_CHARACTERS
        assert len(json.dumps(refused.value.data)) < 2 * MAX_URI_CHARACTERS


@pytest.mark.parametrize(
    ("method", "params"),
    [("logging/setLevel", {"level": oversized("warning")}), ("resources/subscribe", {"uri": oversized("docs://")})],
)
@asynchronous
async def test_a_session_refuses_an_oversized_level_or_subscription(method: str, params: dict[str, object]) -> None:
    async with crowd(V2025_11_25) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(method, params)
        assert refused.value.code == -32602
        assert len(refused.value.message) < 2 * MAX_ECHOED_CHARACTERS
