"""`proxy_default`: one capability, used through a workflow of its own."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from tests.contract.conftest import asynchronous
from tests.gateway.conftest import MALLORY, agent, eras, office
from tests.protocol.conftest import until
from tests.workflows.test_unknown_outcomes import gone
from waypost import Hub, ToolError
from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.capabilities.principals import ANONYMOUS
from waypost.policy import Rule
from waypost.stores.instances import Reservation
from waypost.workflows.instance import FOREVER, PendingMove
from waypost.workflows.resources import RunFilter, Runs


def rule(**more: Any) -> Rule:
    return msgspec.convert({"name": "r", **more}, Rule)


async def instances(hub: Hub) -> int:
    return int((await hub.store.counts())["instances"])


@eras
@asynchronous
async def test_a_start_is_narrowed_to_one_capability_that_stays_ready(version: str) -> None:
    async with agent(office(), version) as a:
        ready = await a.start(capability="mail.send")
        assert (ready["definitionId"], ready["state"], ready["version"]) == ("proxy_default", "ready", 1)
        (link,) = ready["links"]
        assert (link["method"], link["title"], link["args"]["transition"]) == (
            "workflow.submit",
            "Send a mail",
            "mail.send",
        )
        assert link["inputSchema"]["required"] == ["to"]

        sent = await a.follow(link, arguments={"to": "ann"})
        assert (sent["state"], sent["version"]) == ("ready", 2)
        assert sent["context"]["lastResult"] == {"to": "ann", "text": ""}
        again = await a.follow(sent["links"][0], arguments={"to": "bob"})
        assert again["context"]["lastResult"]["to"] == "bob"
        assert "terminal" not in again


@eras
@asynchronous
async def test_arguments_run_the_call_at_once(version: str) -> None:
    async with agent(office(), version) as a:
        sent = await a.start(capability="mail.send", arguments={"to": "ann", "text": "hi"})
        assert (sent["state"], sent["version"]) == ("ready", 2)
        assert sent["context"]["lastResult"] == {"to": "ann", "text": "hi"}
        assert (await a.start(capability="skill:count", arguments={}))["context"]["lastResult"] == 0


@pytest.mark.parametrize("definition", [{}, {"definitionId": ""}, {"definitionId": "proxy_default"}])
@asynchronous
async def test_a_start_without_a_definition_uses_proxy_default(definition: dict[str, str]) -> None:
    async with agent(office()) as a:
        ready = await a.call("workflow.start", **definition, input={"capability": "skill:count"})
        assert (ready["definitionId"], ready["state"]) == ("proxy_default", "ready")


@pytest.mark.parametrize("arguments", [{}, {"to": 3}, {"to": None}, "to ann", [1]])
@asynchronous
async def test_invalid_arguments_are_refused_without_creating_an_instance(arguments: Any) -> None:
    async with agent(office()) as a:
        refused = await a.start(capability="mail.send", arguments=arguments)
        assert refused["error"]["code"] == "INPUT_SCHEMA_VIOLATION"
        assert "workflowId" not in refused
        takes, search = refused["links"]
        assert (await a.follow(takes))["links"][0]["input_schema"]["required"] == ["to"]
        assert (await a.follow(search))["results"]
        assert await instances(a.hub) == 0


@asynchronous
async def test_arguments_of_a_later_call_are_checked_too() -> None:
    async with agent(office()) as a:
        ready = await a.start(capability="mail.send")
        refused = await a.follow(ready["links"][0], arguments={"to": 3})
        assert (refused["error"]["code"], refused["version"]) == ("INPUT_SCHEMA_VIOLATION", 1)


@pytest.mark.parametrize("given", [{}, {"capability": ""}, {"capability": None}, {"capability": ["mail.send"]}])
@asynchronous
async def test_a_start_without_a_capability_is_refused(given: dict[str, Any]) -> None:
    async with agent(office()) as a:
        refused = await a.start(**given)
        assert refused["error"]["code"] == "INPUT_SCHEMA_VIOLATION"
        assert await instances(a.hub) == 0


@pytest.mark.parametrize("name", ["nothing", "mail", "prompt:greet", "docs://guide", *sorted(GATEWAY_TOOLS)])
@asynchronous
async def test_an_unknown_capability_is_answered_with_a_search_link(name: str) -> None:
    async with agent(office()) as a:
        refused = await a.start(capability=name, arguments={})
        assert refused["error"]["code"] == "UNKNOWN_ID"
        assert refused["links"][-1] == {"rel": "search", "method": "gateway.search", "args": {"query": name}}
        assert await instances(a.hub) == 0


@asynchronous
async def test_a_denied_capability_is_refused_before_its_arguments_are_checked() -> None:
    denied = rule(type="mcp_restriction", config={"tool_pattern": "mail"}, principals=["mallory"])
    async with agent(office(policies=[denied])) as a:
        for given in ({}, {"arguments": {"to": "ann"}}, {"arguments": {"to": 3}}):
            refused = await a.start(MALLORY, capability="mail.send", **given)
            assert refused["error"]["code"] == "POLICY_DENIED"
        assert await instances(a.hub) == 0
        assert "error" not in await a.start(capability="mail.send", arguments={"to": "ann"})


@asynchronous
async def test_a_rule_added_after_the_start_applies_to_the_next_call() -> None:
    async with agent(office()) as a:
        ready = await a.start(capability="mail.send")
        a.hub.guard.policy.replace([rule(type="mcp_restriction", config={"tool_pattern": "mail"}, callers=["mcp"])])
        refused = await a.follow(ready["links"][0], arguments={"to": "ann"})
        assert (refused["error"]["code"], refused["version"]) == ("EXECUTOR_FAILED", 1)
        assert (await a.start(capability="mail.send"))["error"]["code"] == "POLICY_DENIED"


@asynchronous
async def test_a_missing_scope_or_permission_is_a_denial() -> None:
    hub = office()
    hub.tool(name="vault.open", permissions=["vault"])(lambda: "gold")
    hub.tool(name="vault.close", scopes=["vault"])(lambda: "shut")
    async with agent(hub) as a:
        for name in ("vault.open", "vault.close"):
            assert (await a.start(MALLORY, capability=name, arguments={}))["error"]["code"] == "POLICY_DENIED"
        keeper = msgspec.structs.replace(MALLORY, scopes=("vault",), permissions=("vault",))
        for name in ("vault.open", "vault.close"):
            assert "error" not in await a.start(keeper, capability=name, arguments={})
            assert "error" not in await a.start(keeper, capability=name)
        assert await instances(hub) == 2


@pytest.mark.parametrize("callers", [[], ["mcp"]])
@asynchronous
async def test_a_call_counts_once_against_a_limit(callers: list[str]) -> None:
    limit = rule(
        callers=callers,
        type="rate_limit",
        config={"max_calls": 3, "window_seconds": 3600, "permission": "execute"},
        capabilities=["mail.*"],
    )
    async with agent(office(policies=[limit])) as a:
        for _ in range(3):
            assert "error" not in await a.start(MALLORY, capability="mail.send", arguments={"to": "ann"})
        refused = await a.start(MALLORY, capability="mail.send", arguments={"to": "ann"})
        assert refused["error"]["code"] == "POLICY_DENIED"


@asynchronous
async def test_a_failure_leaves_the_instance_ready_for_a_retry() -> None:
    async with agent(brittle()) as a:
        failed = await a.follow((await a.start(capability="brittle"))["links"][0], arguments={})
        assert failed["error"]["code"] == "EXECUTOR_FAILED"
        assert "It broke." in failed["error"]["message"]
        assert (failed["state"], failed["version"]) == ("ready", 1)
        assert {link["rel"] for link in failed["links"]} == {"self", "transition"}


def brittle() -> Hub:
    hub = office()

    @hub.tool(name="brittle")
    async def fail() -> str:
        """Fail."""
        raise ToolError("It broke.")

    return hub


@eras
@asynchronous
async def test_a_call_with_arguments_leaves_no_instance(version: str) -> None:
    hub = brittle()
    async with agent(hub, version) as a:
        sent = await a.start(capability="mail.send", arguments={"to": "ann"})
        (again,) = sent["links"]
        assert (again["rel"], again["args"]["input"]) == ("start", {"capability": "mail.send"})
        failed = await a.start(capability="brittle", arguments={})
        assert (failed["error"]["code"], failed["state"], failed["version"]) == ("EXECUTOR_FAILED", "ready", 1)
        assert [link["rel"] for link in failed["links"]] == ["start", "describe"]
        assert (await a.follow(failed["links"][0]))["error"]["code"] == "EXECUTOR_FAILED"
        unfit = await a.start(capability="mail.send", arguments={"to": 3})
        assert unfit["error"]["code"] == "INPUT_SCHEMA_VIOLATION"
        assert await instances(hub) == 0
        for one in (sent, failed):
            gone = await a.call("workflow.get", workflowId=one["workflowId"])
            assert gone["error"]["code"] == "UNKNOWN_WORKFLOW"
            assert gone["links"]
        assert await hub.store.check() == []


@asynchronous
async def test_a_call_with_arguments_is_stored_while_it_runs() -> None:
    hub = office()
    begun, end = asyncio.Event(), asyncio.Event()

    @hub.tool(name="slow")
    async def wait() -> str:
        """Wait."""
        begun.set()
        await end.wait()
        return "done"

    async with agent(hub) as a:
        call = asyncio.create_task(a.start(capability="slow", arguments={}))
        await begun.wait()
        (stored,) = await hub.store.instances.reserved()
        assert (stored.version, stored.state, stored.definition) == (1, "ready", "proxy_default")
        assert stored.reservation is not None
        assert stored.reservation.value["move"] == "slow"
        end.set()
        assert (await call)["context"]["lastResult"] == "done"
        assert await instances(hub) == 0


@pytest.mark.parametrize("read_only", [False, True])
@asynchronous
async def test_a_call_of_a_killed_hub_is_kept_with_its_outcome(read_only: bool) -> None:
    hub = office()
    charges: list[str] = []

    @hub.tool(name="charge", annotations={"readOnlyHint": read_only})
    def charge() -> str:
        charges.append("charged")
        return charges[-1]

    async with agent(hub) as a:
        ready = await a.start(capability="charge")
        held = PendingMove(kind="executing", move="charge", by=ANONYMOUS, key="k", holder=gone(), once=True)
        reservation = Reservation("token", time.time() + 30, held)
        assert await hub.store.instances.reserve(ready["workflowId"], 1, reservation)
        found = (await a.client.call_tool("workflow.get", {"workflowId": ready["workflowId"]}))["structuredContent"]
        assert found["status"] == ("executing" if read_only else "unknown_outcome")
        if not read_only:
            retry = next(link for link in found["links"] if link["args"]["resolve"] == "retry")
            await a.follow(retry)
        await until(lambda: charges and not hub.workflows.engine.runner.running)
        found = await a.call("workflow.get", workflowId=ready["workflowId"])
        assert (found["version"], found["context"]) == (2, {"lastResult": "charged"})


@asynchronous
async def test_single_calls_are_listed_only_when_asked_for_or_pending() -> None:
    hub = office()
    async with agent(hub) as a:
        release = await a.call("workflow.start", definitionId="release", input={})
        idle, pending = [await a.start(capability="mail.send") for _ in range(2)]
        shown = {pending["workflowId"], release["workflowId"]}
        held = PendingMove(kind="unknown", move="mail.send", by=ANONYMOUS, key="k")
        assert await hub.store.instances.reserve(pending["workflowId"], 1, Reservation("token", FOREVER, held))
        runs = Runs(hub.workflows.engine, hub.store)

        async def listed(**query: Any) -> set[str]:
            return {run["workflowId"] for run in (await runs.list(RunFilter(**query))).runs}

        assert await listed() == shown
        assert await listed(principal="anonymous") == shown
        assert await listed(definition="proxy_default") == {pending["workflowId"], idle["workflowId"]}
        assert len(await listed(everything=True)) == 3


@asynchronous
async def test_idle_single_calls_are_swept() -> None:
    hub = office()
    async with agent(hub) as a:
        for number in range(3):
            ready = await a.start(capability="mail.send")
            for _ in range(number):
                ready = await a.follow(ready["links"][0], arguments={"to": "ann"}, requestId=f"r{ready['version']}")
        release = await a.call("workflow.start", definitionId="release", input={})
        held = PendingMove(kind="unknown", move="mail.send", by=ANONYMOUS, key="k")
        pending = (await a.start(capability="mail.send"))["workflowId"]
        assert await hub.store.instances.reserve(pending, 1, Reservation("token", FOREVER, held))
        assert await hub.store.instances.sweep(time.time() - 60) == 0
        assert await hub.store.instances.sweep(time.time() + 60) == 3
        assert [one.id for one in await hub.store.instances.page()] == sorted([release["workflowId"], pending])
        assert await hub.store.check() == []


@asynchronous
async def test_an_instance_belongs_to_the_principal_that_started_it() -> None:
    async with agent(office()) as a:
        ready = await a.start(MALLORY, capability="skill:count")
        assert (await a.call("workflow.get", workflowId=ready["workflowId"]))["error"]["code"] == "UNKNOWN_WORKFLOW"


@asynchronous
async def test_an_instance_explains_its_transition() -> None:
    async with agent(office()) as a:
        ready = await a.start(capability="mail.send")
        answer = await a.call("workflow.explain", definitionId="proxy_default", workflowId=ready["workflowId"])
        assert answer["allowed"] == [{"transition": "mail.send", "allowed": True, "reasons": []}]


@asynchronous
async def test_an_instance_does_not_grow_with_its_calls() -> None:
    async with agent(office()) as a:
        answer = await a.start(capability="skill:count")
        for _ in range(5):
            answer = await a.follow(answer["links"][0], arguments={"text": "to be"})
        assert [(proof["by"], proof["version"]) for proof in answer["evidence"]] == [("anonymous", 6)]
        assert answer["context"] == {"lastResult": 2}


@asynchronous
async def test_a_replaced_tool_is_used_in_its_new_form() -> None:
    hub = office()
    async with agent(hub) as a:
        await a.start(capability="skill:count")
        hub.remove("skill:count")
        assert (await a.start(capability="skill:count"))["error"]["code"] == "UNKNOWN_ID"
        hub.tool(name="skill:count", title="Count letters")(lambda: 26)
        ready = await a.start(capability="skill:count")
        assert ready["links"][0]["title"] == "Count letters"
        assert (await a.follow(ready["links"][0]))["context"]["lastResult"] == 26


@asynchronous
async def test_an_instance_remains_when_its_capability_is_removed() -> None:
    hub = office()
    async with agent(hub) as a:
        ready = await a.start(capability="skill:count")
        hub.remove("skill:count")
        failed = await a.follow(ready["links"][0], arguments={})
        assert failed["error"]["code"] == "EXECUTOR_FAILED"
        assert (await a.call("workflow.get", workflowId=ready["workflowId"]))["version"] == 1


@asynchronous
async def test_concurrent_calls_get_their_own_instances() -> None:
    async with agent(office()) as a:
        answers = await asyncio.gather(
            *(a.start(capability="mail.send", arguments={"to": str(number)}) for number in range(50))
        )
        assert [one["context"]["lastResult"]["to"] for one in answers] == [str(number) for number in range(50)]
        assert len({one["workflowId"] for one in answers}) == 50


@asynchronous
async def test_both_forms_of_a_name_are_accepted() -> None:
    async with agent(office(names="portable")) as a:
        for name in ("skill:count", "skill__count"):
            assert (await a.start(capability=name, arguments={}))["context"]["lastResult"] == 0


@asynchronous
async def test_a_call_uses_the_slot_of_the_start_that_made_it() -> None:
    async with agent(office(max_running=2)) as a:
        answers = await asyncio.gather(
            *(a.start(capability="mail.send", arguments={"to": str(number)}) for number in range(20))
        )
        assert [one["context"]["lastResult"]["to"] for one in answers] == [str(number) for number in range(20)]
