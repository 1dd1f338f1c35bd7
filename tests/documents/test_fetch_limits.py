"""A short request never makes the hub read much: lists of URIs and of arguments are limited, and so is their sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.desk import desk
from tests.gateway.importers import recorded
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.documents.content import FetchLimits
from waypost.documents.documents import FETCH
from waypost.errors import InvocationFailed
from waypost.testing import connect

BODY = "x" * 200_000


@pytest.mark.parametrize("function_id", [FETCH, "skills::fetch_skill"])
@asynchronous
async def test_too_many_uris_are_refused_before_any_is_read(function_id: str) -> None:
    async with desk() as it:
        it.engine.functions["demo::read"] = lambda _: BODY
        with pytest.raises(InvocationFailed, match=r"Too many uris \(8000; max 100, limits.maxFetchUris\)"):
            await it.call(function_id, {"uris": ["iii://fn/demo/read"] * 8000})
        assert it.engine.calls == []


@asynchronous
async def test_reading_stops_where_the_result_would_be_too_large() -> None:
    async with desk() as it:
        it.engine.functions["demo::read"] = lambda _: BODY
        most = FetchLimits().max_bytes
        with pytest.raises(InvocationFailed, match=f"larger than {most} bytes"):
            await it.call(FETCH, {"uris": ["iii://fn/demo/read"] * 100})
        assert len(it.engine.calls) == most // len(BODY) + 1


@asynchronous
async def test_one_uri_named_often_is_one_record_of_the_audit(tmp_path: Path) -> None:
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
