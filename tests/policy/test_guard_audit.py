"""The guard and the audit: the entries that calls leave."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.policy.guarded import ANN, BOB, add, ask, hub_for, recorded, says
from tests.protocol.conftest import Json, asynchronous, cancelled, idle, in_session, request
from tests.transports.http.conftest import browsing
from waypost import Context, Hub, ToolError
from waypost.policy.rules import Rule
from waypost.stores.database import Point
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


def assorted(**options: Any) -> Hub:
    """A hub with a tool that can end in every possible way."""
    hub = hub_for(**options)

    @hub.tool(timeout=0.05)  # not for what runs in a thread, which may start late
    async def end(how: str) -> str:
        """End in one way or another."""
        match how:
            case "crash":
                raise OSError("no route")
            case "hang":
                await asyncio.Event().wait()
            case "tell":
                raise ToolError("not today")
        return how

    hub.tool(lambda: "x", name="closed", permissions=["nobody"])
    hub.prompt(lambda topic: topic, name="plan")
    hub.resource("plans://{number}", name="plans")(lambda number: number)
    return hub


@asynchronous
async def test_every_outcome_of_a_call_is_audited() -> None:
    hub = assorted(audit="store")
    async with browsing(hub) as web:
        for how in ("well", "crash", "hang", "tell"):
            await says(web, ANN, "end", how=how)
        await says(web, ANN, "end", how=5)
        await says(web, ANN, "closed")
        await ask(web, BOB, "prompts/get", name="plan", arguments={"topic": "t"})
        await ask(web, BOB, "resources/read", uri="plans://7")
        entries = await recorded(hub)

    shown = [
        (entry["principal"], entry.get("action", "call"), entry["capability"], entry["decision"], entry["outcome"])
        for entry in entries
    ]
    assert shown == [
        ("ann", "call", "end", "allow", "ok"),
        ("ann", "call", "end", "allow", "crashed"),
        ("ann", "call", "end", "allow", "timed out"),
        ("ann", "call", "end", "allow", "error"),
        ("ann", "call", "end", "allow", "invalid arguments"),
        ("ann", "call", "closed", "deny", "denied"),
        ("bob", "prompt", "plan", "allow", "ok"),
        ("bob", "read", "plans://7", "allow", "ok"),
    ]
    assert {entry["callerType"] for entry in entries} == {"mcp"}
    assert entries[5]["reason"] == "permission 'nobody' is not granted to ann"
    assert entries[5]["rule"] == "permissions"
    assert entries[2]["durationMs"] >= 50


@asynchronous
async def test_cancelled_calls_are_audited() -> None:
    hub = Hub("h", version="1", audit="store")
    began = asyncio.Event()

    @hub.tool
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    async with in_session(hub) as peer:
        peer.send(request(1, "tools/call", {"name": "hang", "arguments": {}}))
        await began.wait()
        peer.send(cancelled(1))
        await idle()
        assert [entry["outcome"] for entry in await recorded(hub)] == ["cancelled"]


@asynchronous
async def test_nested_calls_are_audited_with_their_caller_and_depth() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "plain", owner=None)
    async with browsing(hub) as web:
        await says(web, BOB, "skill:social", path=["plain", "plain"])
        entries = await recorded(hub)
    shown = [(entry["capability"], entry["callerType"], entry["caller"], entry.get("depth", 0)) for entry in entries]
    assert shown == [
        ("plain", "core", "plain", 2),
        ("plain", "dynamic", "skill:social", 1),
        ("skill:social", "mcp", "mcp", 0),
    ]


def test_arguments_are_audited_as_a_digest_only(tmp_path: Path) -> None:
    hub = assorted(audit="store", store=Store(SqliteDatabase(tmp_path / "store.db")))
    secret = "hunter2-" * 4

    async def calls() -> list[Json]:
        async with browsing(hub) as web:
            await says(web, ANN, "end", how=secret)
            await says(web, ANN, "closed", password=secret)
            await ask(web, ANN, "prompts/get", name="plan", arguments={"topic": secret})
            return await recorded(hub)

    entries = asyncio.run(calls())
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    written = json.dumps({"how": secret}, separators=(",", ":"))
    assert entries[0]["arguments"] == sha256(written.encode()).hexdigest()
    assert all(len(entry["arguments"]) == 64 for entry in entries)
    assert secret not in json.dumps(entries)
    assert b"hunter2" not in raw


@asynchronous
async def test_the_audited_digest_is_of_the_arguments_before_the_tool_changes_them() -> None:
    hub = Hub("h", version="1", audit="store")

    def spend(args: dict[str, Any]) -> str:
        args["coins"].clear()
        return "spent"

    hub.tool(spend, name="spend", input_schema={"type": "object"})
    async with in_session(hub) as peer:
        await peer.result(request(1, "tools/call", {"name": "spend", "arguments": {"coins": [1, 2]}}))
        (entry,) = await recorded(hub)
    assert entry["arguments"] == sha256(b'{"coins":[1,2]}').hexdigest()


@asynchronous
async def test_arguments_without_a_json_form_can_be_audited() -> None:
    hub = Hub("h", version="1", audit="store", max_running=1)
    hub.tool(lambda args: "taken", name="take", input_schema={"type": "object"})

    @hub.tool
    async def give(ctx: Context) -> str:
        """Call another tool with what only Python has."""
        return (await ctx.invoke("take", {"a": {1: object()}, "b": "\ud800", "c": {2}})).text

    async with in_session(hub) as peer:
        result = await peer.result(request(1, "tools/call", {"name": "give", "arguments": {}}))
        entries = await recorded(hub)
    assert result["content"][0]["text"] == "taken"
    assert [len(entry["arguments"]) for entry in entries] == [64, 64]


@asynchronous
async def test_entries_of_calls_made_together_share_transactions(tmp_path: Path) -> None:
    points: list[Point] = []
    hub = Hub("h", version="1", audit="store", store=Store(SqliteDatabase(tmp_path / "s.db", at=points.append)))
    hub.tool(lambda args: "x", name="x", input_schema={"type": "object"})
    async with in_session(hub) as peer:
        await hub.store.open()
        points.clear()
        for number in range(500):
            peer.send(request(number, "tools/call", {"name": "x", "arguments": {}}))
        for number in range(500):
            await peer.response(number)
        assert len(await recorded(hub)) == 500
    assert points.count("committed") <= 50


@asynchronous
async def test_without_an_audit_calls_work_and_the_store_stays_closed() -> None:
    hub = assorted(audit="none")
    async with browsing(hub) as web:
        assert await says(web, ANN, "end", how="well") == "well"
        assert hub.guard.audit is None
        assert not hub.store.is_open


@asynchronous
async def test_a_decision_can_be_explained_without_running_or_counting() -> None:
    hub = hub_for(policies=[Rule(name="calm", type="rate_limit", config={"max_calls": 1})], audit="store")
    add(hub, "plain", owner=None)
    explained = []

    @hub.tool
    async def explain(ctx: Context) -> str:
        tool = hub.registry.tool("plain")
        explained.append([hub.guard.decide(tool, "plain", ctx.caller, counts=False).allowed for _ in range(3)])
        return "done"

    async with browsing(hub) as web:
        await says(web, BOB, "explain")
        assert explained == [[True] * 3]
        assert await says(web, BOB, "plain") == "arrived"
        assert [entry["capability"] for entry in await recorded(hub)] == ["explain", "plain"]
