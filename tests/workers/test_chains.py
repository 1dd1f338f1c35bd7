"""A worker acts for the caller of the call that it answers, with fewer rights and only so deep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import settled, working
from tests.worker.sdk import sdk as sdk_worker
from tests.workers.wire import Json, Wire, address, at_work, hub_for_workers, wired
from waypost import Context, Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.capabilities.results import Result
from waypost.errors import PolicyDenied
from waypost.policy.rules import Rule
from waypost.worker import VOID, enqueue

ALICE = Principal("alice", ("agent",), ("pay",), ("write",))
DENIED = [
    Rule(name="alice", type="allow_list", config={"allow": ["ask__*", "middle__*"]}, principals=("alice",)),
    Rule(name="agents", type="allow_list", config={"allow": ["ask__*", "middle__*"]}, roles=("agent",)),
    Rule(
        name="no-shell",
        type="permission_override",
        config={"permission": "*"},
        roles=("agent",),
        capabilities=("*shell*",),
    ),
]


def hub_with_tools(**options: Any) -> tuple[Hub, list[Any]]:
    """A hub with a tool, and the callers of that."""
    hub, seen = hub_for_workers(**options), []

    @hub.tool()
    async def shell(ctx: Context) -> str:
        """Run a command."""
        seen.append((ctx.principal, ctx.caller.chain))
        return "done"

    return hub, seen


async def call(hub: Hub, name: str, principal: Principal = ALICE) -> Result:
    """Call a tool as a principal."""
    caller = DetachedCaller(principal, FROM_OUTSIDE)
    return await hub.runtime.core.pipeline.call(name, {}, caller)


async def offer_relay(wire: Wire, name: str = "ask") -> None:
    """Offer `ask::do`."""
    await wire.offer(f"{name}::do", name=name)


async def act_inside(hub: Hub, wire: Wire, function: str = "shell", **more: Any) -> Json:
    """The result of a call that a worker makes while it answers alice."""
    asking = asyncio.ensure_future(call(hub, "ask__do"))
    received = await wire.next("invokefunction", function_id="ask::do")
    given = {"baggage": received["baggage"], **more}
    ended = await wire.call(function, {}, **given)
    await wire.answer(received, {})
    await asking
    return ended


@pytest.mark.parametrize("rule", DENIED, ids=lambda rule: rule.name)
def test_a_tool_denied_to_a_caller_is_denied_to_the_worker_that_answers_it(rule: Rule) -> None:
    @asynchronous
    async def scenario() -> None:
        hub, seen = hub_with_tools(policies=[rule])
        async with at_work(hub), wired(hub) as wire:
            await offer_relay(wire)
            assert (await act_inside(hub, wire))["error"]["code"] == "FORBIDDEN"
            assert await wire.result("shell", {}) == "done"  # on its own behalf it may
            assert seen[0][0].id == "worker:ask"

    scenario()


@asynchronous
async def test_a_restriction_of_clients_does_not_hold_for_a_worker_that_answers_one() -> None:
    rule = Rule(name="no-shell", type="mcp_restriction", config={"tool_pattern": "shell"}, roles=("agent",))
    hub, seen = hub_with_tools(policies=[rule])
    async with at_work(hub), wired(hub) as wire:
        await offer_relay(wire)
        with pytest.raises(PolicyDenied):
            await call(hub, "shell")
        assert "error" not in await act_inside(hub, wire)
        assert len(seen) == 1


@asynchronous
async def test_a_tool_denied_to_a_worker_is_denied_also_when_it_acts_for_a_caller() -> None:
    rule = Rule(name="ask", type="allow_list", config={"allow": ["ask__*"]}, principals=("worker:ask",))
    hub, _ = hub_with_tools(policies=[rule])
    async with at_work(hub), wired(hub) as wire:
        await offer_relay(wire)
        assert (await call(hub, "shell")).text == "done"
        assert (await act_inside(hub, wire))["error"]["code"] == "FORBIDDEN"


@asynchronous
async def test_a_worker_has_the_name_of_its_caller_but_not_its_rights() -> None:
    hub, seen = hub_with_tools()

    @hub.tool(permissions=["pay"])
    def pay() -> str:
        """Pay."""
        return "paid"

    @hub.tool(scopes=["write"])
    def write() -> str:
        """Write."""
        return "written"

    async with at_work(hub), wired(hub) as wire:
        await offer_relay(wire)
        assert (await act_inside(hub, wire))["result"] == "done"
        principal, chain = seen[0]
        assert principal == Principal("alice", ("worker",))
        assert (chain.caller, chain.type, chain.depth, chain.hops) == ("worker:ask", "worker", 1, 1)
        assert [one.id for one in chain.behind] == ["alice", "worker:ask"]
        assert (await call(hub, "pay")).text == "paid"
        assert (await act_inside(hub, wire, "pay"))["error"]["code"] == "FORBIDDEN"
        assert (await call(hub, "write")).text == "written"
        assert (await act_inside(hub, wire, "write"))["error"]["code"] == "FORBIDDEN"


@asynchronous
async def test_the_caller_of_a_call_is_known_by_its_id_too_and_after_its_answer() -> None:
    hub, seen = hub_with_tools()
    async with at_work(hub), wired(hub) as wire, wired(hub) as other:
        await wire.send("registerfunction", id="ask::do")
        await wire.introduce("ask", features=["observe.v1"])
        await act_inside(hub, wire)
        asking = asyncio.ensure_future(call(hub, "ask__do"))
        received = await wire.next("invokefunction", function_id="ask::do")
        by_id = {"caller": {"function_id": "ask::do", "invocation_id": received["invocation_id"]}}
        await wire.result("shell", {}, **by_id)
        await wire.answer(received, {})
        await asking
        await wire.result("shell", {}, **by_id)
        await wire.result("shell", {}, baggage=f"k=v, {received['baggage']};p=1")
        assert [principal.id for principal, _ in seen] == ["alice"] * 4
        # Another worker cannot act in a call that it never received.
        await other.introduce("other")
        await other.result("shell", {}, baggage=received["baggage"])
        assert seen[-1][0].id == "worker:other"


@asynchronous
async def test_calls_without_an_answer_and_calls_of_a_queue_run_for_the_caller() -> None:
    hub, seen = hub_with_tools(policies=DENIED)
    async with at_work(hub), working(hub, "ask") as worker, wired(hub) as wire:
        done: list[str] = []

        @worker.register_function("ask::void")
        async def void() -> None:
            await worker.trigger("shell", {}, action=VOID)
            await worker.trigger("middle::note", {}, action=VOID)

        @worker.register_function("ask::queue")
        async def queue() -> None:
            await worker.trigger("shell", {}, action=enqueue("q"))
            await worker.trigger("middle::note", {}, action=enqueue("q"))

        await settled(worker)
        await wire.offer("middle::note", name="middle")
        for name in ("ask__void", "ask__queue"):
            await call(hub, name)
            noted = await wire.next("invokefunction", function_id="middle::note")
            refused = await wire.call("shell", {}, baggage=noted["baggage"])
            assert refused["error"]["code"] == "FORBIDDEN"
            if "invocation_id" in noted:
                await wire.answer(noted, {})
            done.append(name)
        assert done and not seen


@asynchronous
async def test_rights_go_on_through_several_workers_and_a_tool_between_them() -> None:
    hub, seen = hub_with_tools(
        policies=[Rule(name="b", type="allow_list", config={"allow": ["[!s]*"]}, principals=("worker:one",))]
    )

    @hub.tool()
    async def between(ctx: Context) -> str:
        """Call the second worker."""
        return (await ctx.invoke("two__do")).text

    async with at_work(hub), working(hub, "one") as one, working(hub, "two") as two:
        one.register_function("one::do", lambda: one.trigger("between", {}).result())
        two.register_function("two::do", lambda: two.trigger("shell", {}).result())
        await settled(one)
        await settled(two)
        assert (await call(hub, "two__do")).text == "done"
        assert [principal.id for principal, _ in seen] == ["alice"]
        assert (await call(hub, "one__do")).text == "allow list: 'shell' is not on it"


@asynchronous
async def test_a_chain_through_workers_ends_at_the_limit_with_a_sentence() -> None:
    hub, _ = hub_with_tools(workers={"port": 0, "max_depth": 5})
    calls = 0
    async with at_work(hub), working(hub, "loop") as worker:

        @worker.register_function("loop::again")
        async def again() -> Any:
            nonlocal calls
            calls += 1
            return await worker.trigger("loop::again", {})

        await settled(worker)
        result = await call(hub, "loop__again")
        assert result.is_error
        assert "through 5 workers already, and workers.maxDepth is 5" in result.text
        assert calls == 6


@asynchronous
async def test_the_depth_of_nested_calls_is_not_reset_by_a_worker() -> None:
    hub, _ = hub_with_tools()

    @hub.tool()
    async def down(ctx: Context) -> str:
        """Go through a worker."""
        result = await ctx.invoke("deep__er")
        return f"{ctx.caller.chain.depth} {result.text}"

    async with at_work(hub), working(hub, "deep") as worker:
        worker.register_function("deep::er", lambda: worker.trigger("down", {}).result())
        await settled(worker)
        result = await call(hub, "down")
        assert "chain depth 4 exceeds maximum 3" in result.text


@asynchronous
async def test_a_worker_on_the_sdk_of_pypi_acts_for_its_caller() -> None:
    hub, seen = hub_with_tools(policies=DENIED)
    async with at_work(hub), sdk_worker(address(hub), "ask") as sdk:

        async def do(_: Any) -> Any:
            return await sdk.trigger("shell")

        def plainly(_: Any) -> Any:
            return sdk.worker.trigger({"function_id": "shell", "payload": {}})

        await sdk.offer("ask::do", do)
        await sdk.offer("ask::plain", plainly)
        for name in ("ask__do", "ask__plain"):
            result = await call(hub, name)
            assert result.is_error
            assert "allow list: 'shell'" in result.text
        assert not seen
        assert await sdk.trigger("shell") == "done"
        await until(lambda: [principal.id for principal, _ in seen] == ["worker:ask"])
