"""The guard in whole hubs: who may do what, directly and through others, and what is put on record about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import Json, asynchronous, cancelled, idle, in_session, request, until
from tests.transports.http.conftest import Web, browsing
from waypost import Context, Hub, Result, ToolError
from waypost.capabilities.functions import tool_from_function
from waypost.capabilities.options import ToolOptions, parse
from waypost.capabilities.principals import Principal
from waypost.errors import PolicyDenied
from waypost.policy import Authentication, Key, digest
from waypost.policy.rules import Rule
from waypost.stores.database import Point
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

ANN = Principal("ann", roles=("lead",), permissions=("deploy",))
BOB = Principal("bob", roles=("agent",))


def key_of(who: Principal) -> str:
    return f"wp_{who.id:_<43}"


def hub_for(*principals: Principal, **options: Any) -> Hub:
    """A hub that lets in who is named, by key."""
    keys = [Key(one.id, digest(key_of(one)), one.roles, one.permissions) for one in principals or (ANN, BOB)]
    return Hub("guarded", version="1", auth=Authentication(keys), **options)


async def ask(web: Web, who: Principal, method: str, /, **params: Any) -> Json:
    """The answer to a request of somebody, result or error."""
    call = await web.modern(method, params, {"authorization": f"Bearer {key_of(who)}"})
    answer: Json = call.json
    found: Json = answer.get("result") or answer["error"]
    return found


async def says(web: Web, who: Principal, name: str, **arguments: Any) -> str:
    """What comes of a call, in one sentence."""
    answer = await ask(web, who, "tools/call", name=name, arguments=arguments)
    return f"{answer['code']} {answer['message']}" if "code" in answer else str(answer["content"][0]["text"])


async def pass_on(args: Json, ctx: Context) -> Result | str:
    """Call the rest of a path, one through the other; ask for the permissions at its end."""
    for permission in args.get("needs", ()):
        ctx.require(permission)
    path = args.get("path", [])
    return await ctx.invoke(path[0], {**args, "path": path[1:]}) if path else "arrived"


def add(hub: Hub, name: str, permissions: Iterable[str] = (), owner: str | None = "dynamic") -> None:
    """A tool that calls others, as skills are in the registry."""
    options = parse({"name": name, "input_schema": {"type": "object"}}, name, ToolOptions)
    capability = tool_from_function(pass_on, options).capability
    hub.registry.add([replace(capability, owner=owner, permissions=tuple(permissions))])


async def recorded(hub: Hub) -> list[Json]:
    """What is on record about calls, the first first."""
    assert hub.guard.audit is not None
    await hub.guard.audit.written()
    entries = [entry.value for entry in await hub.store.audit.latest(1000)]
    return [entry for entry in reversed(entries) if entry.get("action") != "begin"]


@asynchronous
async def test_a_tool_that_asks_for_a_permission_is_for_those_who_have_it() -> None:
    hub = hub_for()
    hub.tool(lambda: "deployed", name="deploy", permissions=["deploy"])
    async with browsing(hub) as web:
        assert await says(web, ANN, "deploy") == "deployed"
        assert await says(web, BOB, "deploy") == "-32000 permission 'deploy' is not granted to bob"


@asynchronous
async def test_all_permissions_that_are_asked_for_are_needed() -> None:
    hub = hub_for()
    hub.tool(lambda: "deployed", name="deploy", permissions=["deploy", "release"])
    async with browsing(hub) as web:
        assert await says(web, ANN, "deploy") == "-32000 permission 'release' is not granted to ann"


@asynchronous
async def test_prompts_and_resources_ask_for_permissions_too() -> None:
    hub = hub_for()
    hub.prompt(lambda: "Plan it.", name="plan", permissions=["deploy"])
    hub.resource("plans://now", name="now", permissions=["deploy"])(lambda: "now")
    async with browsing(hub) as web:
        for method, params in (("prompts/get", {"name": "plan"}), ("resources/read", {"uri": "plans://now"})):
            assert "code" not in await ask(web, ANN, method, **params)
            denied = await ask(web, BOB, method, **params)
            assert (denied["code"], denied["message"]) == (-32000, "permission 'deploy' is not granted to bob")


@asynchronous
async def test_rules_are_for_tools_prompts_resources_and_what_templates_find() -> None:
    rule = Rule(name="lead", type="allow_list", config={"allow": ["free*"]}, roles=("agent",))
    hub = hub_for(policies=[rule])
    hub.tool(lambda: "x", name="deploy")
    hub.prompt(lambda: "x", name="plan")
    hub.resource("plans://now", name="now")(lambda: "now")
    hub.resource("notes://{number}", name="notes")(lambda number: number)
    hub.resource("free://{number}", name="free")(lambda number: number)
    asked: list[tuple[str, str, Json]] = [
        ("deploy", "tools/call", {"name": "deploy", "arguments": {}}),
        ("plan", "prompts/get", {"name": "plan"}),
        ("plans://now", "resources/read", {"uri": "plans://now"}),
        ("notes://1", "resources/read", {"uri": "notes://1"}),
    ]
    async with browsing(hub) as web:
        for name, method, params in asked:
            assert "code" not in await ask(web, ANN, method, **params)
            denied = await ask(web, BOB, method, **params)
            assert (denied["code"], denied["message"]) == (-32000, f"allow list: '{name}' is not on it")
        assert "code" not in await ask(web, BOB, "resources/read", uri="free://1")


@asynchronous
async def test_what_a_rule_hides_is_in_nobodys_list_whom_it_is_denied_to() -> None:
    config = {"allow": ["open*"]}
    hub = hub_for(policies=[Rule(name="hide", type="allow_list", config=config, roles=("agent",), hide=True)])
    for name in ("open", "closed"):
        hub.tool(lambda: "x", name=name)
        hub.prompt(lambda: "x", name=name)
        hub.resource(f"{name}://x", name=name)(lambda: "x")
        hub.resource(f"{name}://{{number}}/y", name=f"{name}-y")(lambda number: number)
    lists = {
        "tools/list": ("tools", "name"),
        "prompts/list": ("prompts", "name"),
        "resources/list": ("resources", "uri"),
        "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    }
    async with browsing(hub) as web:
        for method, (kind, key) in lists.items():
            seen = {one.id: [item[key] for item in (await ask(web, one, method))[kind]] for one in (ANN, BOB)}
            assert len(seen["ann"]) == 2
            assert [name[:4] for name in seen["bob"]] == ["open"]
        assert await says(web, BOB, "closed") == "-32000 allow list: 'closed' is not on it"


@asynchronous
async def test_what_is_denied_without_hiding_stays_listed() -> None:
    hub = hub_for(policies=[Rule(name="shown", type="allow_list", config={"allow": []})])
    hub.tool(lambda: "x", name="deploy")
    async with browsing(hub) as web:
        assert [tool["name"] for tool in (await ask(web, BOB, "tools/list"))["tools"]] == ["deploy"]


@pytest.mark.parametrize("sink", ["none", "store"])
@asynchronous
async def test_a_dynamic_skill_calls_others_only_if_it_declares_that(sink: str) -> None:
    hub = hub_for(audit=sink)
    add(hub, "skill:quiet", ["web_read"])
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "plain", owner=None)
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:social", path=["plain"]) == "arrived"
        assert await says(web, BOB, "skill:quiet", path=["plain"]) == "token does not grant skill_invoke"
        assert await says(web, BOB, "skill:quiet") == "arrived"


@asynchronous
async def test_workflows_are_called_by_those_who_may_run_workflows() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "skill:runner", ["workflow_run"])
    add(hub, "workflow:digest", owner="core")
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:runner", path=["workflow:digest"]) == "arrived"
        assert await says(web, BOB, "skill:social", path=["workflow:digest"]) == "token does not grant workflow_run"


@asynchronous
async def test_a_core_skill_does_not_do_for_a_dynamic_one_what_that_one_may_not() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "skill:reader", ["skill_invoke", "web_read"])
    add(hub, "skill:web_browse", ["web_read"], owner="core")
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:web_browse") == "arrived"
        assert await says(web, BOB, "skill:reader", path=["skill:web_browse"]) == "arrived"
        assert await says(web, BOB, "skill:social", path=["skill:web_browse"]) == "token does not grant web_read"


@asynchronous
async def test_rights_do_not_widen_on_the_way_through_others() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "skill:reader", ["skill_invoke", "web_read"])
    add(hub, "skill:relay", (), owner="core")
    add(hub, "plain", owner=None)
    add(hub, "skill:web_browse", ["web_read"], owner="core")
    async with browsing(hub) as web:
        for way in (["skill:reader"], ["skill:relay"], ["plain"], ["plain", "skill:reader"]):
            said = await says(web, BOB, "skill:social", path=[*way, "skill:web_browse"])
            assert said == "token does not grant web_read", way
        for way in (["skill:reader"], ["skill:relay"], ["plain"]):
            assert await says(web, BOB, "skill:reader", path=[*way, "skill:web_browse"]) == "arrived", way
        assert await says(web, BOB, "skill:reader", path=["skill:social", "skill:web_browse"]) != "arrived"


@asynchronous
async def test_a_dynamic_skill_does_not_borrow_the_permissions_of_its_caller() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "skill:deployer", ["skill_invoke", "deploy"])
    add(hub, "deploy", ["deploy"], owner=None)
    async with browsing(hub) as web:
        assert await says(web, ANN, "skill:deployer", path=["deploy"]) == "arrived"
        assert await says(web, BOB, "skill:deployer", path=["deploy"]) == "permission 'deploy' is not granted to bob"
        assert await says(web, ANN, "skill:social", path=["deploy"]) == "token does not grant deploy"


@pytest.mark.parametrize("owner", ["dynamic", "core", None])
@pytest.mark.parametrize("sink", ["none", "store"])
@asynchronous
async def test_three_calls_may_stand_behind_a_call_and_not_four(owner: str | None, sink: str) -> None:
    hub = hub_for(Principal("bob", permissions=("skill_invoke",)), audit=sink)
    add(hub, "relay", ["skill_invoke"] if owner == "dynamic" else [], owner=owner)
    async with browsing(hub) as web:
        assert await says(web, BOB, "relay", path=["relay"] * 3) == "arrived"
        assert await says(web, BOB, "relay", path=["relay"] * 4) == "chain depth 4 exceeds maximum 3"


@asynchronous
async def test_rules_see_who_calls_out_of_whom() -> None:
    rules = [
        Rule(name="loner", type="chain_restriction", config={"caller_pattern": "skill:loner"}),
        Rule(name="inside", type="allow_list", config={"allow": []}, callers=("mcp",), capabilities=("inner",)),
    ]
    hub = hub_for(policies=rules)
    add(hub, "skill:loner", ["skill_invoke"])
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "inner", owner=None)
    async with browsing(hub) as web:
        assert await says(web, BOB, "inner") == "-32000 allow list: 'inner' is not on it"
        assert await says(web, BOB, "skill:social", path=["inner"]) == "arrived"
        assert "may not call others" in await says(web, BOB, "skill:loner", path=["inner"])
        assert await says(web, BOB, "skill:loner") == "arrived"


@asynchronous
async def test_a_running_skill_has_the_permissions_it_declares_and_no_others() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:reader", ["skill_invoke", "web_read"])
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "skill:web_browse", (), owner="core")
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:reader", needs=["web_read"]) == "arrived"
        assert await says(web, BOB, "skill:web_browse", needs=["web_read"]) == "arrived"
        assert await says(web, BOB, "skill:social", needs=["web_read"]) == "-32000 permission web_read not declared"
        denial = next(entry for entry in await recorded(hub) if entry["decision"] == "deny")
    assert {key: denial[key] for key in ("principal", "capability", "action", "reason", "outcome")} == {
        "principal": "bob",
        "capability": "skill:social",
        "action": "web_read",
        "reason": "permission web_read not declared",
        "outcome": "denied",
    }


async def need_inside(args: Json, ctx: Context) -> Result:
    """Call another that needs a permission for itself."""
    return await ctx.invoke(args["whom"], {"needs": ["web_read"]})


@asynchronous
async def test_what_is_called_may_do_no_more_than_the_one_who_calls() -> None:
    hub = hub_for(Principal("bob", permissions=("web_read",)), audit="store")
    options = parse({"name": "skill:social", "input_schema": {"type": "object"}}, "x", ToolOptions)
    social = tool_from_function(need_inside, options).capability
    hub.registry.add([replace(social, owner="dynamic", permissions=("skill_invoke",))])
    add(hub, "skill:reader", ["web_read"])
    add(hub, "skill:web_browse", (), owner="core")
    add(hub, "plain", (), owner=None)
    async with browsing(hub) as web:
        for whom in ("skill:reader", "skill:web_browse", "plain"):
            assert await says(web, BOB, "skill:social", whom=whom) == "token does not grant web_read", whom


@asynchronous
async def test_rules_take_permissions_away_from_running_skills() -> None:
    rule = Rule(name="offline", type="permission_override", config={"permission": "web_read"})
    hub = hub_for(policies=[rule])
    add(hub, "skill:reader", ["web_read"])
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:reader") == "arrived"
        said = await says(web, BOB, "skill:reader", needs=["web_read"])
        assert said == "-32000 permission override: web_read is denied"


@asynchronous
async def test_a_limit_counts_calls_and_not_what_a_call_needs() -> None:
    hub = hub_for(policies=[Rule(name="calm", type="rate_limit", config={"max_calls": 2})])
    add(hub, "skill:reader", ["web_read", "llm"])
    async with browsing(hub) as web:
        said = [await says(web, BOB, "skill:reader", needs=["web_read", "llm"]) for _ in range(3)]
    assert said == ["arrived", "arrived", "-32000 rate limit exceeded: max 2/60s"]


@asynchronous
async def test_a_tool_of_ones_own_can_ask_what_its_caller_may() -> None:
    hub = hub_for()
    add(hub, "plain", owner=None)
    async with browsing(hub) as web:
        assert await says(web, ANN, "plain", needs=["deploy"]) == "arrived"
        assert await says(web, BOB, "plain", needs=["deploy"]) == "-32000 permission 'deploy' is not granted to bob"


def assorted(**options: Any) -> Hub:
    """A hub whose tools end in every way there is."""
    hub = hub_for(tool_timeout=0.05, **options)

    @hub.tool
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
async def test_every_way_a_call_ends_is_on_record() -> None:
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
async def test_cancelled_calls_are_on_record() -> None:
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
async def test_calls_out_of_calls_are_on_record_with_who_made_them_and_how_deep() -> None:
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


def test_arguments_are_on_record_by_their_digest_alone(tmp_path: Path) -> None:
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
async def test_arguments_json_has_no_words_for_are_no_problem() -> None:
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
async def test_without_an_audit_nothing_is_kept_and_everything_works() -> None:
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
        explained.append([hub.guard.decide(tool, "plain", ctx.caller, counts=False).word for _ in range(3)])
        return "done"

    async with browsing(hub) as web:
        await says(web, BOB, "explain")
        assert explained == [["allow"] * 3]
        assert await says(web, BOB, "plain") == "arrived"
        assert [entry["capability"] for entry in await recorded(hub)] == ["explain", "plain"]


@asynchronous
async def test_a_denied_call_out_of_a_call_is_an_error_its_maker_can_handle() -> None:
    hub = hub_for(policies=[Rule(name="no", type="allow_list", config={"allow": ["try"]})])
    add(hub, "plain", owner=None)
    caught: list[Exception] = []

    @hub.tool(name="try")
    async def attempt(ctx: Context) -> str:
        """Call what is denied."""
        try:
            await ctx.invoke("plain")
        except (ToolError, PolicyDenied) as error:
            caught.append(error)
        return "went on"

    async with browsing(hub) as web:
        assert await says(web, BOB, "try") == "went on"
    assert [str(error) for error in caught] == ["allow list: 'plain' is not on it"]


@asynchronous
async def test_a_full_line_of_one_principal_is_nothing_to_another() -> None:
    hub = hub_for(max_running=1)
    go, running = asyncio.Event(), list[str]()

    @hub.tool
    async def hold(ctx: Context) -> str:
        """Wait to be let go."""
        running.append(ctx.principal.id)
        await go.wait()
        return "held"

    async with browsing(hub) as web:
        calls = [asyncio.create_task(says(web, who, "hold")) for who in (ANN, ANN, ANN, BOB)]
        await until(lambda: sorted(running) == ["ann", "bob"])
        go.set()
        assert await asyncio.gather(*calls) == ["held"] * 4
