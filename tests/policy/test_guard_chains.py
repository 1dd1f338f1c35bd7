"""The guard between calls: the rights of a capability that another one calls."""

from __future__ import annotations

import pytest

from tests.policy.guarded import ANN, BOB, add, hub_for, recorded, says
from tests.protocol.conftest import Json, asynchronous
from tests.transports.http.conftest import browsing
from waypost import Context, Result, ToolError
from waypost.capabilities.principals import Principal
from waypost.errors import PolicyDenied
from waypost.policy.rules import Rule


@pytest.mark.parametrize("sink", ["none", "store"])
@asynchronous
async def test_a_dynamic_skill_calls_others_only_if_it_declares_the_permission(sink: str) -> None:
    hub = hub_for(audit=sink)
    add(hub, "skill:quiet", ["web_read"])
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "plain", owner=None)
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:social", path=["plain"]) == "arrived"
        assert await says(web, BOB, "skill:quiet", path=["plain"]) == "token does not grant skill_invoke"
        assert await says(web, BOB, "skill:quiet") == "arrived"


@asynchronous
async def test_calling_a_workflow_requires_the_workflow_run_permission() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "skill:runner", ["workflow_run"])
    add(hub, "workflow:digest", owner="core")
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:runner", path=["workflow:digest"]) == "arrived"
        assert await says(web, BOB, "skill:social", path=["workflow:digest"]) == "token does not grant workflow_run"


@asynchronous
async def test_a_core_skill_called_by_a_dynamic_one_has_only_its_permissions() -> None:
    hub = hub_for(audit="store")
    add(hub, "skill:social", ["skill_invoke"])
    add(hub, "skill:reader", ["skill_invoke", "web_read"])
    add(hub, "skill:web_browse", ["web_read"], owner="core")
    async with browsing(hub) as web:
        assert await says(web, BOB, "skill:web_browse") == "arrived"
        assert await says(web, BOB, "skill:reader", path=["skill:web_browse"]) == "arrived"
        assert await says(web, BOB, "skill:social", path=["skill:web_browse"]) == "token does not grant web_read"


@asynchronous
async def test_rights_do_not_widen_along_a_chain() -> None:
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
async def test_a_call_may_have_three_calls_behind_it_and_not_four(owner: str | None, sink: str) -> None:
    hub = hub_for(Principal("bob", permissions=("skill_invoke",)), audit=sink)
    add(hub, "relay", ["skill_invoke"] if owner == "dynamic" else [], owner=owner)
    async with browsing(hub) as web:
        assert await says(web, BOB, "relay", path=["relay"] * 3) == "arrived"
        assert await says(web, BOB, "relay", path=["relay"] * 4) == "chain depth 4 exceeds maximum 3"


@asynchronous
async def test_rules_see_the_caller_of_a_nested_call() -> None:
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
async def test_a_called_capability_has_no_more_rights_than_its_caller() -> None:
    hub = hub_for(Principal("bob", permissions=("web_read",)), audit="store")
    add(hub, "skill:social", ["skill_invoke"], does=need_inside)
    add(hub, "skill:reader", ["web_read"])
    add(hub, "skill:web_browse", (), owner="core")
    add(hub, "plain", (), owner=None)
    async with browsing(hub) as web:
        for whom in ("skill:reader", "skill:web_browse", "plain"):
            assert await says(web, BOB, "skill:social", whom=whom) == "token does not grant web_read", whom


@asynchronous
async def test_a_denied_nested_call_raises_an_error_that_the_caller_can_handle() -> None:
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
async def test_a_denial_names_its_rule_to_the_code_of_the_hub_and_not_to_clients() -> None:
    rules = [
        Rule(name="offline", type="permission_override", config={"permission": "web_read"}),
        Rule(name="quiet", type="allow_list", config={"allow": ["ask"]}, capabilities=("ask", "denied")),
    ]
    hub = hub_for(Principal("bob", permissions=("web_read",)), policies=rules)
    add(hub, "denied", owner=None)
    add(hub, "closed", ["deploy"], owner=None)
    caught: dict[str, PolicyDenied] = {}

    @hub.tool
    async def ask(what: str, ctx: Context) -> str:
        """Try something that is denied."""
        try:
            if what in ("web_read", "deploy"):
                ctx.require(what)
            await ctx.invoke(what)
        except (ToolError, PolicyDenied) as error:
            caught[what] = error if isinstance(error, PolicyDenied) else error.__cause__  # type: ignore[assignment]
            raise
        return "allowed"

    async with browsing(hub) as web:
        shown = [await says(web, BOB, "ask", what=what) for what in ("web_read", "deploy", "denied", "closed")]
    assert {what: (error.rule_type, error.rule) for what, error in caught.items()} == {
        "web_read": ("permission_override", "offline"),
        "deploy": ("permissions", "permissions"),
        "denied": ("allow_list", "quiet"),
        "closed": ("permissions", "permissions"),
    }
    assert shown == [
        "-32000 permission override: web_read is denied",
        "-32000 permission 'deploy' is not granted to bob",
        "allow list: 'denied' is not on it",
        "permission 'deploy' is not granted to bob",
    ]
