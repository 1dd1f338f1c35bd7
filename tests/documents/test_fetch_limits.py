"""Lists of URIs and of arguments are limited, and so is the size of a fetch result."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.documents.desk import desk
from tests.gateway.importers import recorded
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.documents import records
from waypost.documents.content import FetchLimits, list_wanted_uris
from waypost.documents.documents import FETCH
from waypost.documents.records import read_request
from waypost.errors import InvocationFailed
from waypost.testing import connect
from waypost.workers.functions import Call

BODY = "x" * 200_000


@pytest.mark.parametrize("function_id", [FETCH, "skills::fetch_skill"])
@asynchronous
async def test_too_many_uris_are_refused_before_any_is_read(function_id: str) -> None:
    async with desk() as it:
        it.engine.functions["demo::read"] = lambda _: BODY
        with pytest.raises(InvocationFailed, match=r"Too many uris \(8000; max 100, limits.maxFetchUris\)"):
            await it.call(function_id, {"uris": ["iii://fn/demo/read"] * 8000})
        assert it.engine.calls == []


@pytest.mark.parametrize("function_id", [FETCH, "skills::fetch_skill"])
@asynchronous
async def test_a_hundred_thousand_uris_are_refused_before_they_are_decoded(
    function_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk() as it:
        monkeypatch.setattr(Call, "payload", lambda _: pytest.fail("the payload was decoded"))
        with pytest.raises(InvocationFailed, match="at most 204800 are read; make several calls") as failed:
            await it.call(function_id, {"uris": ["iii://fn/demo/read"] * 100_000})
        assert failed.value.code == "payload_too_large"


@asynchronous
async def test_reading_stops_where_the_result_would_be_too_large() -> None:
    async with desk() as it:
        it.engine.functions["demo::read"] = lambda _: BODY
        most = FetchLimits().max_bytes
        with pytest.raises(InvocationFailed, match=f"larger than {most} bytes"):
            await it.call(FETCH, {"uris": ["iii://fn/demo/read"] * 100})
        assert len(it.engine.calls) == most // len(BODY) + 1


@asynchronous
async def test_large_fetches_of_one_caller_are_read_one_after_another() -> None:
    async with desk() as it:
        read: list[int] = []

        def reader(number: int) -> Callable[[Any], Awaitable[str]]:
            async def read_slowly(_: Any) -> str:
                await asyncio.sleep(0)
                read.append(number)
                return BODY

            return read_slowly

        for number in range(10):
            it.engine.functions[f"demo::read{number}"] = reader(number)
        fetches = [it.call(FETCH, {"uris": [f"iii://fn/demo/read{number}"] * 10}) for number in range(10)]
        assert {len(text) for text in await asyncio.gather(*fetches)} == {
            10 * len(f"# iii://fn/demo/read0\n\n{BODY}") + 63
        }
        # Two texts are not large yet; from then on each is read to its end before the next.
        large = [one for at, one in enumerate(read) if read[:at].count(one) >= 2]
        assert [one for one, _ in groupby(large)] == list(dict.fromkeys(large))


@asynchronous
async def test_a_repeated_uri_is_one_audit_entry(tmp_path: Path) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text(
        'version: "1"\nserver: {name: desk, surface: both}\nstore: {url: "sqlite://"}\n'
        "limits: {maxFetchUris: 20}\nworkers: {port: 0}\n"
    )
    hub = Hub.from_config(file)
    async with connect(hub) as client:
        answer = await client.call_tool("skill__fetch", {"uris": ["iii://skills"] * 20})
        assert answer.text.count("# iii://skills") == 20
        refused = await client.call_tool("skill__fetch", {"uris": ["iii://skills"] * 21})
        assert refused.is_error and "max 20" in refused.text
        records = [one for one in await recorded(hub, "read") if one["capability"] == "iii://skills"]
        assert len(records) == 1
    await hub.stop()


@asynchronous
async def test_a_prompt_has_a_limited_number_of_arguments() -> None:
    async with desk() as it:
        given = {"name": "p", "description": "P.", "function_id": "demo::write"}
        await it.call("prompts::register", {**given, "arguments": [{"name": f"a{n}"} for n in range(100)]})
        with pytest.raises(InvocationFailed, match="too many arguments"):
            await it.call("prompts::register", {**given, "arguments": [{"name": f"a{n}"} for n in range(101)]})


def count_calls(payload: dict[str, Any], schema: dict[str, Any]) -> int:
    """The number of function calls while a request is validated."""
    calls = 0

    def note(_frame: object, event: str, _value: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        read_request(payload, schema)
    finally:
        sys.setprofile(None)
    return calls


def test_validating_a_request_does_not_depend_on_the_length_of_its_lists() -> None:
    texts = {"properties": {"uris": {"type": "array", "items": {"type": "string"}}}}
    few, many = ({"uris": ["iii://skills"] * count} for count in (1, 5_000))
    assert count_calls(few, texts) == count_calls(many, texts)
    argument = {"properties": {"name": {"type": "string"}}}
    rows = {
        "definitions": {"PromptArgument": argument},
        "properties": {"arguments": {"type": "array", "items": {"$ref": "#/definitions/PromptArgument"}}},
    }
    enough, more = ({"arguments": [{"name": "a"}] * count} for count in (101, 5_000))
    assert count_calls(enough, rows) == count_calls(more, rows)


@pytest.mark.parametrize("texts", [["iii://skills"] * 100_000, [1] * 100_000])
def test_a_list_that_is_longer_than_any_limit_is_refused_for_its_length(texts: list[Any]) -> None:
    given = read_request({"uris": texts}, records.FETCH)
    with pytest.raises(InvocationFailed, match="Too many uris"):
        list_wanted_uris(None, given["uris"], 10_000)
