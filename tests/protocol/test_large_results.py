"""Results that are too large to be sent: stored, linked to, and readable only by the caller."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from tests.gateway.conftest import agent
from tests.protocol.conftest import Json, asynchronous
from tests.transports.http.conftest import browsing
from waypost import Context, Hub, RemoteError, Result
from waypost.capabilities.principals import Principal
from waypost.errors import StoreUnavailable, UnknownResource
from waypost.identity import Authentication, Key, digest
from waypost.protocol import responses
from waypost.protocol.responses import KEEP_SECONDS, MAX_TOTAL_FACTOR, URI_PREFIX, Answer, LargeResults
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.stores.urls import MEMORY, create_database
from waypost.testing import TestClient, connect
from waypost.wire.versions import ALL, V2025_06_18, V2025_11_25, V2026_07_28, at_least

LIMIT = 2_000
ANN, BOB = Principal("ann"), Principal("bob")
KEYS = {name: f"wp_{name[0] * 43}" for name in ("ann", "bob")}
LONG = "x" * LIMIT


def library(**options: Any) -> Hub:
    """A hub with tools that return large results, and no resources."""
    hub = Hub("library", version="1", **{"max_result": LIMIT, **options})

    @hub.tool(task="optional")
    async def page(size: int) -> str:
        """Say something that long."""
        return "x" * size

    @hub.tool(task="required")
    async def book() -> str:
        """Say much, as a task."""
        return LONG

    @hub.tool
    async def table(size: int) -> dict[str, str]:
        """Say it in order."""
        return {"text": "x" * size}

    @hub.tool(output={"text": {"type": "string"}})
    async def promised() -> dict[str, str]:
        """Say what was promised."""
        return {"text": LONG}

    @hub.tool
    async def noted() -> Result:
        """Say little, and note much beside it."""
        return Result(["short"], meta={"note": LONG})

    @hub.tool
    async def broken() -> Result:
        """Fail at length."""
        return Result([LONG], is_error=True)

    return hub


async def followed(client: TestClient, answer: Json) -> Json:
    """The stored result that a response links to."""
    (link,) = [block for block in answer["content"] if block["type"] == "resource_link"]
    read = await client.request("resources/read", {"uri": link["uri"]})
    (part,) = read["contents"]
    assert (part["uri"], part["mimeType"]) == (link["uri"], "application/json")
    assert link["size"] == len(part["text"].encode())
    found: Json = json.loads(part["text"])
    return found


@pytest.mark.parametrize("version", [one for one in ALL if at_least(one, V2025_06_18)])
@asynchronous
async def test_a_large_result_is_linked_to_and_can_be_read(version: str) -> None:
    async with connect(library(), version) as client:
        answer = await client.call_tool("table", {"size": LIMIT})
        assert "The result of table has " in answer.text
        assert f"maxResultBytes is {LIMIT:,}." in answer.text
        assert not answer.get("isError")
        assert "structuredContent" not in answer
        whole = await followed(client, answer)
        assert whole["structuredContent"] == {"text": LONG}


@pytest.mark.parametrize("version", [one for one in ALL if not at_least(one, V2025_06_18)])
@asynchronous
async def test_clients_without_resource_links_get_the_uri_as_text(version: str) -> None:
    async with connect(library(), version) as client:
        answer = await client.call_tool("page", {"size": LIMIT})
        uri = answer["content"][1]["text"].removeprefix("result of page: ")
        read = await client.request("resources/read", {"uri": uri})
        assert json.loads(read["contents"][0]["text"])["content"][0]["text"] == LONG


@asynchronous
async def test_a_result_as_large_as_the_limit_is_sent() -> None:
    around = len('{"content":[{"type":"text","text":""}]}')
    async with connect(library()) as client:
        assert (await client.call_tool("page", {"size": LIMIT - around})).text == "x" * (LIMIT - around)
        assert "resource_link" in str(await client.call_tool("page", {"size": LIMIT - around + 1}))


@asynchronous
async def test_a_linked_result_without_its_declared_structured_content_is_an_error() -> None:
    async with connect(library()) as client:
        answer = await client.call_tool("promised", {})
        assert answer["isError"] is True
        assert (await followed(client, answer))["structuredContent"] == {"text": LONG}


@asynchronous
async def test_a_linked_result_of_an_upstream_tool_with_an_output_schema_is_an_error() -> None:
    hub = library()
    promised = hub.registry.tool("promised")
    hub.registry.replace([promised], [replace(promised, output=None)])  # like an upstream tool, which is not checked
    async with connect(hub) as client:
        assert (await client.call_tool("promised", {}))["isError"] is True


@asynchronous
async def test_the_meta_of_a_result_counts_towards_the_limit() -> None:
    async with connect(library()) as client:
        answer = await client.call_tool("noted", {})
        assert LONG not in str(answer)
        assert (await followed(client, answer))["_meta"] == {"note": LONG}


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_a_large_error_result_is_sent_and_stored_as_an_error(version: str) -> None:
    async with connect(library(), version) as client:
        answer = await client.call_tool("broken", {})
        assert answer["isError"] is True
        assert (await followed(client, answer))["isError"] is True


@asynchronous
async def test_a_task_with_a_large_error_result_has_failed() -> None:
    hub = library()

    @hub.tool(task="required")
    async def burst() -> Result:
        """Fail at length, as a task."""
        return Result([LONG], is_error=True)

    async with connect(hub, V2025_11_25) as client:
        created = await client.request("tools/call", {"name": "burst", "arguments": {}, "task": {}})
        task = {"taskId": created["task"]["taskId"]}
        assert (await client.request("tasks/result", task))["isError"] is True
        assert (await client.request("tasks/get", task))["status"] == "failed"


@asynchronous
async def test_a_task_ends_with_the_link() -> None:
    capabilities: Json = {"extensions": {TASKS_EXTENSION: {}}}
    async with connect(library(), V2026_07_28, capabilities=capabilities) as client:
        quick = await client.call_tool("page", {"size": LIMIT})
        assert (await followed(client, quick))["content"][0]["text"] == LONG
        task = await client.request("tools/call", {"name": "book", "arguments": {}})

        async def ended() -> Json:
            while True:
                found = await client.request("tasks/get", {"taskId": task["taskId"]})
                if found["status"] == "completed":
                    return dict(found["result"])

        assert (await followed(client, await ended()))["content"][0]["text"] == LONG


@asynchronous
async def test_a_task_of_a_session_ends_with_the_link() -> None:
    async with connect(library(), V2025_11_25) as client:
        begun = await client.request("tools/call", {"name": "book", "arguments": {}, "task": {}})
        result = await client.request("tasks/result", {"taskId": begun["task"]["taskId"]})
        assert (await followed(client, result))["content"][0]["text"] == LONG


@asynchronous
async def test_the_limit_applies_to_results_of_a_tool_call_hook() -> None:
    class Talker(Hub):
        async def on_tool_call(self, name: str, arguments: Json, ctx: Context) -> Any:
            return LONG

    async with connect(Talker("talker", version="1", max_result=LIMIT)) as client:
        answer = await client.call_tool("anything", {})
        assert (await followed(client, answer))["content"][0]["text"] == LONG


@asynchronous
async def test_a_large_result_of_the_gateway_is_stored_with_its_links() -> None:
    async with agent(library(surface="gateway", max_result=20_000)) as someone:
        given = {"capability": "table", "arguments": {"size": 20_000}}
        answer = await someone.client.call_tool("workflow.start", {"definitionId": "proxy_default", "input": given})
        whole = (await followed(someone.client, answer))["structuredContent"]
        assert whole["context"]["lastResult"] == {"text": "x" * 20_000}
        assert [link["method"] for link in whole["links"]]


@pytest.mark.parametrize("with_resources", [False, True])
@asynchronous
async def test_another_principals_result_is_answered_like_an_unknown_one(with_resources: bool) -> None:
    hub = library(auth=Authentication([Key(name, digest(key)) for name, key in KEYS.items()]))
    if with_resources:
        hub.resource("notes://open", name="open")(lambda: "open")
    who = {name: {"authorization": f"Bearer {key}"} for name, key in KEYS.items()}
    async with browsing(hub) as web:
        call = await web.modern("tools/call", {"name": "page", "arguments": {"size": LIMIT}}, who["ann"])
        uri = call.json["result"]["content"][1]["uri"]
        own = await web.modern("resources/read", {"uri": uri}, who["ann"])
        assert LONG in own.json["result"]["contents"][0]["text"]
        message = await web.modern("resources/read", {"uri": uri}, who["bob"])
        never = URI_PREFIX + "0" * 32
        unknown = await web.modern("resources/read", {"uri": never}, who["bob"])
        assert (message.status, message.body.replace(uri.encode(), never.encode())) == (unknown.status, unknown.body)


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_a_hub_without_resources_cannot_list_resources_or_read_other_uris(version: str) -> None:
    async with connect(library(), version) as client:
        with pytest.raises(RemoteError, match="Method not found"):
            await client.request("resources/read", {"uri": "notes://open"})
        with pytest.raises(RemoteError):
            await client.request("resources/list", {})


def store() -> Store:
    return Store(create_database(MEMORY, None))  # type: ignore[arg-type]  # memory is nowhere


def uri_of(result: Result) -> str:
    return str(result.content[1].uri)  # type: ignore[union-attr]  # a link


async def kept(results: LargeResults, size: int, by: Principal = ANN) -> Result:
    return await results.keep(Answer(b'{"a":"%b"}' % (b"x" * size)), "page", by)


@asynchronous
async def test_a_result_is_kept_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    where = store()
    results = LargeResults(where, LIMIT)
    uri = uri_of(await kept(results, LIMIT))
    now += KEEP_SECONDS - 1
    assert await results.read(uri, ANN)
    now += 2
    with pytest.raises(UnknownResource):
        await results.read(uri, ANN)
    assert await where.requests.sweep(now) == 1
    await where.close()


@asynchronous
async def test_another_hub_on_the_same_store_returns_a_stored_result() -> None:
    where = store()
    uri = uri_of(await kept(LargeResults(where, LIMIT), LIMIT))
    other = LargeResults(where, LIMIT)
    assert await other.read(uri, ANN)
    with pytest.raises(UnknownResource):
        await other.read(uri, BOB)
    await where.close()


@asynchronous
async def test_the_oldest_results_are_deleted_when_there_are_too_many() -> None:
    where = store()
    results = LargeResults(where, LIMIT)
    uris = [uri_of(await kept(results, LIMIT)) for _ in range(MAX_TOTAL_FACTOR)]
    with pytest.raises(UnknownResource):
        await results.read(uris[0], ANN)
    for uri in uris[1:]:
        assert await results.read(uri, ANN)
    await where.close()


@pytest.mark.parametrize("most", [MAX_TOTAL_FACTOR * LIMIT, 3 * LIMIT])
@asynchronous
async def test_a_result_larger_than_the_total_limit_is_not_stored(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(responses, "MAX_TOTAL_BYTES", most)
    where = store()
    result = await kept(LargeResults(where, LIMIT), most)
    assert result.is_error
    assert f"at most {most:,} bytes" in result.text
    await where.close()


@asynchronous
async def test_a_result_that_cannot_be_stored_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    where = store()

    async def refuse(record: RequestRecord) -> bool:
        raise StoreUnavailable("The store is full.")

    monkeypatch.setattr(where.requests, "put", refuse)
    result = await kept(LargeResults(where, LIMIT), LIMIT)
    assert (result.is_error, result.text.endswith("It could not be kept: The store is full.")) == (True, True)
