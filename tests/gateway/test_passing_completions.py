"""Completions for an argument of an upstream's prompt or template come from that upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import Json, imports_of, recorded, write
from tests.gateway.passers import downstream, started, upstream
from tests.protocol.conftest import asynchronous
from tests.upstreams.pools import listening
from tests.upstreams.servers.curious import Dated
from waypost import Context, Hub, RemoteError
from waypost.errors import InvalidParams
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2025_03_26, V2026_07_28

GREET = {"type": "ref/prompt", "name": "up.greet"}
DAY = {"type": "ref/resource", "uri": "notes://{day}"}


class Knowing(Dated):
    """A hub with completions."""

    def __init__(self, only: str) -> None:
        super().__init__("knowing", only)
        self.asked: list[tuple[str, Json]] = []
        self.prompt(name="greet")(self.greet)
        self.resource("notes://{day}", name="day")(self.read)

    def greet(self, name: str) -> str:
        return name

    def read(self, day: str) -> str:
        return day

    async def on_completion(self, ref: str, argument: Mapping[str, Any], ctx: Context) -> list[str]:
        self.asked.append((ref, dict(argument)))
        match argument["value"]:
            case "many":
                return [f"many{number}" for number in range(150)]
            case "refused":
                raise InvalidParams("Nobody is called hush-hush.")
            case "never":
                await asyncio.Event().wait()
        return [f"{argument['value']}da", f"{argument['value']}dam"]


@asynccontextmanager
async def knowing(folder: Path, era: str, **more: Any) -> AsyncIterator[tuple[Hub, Knowing]]:
    far = Knowing(era)
    async with listening(far.asgi()) as url:
        connection = {"kind": "mcp", "url": url, "headers": {"X-Key": "hush-hush"}}
        async with started(write(folder, {"up": connection}, [{"connection": "up"}], **more)) as hub:
            yield hub, far
    await far.stop()


async def completion(client: TestClient, ref: Json, value: str, **more: Any) -> Json:
    given = {"ref": ref, "argument": {"name": "name", "value": value}, **more}
    found: Json = (await client.request("completion/complete", given))["completion"]
    return found


@downstream
@upstream
def test_the_upstream_is_asked_with_its_own_names(tmp_path: Path, version: str, era: str) -> None:
    @asynchronous
    async def asked() -> None:
        async with knowing(tmp_path, era) as (hub, far), connect(hub, version) as client:
            assert "completions" in client.server_capabilities
            found = await completion(client, GREET, "A")
            assert found == {"values": ["Ada", "Adam"], "total": 2, "hasMore": False}
            so_far = {"arguments": {"tone": "warm"}}
            assert (await completion(client, DAY, "B", context=so_far))["values"] == ["Bda", "Bdam"]
            assert far.asked == [
                ("greet", {"name": "name", "value": "A"}),
                ("notes://{day}", {"name": "name", "value": "B", "context": so_far}),
            ]
            assert await completion(client, GREET, "many") == {
                "values": [f"many{number}" for number in range(100)],
                "total": 150,
                "hasMore": True,
            }

    asked()


@asynchronous
async def test_an_older_upstream_gets_no_completion_context(tmp_path: Path) -> None:
    async with knowing(tmp_path, V2025_03_26) as (hub, far), connect(hub) as client:
        await completion(client, GREET, "A", context={"arguments": {"tone": "warm"}})
        assert far.asked == [("greet", {"name": "name", "value": "A"})]


@upstream
def test_a_refusal_is_passed_on_without_the_secrets_of_the_configuration(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def refused() -> None:
        async with knowing(tmp_path, era) as (hub, _), connect(hub) as client:
            with pytest.raises(RemoteError, match="Nobody is called") as problem:
                await completion(client, GREET, "refused")
            assert problem.value.code == -32602
            assert "hush-hush" not in problem.value.message

    refused()


@asynchronous
async def test_a_completion_times_out_like_a_call(tmp_path: Path) -> None:
    server = {"name": "desk", "version": "1", "surface": "full", "toolTimeoutMs": 200}
    async with knowing(tmp_path, V2026_07_28, server=server) as (hub, _), connect(hub) as client:
        with pytest.raises(RemoteError, match="timed out"):
            await completion(client, GREET, "never")
        hub.core.pipeline.timeout = 60.0  # the next one has to succeed, also on a busy machine
        assert (await completion(client, GREET, "A"))["values"] == ["Ada", "Adam"]


@asynchronous
async def test_rules_about_a_prompt_apply_to_its_completion(tmp_path: Path) -> None:
    rule = {"name": "no", "type": "mcp_restriction", "config": {"tool_pattern": "up.greet", "action": "deny"}}
    async with knowing(tmp_path, LATEST_LEGACY, policies=[rule]) as (hub, far), connect(hub) as client:
        with pytest.raises(RemoteError) as denied:
            await completion(client, GREET, "A")
        assert denied.value.code == -32000
        assert far.asked == []


@upstream
def test_a_server_that_completes_nothing_is_not_asked(tmp_path: Path, era: str) -> None:
    @asynchronous
    async def silent() -> None:
        far = Dated("silent", era)
        far.server_capabilities = lambda: {"prompts": {}}  # type: ignore[method-assign]  # says less than it can

        def greet(name: str) -> str:
            return name

        far.prompt(name="greet")(greet)
        async with (
            listening(far.asgi()) as url,
            started(write(tmp_path, {"up": {"kind": "mcp", "url": url}}, [{"connection": "up"}])) as hub,
            connect(hub) as client,
        ):
            assert (await completion(client, GREET, "A"))["values"] == []
            assert imports_of(hub).get_row("up").state == "running"
        await far.stop()

    silent()


@asynchronous
async def test_a_hook_of_the_hub_may_delegate_to_the_upstream(tmp_path: Path) -> None:
    class Louder(Hub):
        async def on_completion(self, ref: str, argument: Mapping[str, Any], ctx: Context) -> list[str]:
            return [value.upper() for value in await super().on_completion(ref, argument, ctx)]

    far = Knowing(V2026_07_28)
    async with listening(far.asgi()) as url:
        hub: Hub = Louder.from_config(write(tmp_path, {"up": {"kind": "mcp", "url": url}}, [{"connection": "up"}]))
        assert isinstance(hub, Hub)
        async with connect(hub) as client:
            await imports_of(hub).wait_until_listed()
            assert (await completion(client, GREET, "A"))["values"] == ["ADA", "ADAM"]
        await hub.stop()
    await far.stop()


@asynchronous
async def test_a_completion_is_in_the_audit(tmp_path: Path) -> None:
    async with knowing(tmp_path, V2026_07_28) as (hub, _), connect(hub) as client:
        await client.complete(GREET, "name", "A")
        (entry,) = await recorded(hub, "complete")
        assert (entry["capability"], entry["outcome"]) == ("up.greet", "ok")
