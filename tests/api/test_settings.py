"""The settings in effect, where each comes from, and no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.api.conftest import Operator, operated_hub, operating
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.identity import digest, new_key

KEY = new_key()
FILE = f"""version: "1"
include: [more.yaml]
server:
  name: desk
  port: 9999
limits:
  maxThreads: 7
workers:
  port: 0
  token: ${{WORKER_SECRET}}
auth:
  keys:
    - id: root
      hash: {digest(KEY)}
      roles: [admin]
connections:
  github:
    kind: mcp
    url: https://example.com/mcp
    headers:
      Authorization: Bearer abcdefgh12345
"""


async def _list(operator: Operator, query: str = "limit=500", **options: Any) -> dict[str, dict[str, Any]]:
    page = await operator.fetch("GET", f"/api/v1/settings?{query}", **options)
    return {row["key"]: row for row in page["settings"]}


@asynchronous
async def test_a_value_of_a_hub_in_python_is_the_default_or_a_keyword_argument() -> None:
    async with operating(operated_hub(tool_timeout=7)) as operator:
        rows = await _list(operator)
        assert (rows["server.toolTimeoutMs"]["value"], rows["server.toolTimeoutMs"]["source"]) == (7000, "keyword")
        assert rows["audit.sink"]["source"] == "keyword"
        assert (rows["server.pageSize"]["value"], rows["server.pageSize"]["source"]) == (1000, "default")
        assert "How many items" in rows["server.pageSize"]["description"]


@asynchronous
async def test_a_value_of_a_file_has_its_line_its_include_and_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_SECRET", "from-the-environment")
    file = tmp_path / "waypost.yaml"
    file.write_text(FILE)
    (tmp_path / "more.yaml").write_text("server:\n  surface: full\n")
    hub = Hub.from_config(file)
    async with operating(hub) as operator:
        rows = await _list(operator, key=KEY)

        port, surface, token = rows["server.port"], rows["server.surface"], rows["workers.token"]
        assert (port["value"], port["source"], Path(port["file"]).name, port["line"]) == (
            9999,
            "file",
            "waypost.yaml",
            5,
        )
        assert (surface["source"], Path(surface["file"]).name, surface["line"]) == ("include", "more.yaml", 2)
        assert (token["source"], token["variables"], token["value"]) == ("environment", ["WORKER_SECRET"], "[REDACTED]")
        assert rows["server.pageSize"]["source"] == "default"
        assert rows["connections.github.headers.Authorization"]["value"] == "[REDACTED]"
        text = (await operator.ask("GET", "/api/v1/settings?limit=500", key=KEY)).body.decode()
        for secret in ("hunter22", "from-the-environment", "abcdefgh12345", digest(KEY)):
            assert secret not in text

        only = await _list(operator, "source=include&limit=500", key=KEY)
        assert set(only) == {"server.surface"}


@asynchronous
async def test_pages_of_settings_have_each_key_once() -> None:
    async with operating() as operator:
        everything = list(await _list(operator))
        seen: list[str] = []
        cursor = ""
        while True:
            page = await operator.fetch("GET", f"/api/v1/settings?limit=40{cursor}")
            seen += [row["key"] for row in page["settings"]]
            if page["next"] is None:
                break
            cursor = f"&before={page['next']}"
        assert seen == everything
        assert len(set(seen)) == len(seen)


@asynchronous
async def test_the_port_is_the_one_that_the_hub_listens_on() -> None:
    async with operating() as operator:
        assert (await _list(operator))["server.port"]["source"] == "default"
        operator.hub.runtime.replicas.address = "http://127.0.0.1:41000"
        port = (await _list(operator))["server.port"]
        assert (port["value"], port["source"]) == (41000, "start")


@asynchronous
async def test_the_descriptions_are_read_from_the_annotations_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with operating() as operator:
        described = await _list(operator)

        def fail(annotation: Any) -> None:
            raise AssertionError(f"{annotation} was evaluated again")

        monkeypatch.setattr(msgspec.inspect, "type_info", fail)
        assert await _list(operator) == described
        assert described["server.port"]["description"] == "The port to listen on; 0 takes a free one."


@asynchronous
async def test_a_data_directory_that_was_given_at_the_start_is_not_called_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    file = tmp_path / "waypost.yaml"
    file.write_text(FILE)
    monkeypatch.setenv("WORKER_SECRET", "from-the-environment")
    (tmp_path / "more.yaml").write_text("server:\n  surface: full\n")
    for folder, source in ((None, "default"), (tmp_path / "elsewhere", "start")):
        async with operating(Hub.from_config(file, data_dir=folder)) as operator:
            assert (await _list(operator, key=KEY))["dataDirectory"]["source"] == source
