"""Skills and prompts that a worker publishes, however late the registry comes, and each time it connects."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import AT_ONCE, failure, working
from tests.workers.wire import address, at_work, hub_for_workers
from waypost.capabilities.capability import Kind
from waypost.worker import Handshake, register_worker

QUICK = Handshake(first=0.01, longest=0.02, most=60.0)
GREETING = [{"name": "name", "description": "Who to greet", "required": True}]


async def greet(payload: dict[str, str]) -> dict[str, str]:
    return {"content": f"Greet {payload.get('name', 'world')} warmly."}


@asynchronous
async def test_a_skill_and_a_slash_command_reach_the_clients_of_the_hub() -> None:
    hub = hub_for_workers()
    async with at_work(hub) as client, working(hub) as worker:
        worker.register_function("demo::greet_prompt", greet)

        assert await worker.publish_skill("demo", "# demo\n\nA demo worker.\n")
        assert await worker.publish_prompt("greet", "Compose a greeting.", GREETING, function_id="demo::greet_prompt")

        assert (await client.read_resource("iii://demo"))["contents"][0]["text"] == "# demo\n\nA demo worker.\n"
        prompt = await client.get_prompt("greet", {"name": "Ada"})
        assert prompt["messages"][0]["content"]["text"] == "Greet Ada warmly."


@asynchronous
async def test_a_refusal_of_the_registry_is_raised_and_not_retried() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub, handshake=QUICK) as worker:
        assert "lowercase" in (await failure(worker.publish_skill("Demo", "# demo"))).message
        bad = worker.publish_prompt("Greet", "Compose.", function_id="demo::greet")
        assert "lowercase" in (await failure(bad)).message


@asynchronous
async def test_a_registry_that_comes_up_later_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers(workers={"port": 0, "registry": False})
    caplog.set_level(logging.INFO)
    kept: list[Any] = []
    async with at_work(hub), working(hub, handshake=QUICK) as worker:
        publishing = worker.publish_skill("demo", "# one")
        await until(lambda: "not published yet" in caplog.text)
        async with working(hub, "registry") as registry:
            registry.register_function("skills::register", kept.append)
            assert await publishing
    assert kept == [{"id": "demo", "skill": "# one"}]


@asynchronous
async def test_a_registry_that_never_comes_is_given_up_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    hub = hub_for_workers(workers={"port": 0, "registry": False})
    handshake = Handshake(first=0.01, longest=0.02, most=0.1)
    async with at_work(hub), working(hub, handshake=handshake) as worker:
        assert not await worker.publish_skill("demo", "# one")
    assert "the skill demo is not published, and it is given up" in caplog.text


@asynchronous
async def test_everything_is_published_again_after_a_reconnection() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        worker = register_worker(address(hub), name="one", reconnecting=AT_ONCE, handshake=QUICK)
        await worker.publish_skill("demo", "# one")
        await worker.publish_skill("demo", "# two")
        await worker.publish_prompt("greet", "Compose a greeting.", GREETING, function_id="demo::greet_prompt")
        port = int(address(hub).rpartition(":")[2])
    other = hub_for_workers(workers={"port": port})
    async with at_work(other) as client:
        await until(lambda: "iii://demo" in other.registry[Kind.RESOURCE])
        await until(lambda: "greet" in other.registry[Kind.PROMPT])
        assert (await client.read_resource("iii://demo"))["contents"][0]["text"] == "# two"
        await worker.shutdown()


@asynchronous
async def test_a_text_that_is_published_while_an_older_one_waits_takes_its_place() -> None:
    hub = hub_for_workers(workers={"port": 0, "registry": False})
    kept: list[Any] = []
    async with at_work(hub), working(hub, handshake=QUICK) as worker:
        older = worker.publish_skill("demo", "# one")
        newer = worker.publish_skill("demo", "# two")
        worker.register_function("skills::register", kept.append)
        assert await older
        assert await newer
    assert kept[-1] == {"id": "demo", "skill": "# two"}
