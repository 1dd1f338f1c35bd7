"""The error classes of failed calls to workers, which decide whether workflows try again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from tests.outbound.internet import Answer, site
from tests.ports import free_port
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Wire, at_work, hub_for_workers, rows, wired
from waypost import Hub
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.testing import TestClient

EXECUTORS = [{"kind": "worker", "function": "a::b"}, {"kind": "capability", "capability": "a__b"}]


def a_hub(executor: dict[str, Any]) -> Hub:
    """A hub with a workflow that makes one call."""
    hub = hub_for_workers(workers={"port": 0, "allow_private": True})
    states = {"a": {"transitions": {"go": {"target": "b", "executor": executor}}}, "b": {"terminal": True}}
    hub.workflow("w", convert({"initialState": "a", "states": states}, Workflow))
    return hub


async def submitted(client: TestClient) -> str:
    """The class of the failure that the call ends with."""
    started = await client.call_tool("workflow.start", {"definitionId": "w", "input": {}})
    (link,) = started["structuredContent"]["links"]
    answer = await client.call_tool(link["method"], link["args"])
    error_class: str = answer["structuredContent"]["error"]["errorClass"]
    return error_class


async def say(worker: Wire, code: str) -> None:
    """Answer a call with an error."""
    call = await worker.next("invokefunction", function_id="a::b")
    fields = {key: call[key] for key in ("invocation_id", "function_id")}
    await worker.send("invocationresult", **fields, error={"code": code, "message": "no; try again later."})


async def die(worker: Wire) -> None:
    """Leave in the middle of a call."""
    await worker.next("invokefunction", function_id="a::b")
    worker.socket.transport.abort()


@pytest.mark.parametrize("executor", EXECUTORS, ids=lambda one: str(one["kind"]))
@pytest.mark.parametrize(
    ("end", "error_class"),
    [
        (die, "connection_error"),
        (lambda worker: say(worker, "TIMEOUT"), "timeout"),
        (lambda worker: say(worker, "busy"), "transient_error"),
        (lambda worker: say(worker, "invocation_failed"), "permanent_error"),
    ],
    ids=["dies", "timed out", "busy", "failed"],
)
@asynchronous
async def test_the_end_of_a_call_has_its_class(
    executor: dict[str, Any], end: Callable[[Wire], Awaitable[None]], error_class: str
) -> None:
    hub = a_hub(executor)
    async with at_work(hub) as client, wired(hub) as worker:
        await worker.offer("a::b")
        ending = asyncio.create_task(submitted(client))
        await end(worker)
        assert await ending == error_class
        if error_class == "connection_error":
            await until(lambda: rows(hub)["workers"] == 0)


def always(status: int) -> Answer:
    """A server that always answers the same."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status)

    return answer


async def never(request: web.BaseRequest) -> web.Response:
    """A server that does not answer."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        (always(503), "transient_error"),
        (always(429), "rate_limited"),
        (always(504), "timeout"),
        (always(404), "permanent_error"),
        (never, "timeout"),
        (None, "connection_error"),
    ],
    ids=["503", "429", "504", "404", "never", "refused"],
)
@asynchronous
async def test_a_function_at_a_url_fails_as_a_server_does(answer: Answer | None, error_class: str) -> None:
    hub = a_hub(EXECUTORS[0])
    async with site(answer or never) as port, at_work(hub) as client, wired(hub) as worker:
        url = f"http://127.0.0.1:{free_port() if answer is None else port}/"
        await worker.offer("a::b", invocation={"url": url, "timeout_ms": 200 if answer is never else 10_000})
        assert await submitted(client) == error_class
