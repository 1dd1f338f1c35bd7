"""Unchanged workers of the iii SDK that are connected to different replicas."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.iii_peers import Failed, peer
from tests.nats import nats_url as nats_url
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.workers.replicas import replicas, run, until
from tests.workers.replicas import settings as settings
from tests.workers.wire import address
from waypost.settings import Settings

pytestmark = pytest.mark.timeout(120)


def test_workers_of_two_replicas_work_as_at_one_hub(postgres_url: str, settings: Settings, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            replicas(postgres_url, settings) as (a, b),
            peer("python", address(a.hub), tmp_path, {"worker_name": "one"}) as one,
            peer("python", address(b.hub), tmp_path, {"worker_name": "two"}) as two,
        ):
            await one.offer("peer::echo")
            assert (await two.call_until_found("peer::echo", {"n": 1}))["echo"] == {"n": 1}
            called = await b.client.call_tool("peer__echo", {"n": 2})
            assert called["structuredContent"]["echo"] == {"n": 2}

            await one.offer("peer::bad", "fail")
            with pytest.raises(Failed, match="it went wrong"):
                await two.call_until_found("peer::bad")

            await two.tell("type", id="tick")
            await one.bind("b1", "tick", "peer::echo", {"every": 1})
            assert (await two.heard("bound"))["config"] == {"every": 1}

            await one.offer("peer::read", "read")
            await b.offers("peer::echo", "peer::bad", "peer::read")
            assert await two.tell("stream", size=300_000) == {"bytes": 300_000}

            await one.bind("b2", "state", "peer::echo", {"scope": "s"})
            await until(lambda: any(binding.type == "state" for binding in b.hub.workers.triggers.bindings))
            await two.call("state::set", {"scope": "s", "key": "k", "value": 5})
            while (await one.heard("called", function="peer::echo"))["data"].get("new_value") != 5:
                pass

            await one.kill()
            await b.offers()
            with pytest.raises(Failed, match="function_not_found"):
                await two.call("peer::echo", {})

    run(scenario())
