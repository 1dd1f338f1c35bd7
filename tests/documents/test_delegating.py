"""A hub without a registry of its own serves the skills and prompts of a worker that has one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.documents.test_standalone import registry, without_registry
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import settled, working
from tests.workers.replicas import replicas, run
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost import Hub, RemoteError
from waypost.capabilities.capability import Kind
from waypost.capabilities.registry import Change
from waypost.documents import delegation
from waypost.documents.delegation import Settings
from waypost.documents.documents import HUB
from waypost.policy import Rule
from waypost.settings import Settings as HubSettings
from waypost.settings import Workers
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25
from waypost.worker import Bound, InvocationFailed, Worker

LISTS = ("skills::resources-list", "skills::resources-templates", "prompts::mcp-list")


def listed(hub: Hub) -> set[str]:
    """The skills and prompts that clients can list."""
    return {row.id for kind in (Kind.RESOURCE, Kind.TEMPLATE, Kind.PROMPT) for row in hub.registry[kind]}


@asynccontextmanager
async def delegated(hub: Hub | None = None) -> AsyncIterator[tuple[Hub, TestClient, Worker]]:
    """A hub without a registry, its client, and a worker that has published a skill and a prompt."""
    hub = hub or without_registry()
    async with at_work(hub) as client, registry(hub), working(hub, "mailer") as worker:
        worker.register_function("mail::write", lambda given: f"Write to {given.get('to', 'all')}.")
        worker.register_function("mail::health", lambda: {"content": "# Fine"})
        await worker.publish_skill("mail", "# Mail\n\nSends it.")
        arguments = [{"name": "to", "description": "Whom", "required": True}]
        await worker.publish_prompt("send", "Write an email.", arguments, function_id="mail::write")
        await until(lambda: {"iii://mail", "send"} <= listed(hub))
        yield hub, client, worker


async def refusal(answer: Any) -> RemoteError:
    """The error of a request."""
    with pytest.raises(RemoteError) as caught:
        await answer
    return caught.value


@asynchronous
async def test_clients_get_the_lists_and_contents_of_the_worker() -> None:
    async with delegated() as (_, client, worker):
        outcome = {name: await worker.trigger(name) for name in LISTS}
        assert await client.list_resources() == outcome["skills::resources-list"]["resources"][::-1]
        templates = await client.list_resource_templates()
        assert sorted(templates, key=str) == sorted(
            outcome["skills::resources-templates"]["resourceTemplates"], key=str
        )
        assert await client.list_prompts() == outcome["prompts::mcp-list"]["prompts"]
        for uri in ("iii://mail", "iii://skills", "iii://fn/mail/health"):
            read = await worker.trigger("skills::resources-read", {"uri": uri})
            assert (await client.read_resource(uri))["contents"] == read["contents"]
        got = await client.get_prompt("send", {"to": "Ada"})
        said = await worker.trigger("prompts::mcp-get", {"name": "send", "arguments": {"to": "Ada"}})
        assert (got["description"], got["messages"]) == (said["description"], said["messages"])


@asynchronous
async def test_the_error_names_the_function_that_did_not_answer() -> None:
    # Long enough to store the prompt, and for the registry to answer before the hub gives it up.
    hub = hub_for_workers(workers={"port": 0, "registry": False, "state_timeout": 2.0})
    async with at_work(hub) as client, registry(hub, Settings(state_timeout_ms=1500)), wired(hub) as worker:
        await worker.offer("h::hang")
        prompt = {"name": "hang", "description": "Hangs.", "function_id": "h::hang"}
        await worker.result("prompts::register", prompt)
        await until(lambda: "hang" in listed(hub))
        refused = await refusal(client.get_prompt("hang"))
        assert "trigger h::hang: it did not answer within 1.5 s" in str(refused)


@asynchronous
async def test_an_unknown_skill_is_reported_with_the_message_of_the_worker() -> None:
    async with delegated() as (hub, client, worker):
        unknown = await refusal(client.read_resource("iii://mial"))
        assert str(unknown).startswith("Resource not found: iii://mial (Skill not found: mial; did you mean")
        failed = await refusal(client.read_resource("iii://fn/state/get"))
        assert "Resource not found" not in str(failed)
        await worker.trigger("prompts::unregister", {"name": "send"})
        await until(lambda: "send" not in listed(hub))
        assert "Unknown prompt: send" in str(await refusal(client.get_prompt("send")))


@asynchronous
async def test_changes_of_the_worker_reach_clients() -> None:
    hub = without_registry()
    try:
        async with (
            connect(hub, V2025_11_25) as client,
            registry(hub),
            working(hub, "mailer") as worker,
        ):
            await until(lambda: "iii://skills" in listed(hub))
            await client.subscribe("iii://mail")
            await client.subscribe("iii://skills")
            client.notifications.clear()
            await worker.publish_skill("mail", "# Mail")
            for uri in ("iii://mail", "iii://skills"):
                await client.assert_notification("resources/updated", uri=uri)
            await client.assert_notification("resources/list_changed")
            await worker.publish_prompt("send", "Write.", function_id="mail::write")
            await client.assert_notification("prompts/list_changed")
            await worker.trigger("skills::unregister", {"id": "mail"})
            await until(lambda: "iii://mail" not in listed(hub))
    finally:
        await hub.stop()


@asynchronous
async def test_lists_are_empty_without_a_registry_and_after_it_disconnects() -> None:
    hub = without_registry()
    async with at_work(hub) as client:
        assert (await client.list_prompts(), await client.list_resources()) == ([], [])
        async with registry(hub):
            await until(lambda: "iii://skills" in listed(hub))
        await until(lambda: not listed(hub))
        assert (await client.list_prompts(), await client.list_resources()) == ([], [])
    assert not listed(hub)


@asynchronous
async def test_a_registry_that_takes_over_is_listed_again() -> None:
    hub = without_registry()
    async with at_work(hub), working(hub, "second") as second:
        async with registry(hub) as first:
            await first.trigger("skills::register", {"id": "kept", "skill": "# Kept"})
            await until(lambda: "iii://kept" in listed(hub))
            second.register_function("skills::resources-list", lambda: {"resources": [{"uri": "x:1", "name": "one"}]})
            await settled(second)
            assert "x:1" not in listed(hub)
        await until(lambda: listed(hub) == {"x:1"})
        assert hub.registry.resource("x:1").owner == "worker:second"


@asynchronous
async def test_invalid_entries_are_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    hub = without_registry()
    async with at_work(hub) as client, working(hub) as worker:
        worker.register_function("prompts::mcp-list", lambda: {"prompts": [{"name": 5}, {"name": "fine"}]})
        worker.register_function("skills::resources-list", lambda: "nothing")
        worker.register_function("skills::resources-templates", lambda: {"resourceTemplates": None})
        worker.register_function("prompts::mcp-get", lambda: "not as it should be")
        await until(lambda: listed(hub) == {"fine"})
        assert "prompts::mcp-list lists something that is left out" in caplog.text
        assert (await client.get_prompt("fine"))["messages"][0]["content"]["text"] == "not as it should be"


@pytest.mark.parametrize(
    ("answer", "says"),
    [("text", "answered without contents"), ({"contents": [{"uri": 5}]}, "contents that cannot be used")],
)
def test_contents_that_cannot_be_used_are_an_error(answer: Any, says: str) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = without_registry()
        async with at_work(hub) as client, working(hub) as worker:
            worker.register_function("skills::resources-read", lambda: answer)
            worker.register_function("skills::resources-list", lambda: {"resources": [{"uri": "x:1", "name": "one"}]})
            await until(lambda: "x:1" in listed(hub))
            assert says in str(await refusal(client.read_resource("x:1")))

    scenario()


@asynchronous
async def test_a_registry_that_does_not_answer_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delegation, "_RETRY_DELAY_S", 0.01)
    hub = without_registry()
    async with at_work(hub), working(hub) as worker:
        times = 0

        def lists() -> Any:
            nonlocal times
            times += 1
            if times < 4:
                raise ValueError("not yet")
            return {"prompts": [{"name": "late"}]}

        worker.register_function("prompts::mcp-list", lists)
        await until(lambda: "late" in listed(hub))
        assert caplog.text.count("the skills and prompts of a worker cannot be listed: not yet") == 1


@asynchronous
async def test_a_burst_of_registrations_causes_at_most_one_change_each() -> None:
    async with delegated() as (hub, _, worker):
        seen: list[Change] = []
        hub.registry.subscribe(seen.append)
        for number in range(30):
            await worker.trigger("skills::register", {"id": f"s{number}", "skill": "# S"})
        await until(lambda: "iii://s29" in listed(hub))
        assert len(seen) <= 30


@asynchronous
async def test_rules_apply_to_the_uris_and_prompts_of_a_worker() -> None:
    rule = Rule(name="no-mail", type="mcp_restriction", config={"tool_pattern": "mail"}, hide=True)
    hub = hub_for_workers(workers={"port": 0, "registry": False}, policies=[rule])
    async with delegated(hub) as (_, client, _worker):
        assert [one["uri"] for one in await client.list_resources()] == ["iii://skills"]
        assert str(await refusal(client.read_resource("iii://mail"))) == "Resource not found: iii://mail"


@asynchronous
async def test_a_prompt_of_the_hub_takes_precedence() -> None:
    hub = without_registry()

    @hub.prompt
    def send() -> str:
        return "the hub's"

    async with at_work(hub) as client, registry(hub), working(hub) as worker:
        await worker.publish_prompt("send", "Write.", function_id="mail::write")
        await worker.publish_prompt("other", "Write.", function_id="mail::write")
        await until(lambda: "other" in listed(hub))
        assert (await client.get_prompt("send"))["messages"][0]["content"]["text"] == "the hub's"
        hub.remove("send", kind=Kind.PROMPT)
        assert hub.registry.prompt("send").owner == "worker:skills"


@asynchronous
async def test_skills_left_in_the_store_do_not_enable_the_registry_of_the_hub(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path / 'hub.db'}"
    before = hub_for_workers(store=store)
    async with at_work(before), working(before) as worker:
        await worker.publish_skill("old", "# Old")
    hub = hub_for_workers(store=store, workers={"port": 0, "registry": False})
    async with at_work(hub), registry(hub):
        await until(lambda: "iii://skills" in listed(hub))
        assert "iii://old" not in listed(hub)


@asynchronous
async def test_a_registry_that_refuses_change_triggers_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: Bound) -> None:
        raise InvocationFailed("Nobody is told anything.")

    hub = without_registry()
    async with at_work(hub), working(hub) as worker:
        worker.register_trigger_type("skills::on-change", on_bind=refuse)
        said = "changes of skills::on-change are not reported: Nobody is told anything."
        await until(lambda: said in caplog.text)


@asynchronous
async def test_the_hub_observes_a_registry_with_its_own_principal() -> None:
    hub = without_registry()
    async with at_work(hub), wired(hub) as wire:
        await wire.send("registerfunction", id="skills::changed", observe={"legacy_trigger_type": "skills::on-change"})
        await wire.offer("prompts::mcp-list")
        await wire.serve("prompts::mcp-list", {"prompts": []})
        called = await wire.ask("skills::changed", {"op": "register", "id": "mail"})
        await wire.serve("skills::changed", None)
        await wire.next("invocationresult", invocation_id=called)
        await wire.serve("prompts::mcp-list", {"prompts": [{"name": "heard"}]})
        await until(lambda: "heard" in listed(hub))
        (bound,) = [one for one in hub.workers.triggers.bindings if one.type == "skills::on-change"]
        assert (bound.maker.name, bound.maker.caller) == ("waypost", HUB)
        assert hub.workers.triggers.is_active(bound)
    assert not list(hub.workers.triggers.bindings)


def test_changes_of_a_registry_reach_the_other_replica(postgres_url: str) -> None:
    async def scenario() -> None:
        settings = HubSettings(workers=Workers(port=0, registry=False))
        async with replicas(postgres_url, settings) as (a, b), registry(a.hub), working(a.hub, "mailer") as worker:
            await worker.publish_skill("mail", "# Mail\n\nSends it.")
            await until(lambda: "iii://mail" in listed(a.hub) & listed(b.hub))
            await worker.publish_skill("post", "# Post\n\nSends it slowly.")
            await until(lambda: "iii://post" in listed(b.hub))
            read = await b.client.read_resource("iii://post")
            assert "Sends it slowly." in read["contents"][0]["text"]
            await worker.trigger("skills::unregister", {"id": "mail"})
            await until(lambda: "iii://mail" not in listed(b.hub))

    run(scenario())
