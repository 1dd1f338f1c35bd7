"""Functions outside the default namespace can be used by prompts of their worker, but not by sections."""

from __future__ import annotations

import pytest

from tests.documents.desk import desk
from tests.protocol.conftest import asynchronous
from tests.worker.engine import settled, working
from tests.workers.wire import at_work, hub_for_workers
from waypost import Hub, RemoteError
from waypost.policy import Rule
from waypost.testing import TestClient
from waypost.worker import Worker


async def offer(worker: Worker, function_id: str, answer: str) -> None:
    """Register a function of a worker."""
    worker.register_function(function_id, lambda: answer)
    await settled(worker)


async def publish(worker: Worker, name: str, function_id: str) -> None:
    """Publish a prompt of a worker."""
    await worker.publish_prompt(name, "Writes.", function_id=function_id)


async def written(client: TestClient, name: str) -> str:
    """The text of a prompt."""
    got = await client.get_prompt(name)
    return str(got["messages"][0]["content"]["text"])


async def refusal(client: TestClient, uri: str) -> str:
    """The error of reading a URI."""
    with pytest.raises(RemoteError) as caught:
        await client.read_resource(uri)
    return caught.value.message


@asynchronous
async def test_a_prompt_uses_the_function_of_its_own_namespace() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, working(hub, "a", namespace="teama") as a, working(hub, "b") as b:
        await offer(a, "mail::write", "team a")
        await publish(a, "send", "mail::write")
        assert await written(client, "send") == "team a"
        await offer(b, "mail::write", "everybody")
        assert await written(client, "send") == "team a"
        await publish(b, "other", "mail::write")
        assert await written(client, "other") == "everybody"
        assert (await a.trigger("prompts::mcp-get", {"name": "send"}))["messages"][0]["content"]["text"] == "team a"


@asynchronous
async def test_a_prompt_of_another_namespace_may_use_a_function_of_the_default_one() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, working(hub, "a", namespace="teama") as a, working(hub, "b") as b:
        await offer(b, "mail::write", "everybody")
        await publish(a, "send", "mail::write")
        assert await written(client, "send") == "everybody"


@asynchronous
async def test_the_namespace_of_a_prompt_is_stored() -> None:
    async with desk("state") as it:
        await it.content.prompts.register("send", "Writes.", "mail::write", namespace="teama")
        assert it.engine.state["prompts", "send"]["namespace"] == "teama"
        await it.prompt("plain")
        assert "namespace" not in it.engine.state["prompts", "plain"]


@asynchronous
async def test_the_error_about_a_section_names_the_namespace_that_has_the_function() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, working(hub, "a", namespace="teama") as a:
        await offer(a, "only::here", "# Here")
        outcome = await refusal(client, "iii://fn/only/here")
        assert "Function only::here not found in namespace default. The namespace teama has one." in outcome
        async with working(hub, "b", namespace="teamb") as b:
            await offer(b, "only::here", "# There")
            assert "The namespace" not in await refusal(client, "iii://fn/only/here")
        assert "The namespace" not in await refusal(client, "iii://fn/not/anywhere")


@asynchronous
async def test_the_namespace_of_a_hidden_function_is_not_named() -> None:
    rule = Rule(name="hidden", type="mcp_restriction", config={"tool_pattern": "only"}, hide=True)
    hub: Hub = hub_for_workers(policies=[rule])
    async with at_work(hub) as client, working(hub, "a", namespace="teama") as a:
        await offer(a, "only::here", "# Here")
        worker = await a.trigger("engine::workers::list")
        assert [one["namespace"] for one in worker["workers"]] == ["teama"]
        assert "teama" not in await refusal(client, "iii://fn/only/here")


@asynchronous
async def test_a_not_found_error_from_inside_a_function_is_passed_on_unchanged() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, working(hub, "a", namespace="teama") as a, working(hub, "b") as b:

        @b.register_function("mail::health")
        async def health() -> str:
            return str(await b.trigger("only::here"))

        await offer(a, "only::here", "# Here")
        await settled(b)
        outcome = await refusal(client, "iii://fn/mail/health")
        assert "only::here not found in namespace default" in outcome
        assert "teama" not in outcome
