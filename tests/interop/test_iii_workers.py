"""Workers of the iii project's own SDKs, in Python and in Node, without code for this hub."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.interop.iii_peers import LANGUAGES, Failed, Language, peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, at_work, hub_for_workers, rows

pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("language", LANGUAGES)]
VALUES = [None, 0, -1.5, "", 'grüße 🦊 \u0000 \\ "', True, [], {}, [[{"a": [None]}]], {"": {"ключ": "値"}}]


def other(language: Language) -> Language:
    """The language of the worker at the other end."""
    return "node" if language == "python" else "python"


def test_a_worker_connects_with_default_options_and_logs_no_errors(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), peer(language, address(hub), tmp_path) as worker:
            await worker.offer("peer::echo")
            await worker.call_until_found("peer::echo", 1)
            await until(lambda: len(hub.workers._port._sockets) == 2, "there is no socket for telemetry")
            (known,) = hub.workers.connected
            assert known.about["runtime"] == language
            await asyncio.sleep(0.5)
            assert await worker.send_command("logs") == []

    scenario()


def test_calls_across_languages_return_the_payload(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub),
            peer(language, address(hub), tmp_path) as owner,
            peer(other(language), address(hub), tmp_path) as caller,
        ):
            await owner.offer("peer::echo")
            await caller.call_until_found("peer::echo")
            for value in VALUES:
                answer = await caller.call("peer::echo", value, metadata={"tenant": "t", "n": [1]})
                assert answer == {"echo": value, "metadata": {"tenant": "t", "n": [1]}, "null": None, "size": 0}

    scenario()


def test_errors_reach_the_caller_with_their_codes(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub),
            peer(language, address(hub), tmp_path) as owner,
            peer(other(language), address(hub), tmp_path) as caller,
        ):
            await owner.offer("peer::fail", "fail")
            with pytest.raises(Failed, match=r"invocation_failed: .*it went wrong"):
                await caller.call_until_found("peer::fail")
            with pytest.raises(Failed, match=r"function_not_found: Function no::such not found in namespace default\."):
                await caller.call("no::such", {})
            await owner.send_command("unfunction", id="peer::fail")
            with pytest.raises(Failed, match="function_not_found"):
                while True:
                    await _failing(caller.call("peer::fail"))

    async def _failing(call: object) -> None:
        try:
            await call  # type: ignore[misc]
        except Failed as failed:
            if failed.code != "invocation_failed":
                raise

    scenario()


def test_void_and_queued_calls_arrive(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), peer(language, address(hub), tmp_path) as worker:
            await worker.offer("peer::echo")
            await worker.call_until_found("peer::echo", "first")
            assert await worker.call("no::such", {}, action="void") is None
            assert await worker.call("peer::echo", "void", action="void", metadata={"m": 1}) is None
            assert (await worker.wait_for_event("called", data="void"))["metadata"] == {"m": 1}
            receipt = await worker.call("peer::echo", "later", action="enqueue", metadata={"m": 2})
            assert len(receipt["messageReceiptId"]) == 36
            assert (await worker.wait_for_event("called", data="later"))["metadata"] == {"m": 2}
            assert await worker.logged_errors() == []

    scenario()


def test_a_timed_out_or_stopped_call_leaves_nothing_behind(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub):
            async with peer(language, address(hub), tmp_path) as caller:
                async with peer(other(language), address(hub), tmp_path) as owner:
                    await owner.offer("peer::hang", "hang")
                    await until(lambda: "peer::hang" in {function.id for function in hub.workers.functions})
                    with pytest.raises(Failed, match="TIMEOUT"):
                        await caller.call("peer::hang", timeout_ms=200)
                    waiting = asyncio.create_task(caller.call("peer::hang"))
                    await owner.wait_for_event("called")
                    await owner.wait_for_event("called")
                    await owner.kill()
                    with pytest.raises(Failed, match="invocation_stopped"):
                        await waiting
                assert rows(hub)["unanswered"] == 0
                assert await caller.logged_errors() == []
            await until(lambda: set(rows(hub).values()) == {0})

    scenario()


@pytest.mark.parametrize("bound_first", [True, False])
def test_a_worker_provides_triggers_for_another(language: Language, bound_first: bool, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), peer(language, address(hub), tmp_path) as provider:
            async with peer(other(language), address(hub), tmp_path) as binder:
                await binder.offer("peer::echo")
                if bound_first:
                    await binder.bind("b", "tick", "peer::echo", {"every": 5})
                    await until(lambda: rows(hub)["bindings"] == 1)
                await provider.send_command("type", id="tick")
                if not bound_first:
                    await until(lambda: rows(hub)["kinds"] == 1)
                    await binder.bind("b", "tick", "peer::echo", {"every": 5})
                bound = await provider.wait_for_event("bound", function="peer::echo", config={"every": 5})
                await provider.call("peer::echo", "tick", action="void")
                await binder.wait_for_event("called", data="tick")
                await binder.send_command("unbind", id="b")
                assert (await provider.wait_for_event("unbound"))["id"] == bound["id"]
                await binder.bind("refused", "tick", "peer::echo", {"refuse": True})
                logs = await binder.send_command("wait_for_log", text="such a binding is refused")
                assert any("such a binding is refused" in line for line in logs)
                await binder.bind("c", "tick", "peer::echo", {})
                bound = await provider.wait_for_event("bound")
                await binder.kill()
            assert (await provider.wait_for_event("unbound"))["id"] == bound["id"]
            await until(lambda: rows(hub) | {"workers": 0, "kinds": 0, "tools": 0} == dict.fromkeys(rows(hub), 0))

    scenario()


def test_a_trigger_of_the_hub_calls_a_function_with_its_metadata(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), peer(language, address(hub), tmp_path) as worker:
            await worker.offer("peer::echo")
            await worker.bind("b", "state", "peer::echo", {"scope": "s"}, metadata={"from": "binding"})
            await until(lambda: rows(hub)["bindings"] == 1)
            changed = await worker.call("state::set", {"scope": "s", "key": "k", "value": {"n": 1}})
            assert changed == {"old_value": None, "new_value": {"n": 1}}
            called = await worker.wait_for_event("called")
            assert called["metadata"] == {"from": "binding"}
            assert called["data"] == {
                "type": "state",
                "event_type": "state:created",
                "scope": "s",
                "key": "k",
                "old_value": None,
                "new_value": {"n": 1},
            }

    scenario()


def test_bytes_go_through_a_channel_across_languages(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with (
            at_work(hub),
            peer(language, address(hub), tmp_path) as writer,
            peer(other(language), address(hub), tmp_path) as reader,
        ):
            await reader.offer("peer::read", "read")
            await until(lambda: rows(hub)["functions"] == 1)
            assert await writer.send_command("stream", size=200_000) == {"bytes": 200_000}
            await until(lambda: rows(hub)["channels"] == 0)

    scenario()


def test_a_token_is_sent_on_every_socket(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers(workers={"port": 0, "token": "s3cret"})
        async with at_work(hub):
            # This version of the Node SDK does not support III_TOKEN.
            where = f"{address(hub)}?token=s3cret" if language == "node" else address(hub)
            async with peer(language, where, tmp_path, III_TOKEN="s3cret") as worker:
                await worker.offer("peer::read", "read")
                await until(lambda: rows(hub)["functions"] == 1)
                assert await worker.send_command("stream", size=100_000) == {"bytes": 100_000}
                await until(lambda: len(hub.workers._port._sockets) == 2, "there is no socket for telemetry")
                assert await worker.logged_errors() == []

    scenario()


def test_functions_are_listed_without_those_of_the_hub(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), peer(language, address(hub), tmp_path) as worker:
            await worker.offer("peer::echo", description="Echoes")
            await worker.offer("peer::inside", metadata={"internal": True})
            await until(lambda: rows(hub)["functions"] == 2)
            listed = (await worker.call("engine::functions::list", {}))["functions"]
            names = [function["function_id"] for function in listed]
            assert "peer::echo" in names
            assert "peer::inside" not in names
            assert not any(name.startswith("engine::") for name in names)
            everything = await worker.call("engine::functions::list", {"include_internal": True})
            names = [function["function_id"] for function in everything["functions"]]
            assert {"peer::inside", "engine::functions::list", "engine::channels::create"} <= set(names)

    scenario()


def test_agents_call_a_workers_function_as_a_tool(language: Language, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub) as client, peer(language, address(hub), tmp_path) as worker:
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            await worker.offer("peer::echo", description="Echoes", request_format=schema)
            await worker.offer("peer::fail", "fail")
            await until(lambda: rows(hub)["tools"] == 2)
            (tool,) = [tool for tool in await client.list_tools() if tool["name"] == "peer__echo"]
            assert tool["description"] == "Echoes"
            assert tool["inputSchema"] == schema
            answer = await client.call_tool("peer__echo", {"n": 1})
            assert answer["structuredContent"]["echo"] == {"n": 1}
            assert "Invalid arguments" in (await client.call_tool("peer__echo", {"n": "x"})).text
            failed = await client.call_tool("peer__fail", {})
            assert failed.is_error
            assert "it went wrong" in failed.text

    scenario()


def test_large_payloads_are_sent_and_returned(language: Language, tmp_path: Path) -> None:
    size = 20 * 1024 * 1024

    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), peer(language, address(hub), tmp_path) as worker:
            await worker.offer("peer::size", "size")
            await until(lambda: rows(hub)["functions"] == 1)
            answer = await worker.call("peer::size", size=size)
            assert answer["length"] > size

    scenario()
