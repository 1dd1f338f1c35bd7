"""The guard in whole hubs: permissions, denied and hidden capabilities, and limits."""

from __future__ import annotations

import asyncio

from tests.policy.guarded import ANN, BOB, add, ask, hub_for, says
from tests.protocol.conftest import Json, asynchronous, until
from tests.transports.http.conftest import browsing
from waypost import Context
from waypost.policy.rules import Rule


@asynchronous
async def test_a_tool_with_a_permission_is_refused_to_principals_without_it() -> None:
    hub = hub_for()
    hub.tool(lambda: "deployed", name="deploy", permissions=["deploy"])
    async with browsing(hub) as web:
        assert await says(web, ANN, "deploy") == "deployed"
        assert await says(web, BOB, "deploy") == "-32000 permission 'deploy' is not granted to bob"


@asynchronous
async def test_a_tool_requires_all_of_its_permissions() -> None:
    hub = hub_for()
    hub.tool(lambda: "deployed", name="deploy", permissions=["deploy", "release"])
    async with browsing(hub) as web:
        assert await says(web, ANN, "deploy") == "-32000 permission 'release' is not granted to ann"


@asynchronous
async def test_prompts_and_resources_require_permissions_too() -> None:
    hub = hub_for()
    hub.prompt(lambda: "Plan it.", name="plan", permissions=["deploy"])
    hub.resource("plans://now", name="now", permissions=["deploy"])(lambda: "now")
    async with browsing(hub) as web:
        for method, params in (("prompts/get", {"name": "plan"}), ("resources/read", {"uri": "plans://now"})):
            assert "code" not in await ask(web, ANN, method, **params)
            denied = await ask(web, BOB, method, **params)
            assert (denied["code"], denied["message"]) == (-32000, "permission 'deploy' is not granted to bob")


@asynchronous
async def test_rules_apply_to_tools_prompts_resources_and_resources_of_templates() -> None:
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
async def test_a_hidden_capability_is_not_listed_for_the_principals_it_is_denied_to() -> None:
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
        assert await says(web, BOB, "closed") == "-32602 Unknown tool: closed"


@asynchronous
async def test_a_capability_denied_without_hide_stays_listed() -> None:
    hub = hub_for(policies=[Rule(name="shown", type="allow_list", config={"allow": []})])
    hub.tool(lambda: "x", name="deploy")
    async with browsing(hub) as web:
        assert [tool["name"] for tool in (await ask(web, BOB, "tools/list"))["tools"]] == ["deploy"]


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
async def test_a_limit_counts_calls_and_not_permission_checks() -> None:
    hub = hub_for(policies=[Rule(name="calm", type="rate_limit", config={"max_calls": 2})])
    add(hub, "skill:reader", ["web_read", "llm"])
    async with browsing(hub) as web:
        said = [await says(web, BOB, "skill:reader", needs=["web_read", "llm"]) for _ in range(3)]
    assert said == ["arrived", "arrived", "-32000 rate limit exceeded: max 2/60s"]


@asynchronous
async def test_a_tool_without_an_owner_can_check_the_permissions_of_its_caller() -> None:
    hub = hub_for()
    add(hub, "plain", owner=None)
    async with browsing(hub) as web:
        assert await says(web, ANN, "plain", needs=["deploy"]) == "arrived"
        assert await says(web, BOB, "plain", needs=["deploy"]) == "-32000 permission 'deploy' is not granted to bob"


@asynchronous
async def test_a_full_queue_of_one_principal_does_not_delay_another() -> None:
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
