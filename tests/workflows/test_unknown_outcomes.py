"""After a crash: what may be run again is, and what nobody knows about is left to whoever looks after it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.protocol.conftest import asynchronous, until
from tests.workflows.conftest import STRANGER, WORK, Bench, Json, Told, bench, flow
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE
from waypost.stores.instances import Reservation
from waypost.workflows.definitions import digest
from waypost.workflows.instance import PendingMove, identify_process, replica_of
from waypost.workflows.runner import LEASE_S

DONE: Json = {"terminal": True}
AGAIN: Json = {**WORK, "idempotent": True}
HARMLESS: Json = {"kind": "parallel", "branches": [AGAIN, {"kind": "noop"}]}
KEY = "key-of-the-first-try"


def definition(executor: Json = WORK) -> Json:
    states = {
        "a": {
            "transitions": {
                "go": {"target": "b", "executor": executor, "output": {"n": "$.output.value"}},
                "other": {"target": "done"},
            }
        },
        "b": {"transitions": {"on": {"target": "done", "actor": "deterministic", "output": {"hopped": True}}}},
        "done": DONE,
    }
    return flow(states)


def gone() -> str:
    """The name of a process of this machine that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine, _, began, token = identify_process().split("|")
    return f"{machine}|{ended.pid}|{began}|{token}"


async def crash(b: Bench, told: Told, *, move: str = "go", until: float | None = None, **more: Any) -> None:
    """Leave a move as a process leaves it that was killed while it ran."""
    held = PendingMove(kind="executing", move=move, by=ANONYMOUS, key=KEY, **({"arguments": {"value": 4}} | more))
    if not held.holder:
        held = msgspec.structs.replace(held, holder=gone())
    reservation = Reservation("token", time.time() + 30 if until is None else until, held)
    assert await b.hub.store.instances.reserve(told.id, told["version"], reservation)


async def unknown(b: Bench) -> Told:
    """An instance of which nobody knows how far it came."""
    told = await b.start()
    await crash(b, told)
    return await b.get(told)


@asynchronous
async def test_it_is_told_with_links_that_resolve_it(store: str) -> None:
    async with bench(definition(), store=store) as b:
        told = await unknown(b)
        assert (told.refused, told["status"], told.code) == (False, "unknown_outcome", "UNKNOWN_OUTCOME")
        assert told.at == ("a", 1, {})
        assert told["error"]["attemptedTransition"] == "go"
        assert told["error"]["idempotencyKey"] == KEY
        resolutions = [link["args"]["resolve"] for link in told["links"]]
        assert resolutions == ["retry", "succeeded", "failed"]
        assert {link["args"]["transition"] for link in told["links"]} == {"go"}
        assert b.work.calls == []


@asynchronous
async def test_nothing_else_is_done_before() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        for transition in ("go", "other", "$resume"):
            refused = await b.submit(told, transition)
            assert (refused.refused, refused.code) == (True, "UNKNOWN_OUTCOME")
            assert "self" in refused.rels
            assert "resolve" in refused.rels
        assert b.work.calls == []


def way(told: Told, resolution: str) -> Json:
    """The arguments of the link to a resolution."""
    found: Json = next(link["args"] for link in told["links"] if link["args"].get("resolve") == resolution)
    return found


@asynchronous
async def test_it_can_be_run_again_with_the_same_key_and_arguments(store: str) -> None:
    async with bench(definition(), store=store) as b:
        told = await unknown(b)
        ended = await b.call("workflow.submit", **way(told, "retry"))
        assert ended.at == ("done", 3, {"n": 4, "hopped": True})
        assert (b.work.calls, b.work.keys) == ([4], [KEY])
        assert (await b.history(told))[1]["key"] == KEY


@asynchronous
async def test_it_can_be_told_to_have_been_done() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        ended = await b.call("workflow.submit", **way(told, "succeeded"), output={"value": 9})
        assert ended.at == ("done", 3, {"n": 9, "hopped": True})
        assert b.work.calls == []
        assert "anonymous" in str((await b.history(told))[1]["executor"])


@asynchronous
async def test_it_can_be_told_to_have_failed() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        stays = await b.call("workflow.submit", **way(told, "failed"))
        assert (stays.refused, stays.at, stays["status"]) == (False, ("a", 1, {}), "waiting_for_action")
        assert b.work.calls == []
        assert (await b.notes(told))[-1]["outcome"] == "failed"
        assert (await b.submit(told, "go", {"value": 1})).at == ("done", 3, {"n": 1, "hopped": True})
        assert b.work.keys[0] != KEY


@asynchronous
async def test_a_retry_that_fails_leaves_it_where_it_was() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        b.work.fails = 1
        failed = await b.call("workflow.submit", **way(told, "retry"))
        assert (failed.code, failed["state"], failed["version"]) == ("EXECUTOR_FAILED", "a", 1)


@asynchronous
async def test_it_is_resolved_once_and_for_its_version() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        late = {**way(told, "succeeded"), "expectedVersion": 9}
        assert (await b.call("workflow.submit", **late)).code == "STALE_WORKFLOW_VERSION"
        answers = await asyncio.gather(*(b.call("workflow.submit", **way(told, "retry")) for _ in range(5)))
        assert len(b.work.calls) == 1
        assert sum(not answer.refused for answer in answers) == 1
        assert (await b.call("workflow.submit", **way(told, "failed"))).refused


@asynchronous
async def test_strangers_resolve_nothing() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        assert (await b.call("workflow.submit", STRANGER, **way(told, "succeeded"))).code == "UNKNOWN_WORKFLOW"
        assert (await b.get(told))["status"] == "unknown_outcome"


@asynchronous
async def test_there_is_nothing_to_resolve_where_nothing_is_unknown() -> None:
    async with bench(definition()) as b:
        told = await b.start()
        refused = await b.submit(told, "go", resolve="succeeded")
        assert (refused.code, (await b.get(told)).at) == ("INVALID_TRANSITION", told.at)


@pytest.mark.parametrize("executor", [AGAIN, HARMLESS])
@pytest.mark.parametrize("who", ["reader", "watch"])
@asynchronous
async def test_what_may_be_run_again_is_with_the_same_key(who: str, executor: Json, store: str) -> None:
    async with bench(definition(executor), store=store) as b:
        told = await b.start()
        await crash(b, told)
        if who == "watch":
            await b.hub.workflows.watch.recover()
        else:
            assert (await b.get(told))["status"] == "executing"
        seen = await b.once(told, lambda seen: seen["state"] == "done")
        assert seen["version"] == 3
        assert (b.work.calls, [key.startswith(KEY) for key in b.work.keys]) == ([4], [True])


@asynchronous
async def test_a_hub_that_starts_finds_what_an_earlier_one_left(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/left.db"
    async with bench(definition(AGAIN), store=place) as b:
        told = await b.start()
        await crash(b, told)
        await b.hub.workflows.watch.stop()
    async with bench(definition(AGAIN), store=place) as b:
        await until(lambda: b.work.calls, "nobody ran it again")
        assert b.work.keys == [KEY]


@asynchronous
async def test_what_a_process_runs_that_is_there_is_left_to_it() -> None:
    async with bench(definition(AGAIN)) as b:
        told = await b.start()
        await crash(b, told, holder=identify_process())
        await b.hub.workflows.watch.recover()
        assert (await b.get(told))["status"] == "executing"
        assert b.work.calls == []


@asynchronous
async def test_a_process_of_another_machine_has_until_its_time_is_over() -> None:
    async with bench(definition()) as b:
        told = await b.start()
        await crash(b, told, holder="elsewhere/1|17|3|x")
        assert (await b.get(told))["status"] == "executing"
        other = await b.start()
        await crash(b, other, holder="elsewhere/1|17|3|x", until=time.time() - 1)
        assert (await b.get(other))["status"] == "unknown_outcome"


@asynchronous
async def test_a_move_of_a_replica_that_died_is_taken_over_before_its_lease_ends() -> None:
    async with bench(definition(AGAIN)) as b:
        recovery, elsewhere = b.hub.workflows.engine.recovery, "elsewhere/1|17|3|replica-b"
        before, after = await b.start(), await b.start()
        await crash(b, before, holder=elsewhere)
        recovery.release_leases("replica-c", time.time())
        await b.hub.workflows.watch.recover()
        assert (await b.get(before))["status"] == "executing"
        await crash(b, after, holder=elsewhere, until=time.time() + LEASE_S + 60)  # leased after it came back
        recovery.release_leases("replica-b", time.time())
        await until(lambda: b.work.calls, "the move was not taken over")
        assert b.work.keys == [KEY]
        assert (await b.get(after))["status"] == "executing"


@asynchronous
@pytest.mark.parametrize("executor", [AGAIN, WORK])
async def test_the_caller_of_a_move_that_was_taken_over_gets_what_became_of_it(tmp_path: Path, executor: Json) -> None:
    place, known = f"sqlite:///{tmp_path}/shared.db", definition(executor)
    async with bench(known, store=place) as slow, bench(known, store=place) as other:
        told = await slow.start()
        release = slow.work.hold()
        moving = asyncio.create_task(slow.follow(told, "go", arguments={"value": 4}))
        await slow.work.began.wait()
        other.engine.recovery.release_leases(replica_of(slow.engine.runner.holder), other.hub.store.now())
        # Between the transition and its chain it is not executing either, for a moment.
        settled = await other.once(told, lambda seen: seen["state"] == "done" or seen["status"] == "unknown_outcome")
        release.set()
        answer = await moving
        if executor is AGAIN:
            assert (answer.refused, answer.code, answer["version"]) == (False, None, settled["version"])
            assert other.work.keys == slow.work.keys
        else:
            assert (answer.refused, answer["status"], answer.code) == (False, "unknown_outcome", "UNKNOWN_OUTCOME")
            assert other.work.calls == []


@asynchronous
async def test_a_chain_that_stopped_between_two_moves_goes_on() -> None:
    async with bench(definition()) as b:
        told = await b.start()
        live = await b.engine.cache.get(told.id)
        assert live is not None
        await b.engine.runner.take(live, "go", {"value": 4}, DetachedCaller(ANONYMOUS, FROM_OUTSIDE))
        assert (await b.get(told))["state"] == "b"
        await b.hub.workflows.watch.look(ahead=30)
        seen = await b.once(told, lambda seen: seen["state"] == "done")
        assert (seen["version"], len(b.work.calls)) == (3, 1)


@asynchronous
async def test_a_hop_of_a_chain_can_be_unknown_and_is_not_run_again_unasked() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {"transitions": {"on": {"target": "done", "actor": "deterministic", "executor": WORK}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        b.work.fails = 1
        told = await b.follow(await b.start(), "go")
        await crash(b, told, move="on", chained=True, arguments={})
        seen = await b.get(told)
        assert seen.code == "UNKNOWN_OUTCOME"
        stays = await b.call("workflow.submit", **way(seen, "failed"))
        assert (stays["state"], stays["version"]) == ("b", 2)
        assert len(b.work.calls) == 1
        assert (await b.get(told)).names == ["$resume"]
        assert (await b.follow(await b.get(told), "$resume"))["state"] == "done"


@asynchronous
async def test_a_request_that_crashed_is_answered_when_it_is_resolved() -> None:
    async with bench(definition()) as b:
        told = await b.start()
        arguments = {"value": 4}
        await crash(b, told, request="r", request_digest=digest([1, "go", arguments, "", None]))
        other = await b.submit(told, "go", arguments, requestId="another")
        for _ in range(2):
            again = await b.submit(told, "go", arguments, requestId="r")
            assert (again.refused, again.code, again.data) == (True, "UNKNOWN_OUTCOME", other.data)
        ended = await b.call("workflow.submit", **way(await b.get(told), "retry"))
        assert ended["state"] == "done"
        replay = await b.submit(told, "go", arguments, requestId="r")
        assert (replay.refused, replay["version"] >= 2, len(b.work.calls)) == (False, True, 1)


@asynchronous
async def test_what_ran_on_entry_can_be_unknown_too() -> None:
    states = {
        "a": {"onEnter": {"executor": WORK, "output": {"n": 1}}, "transitions": {"go": {"target": "done"}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        b.work.fails = 1
        told = await b.start()
        await crash(b, told, move="$enter", chained=True, arguments={})
        seen = await b.get(told)
        assert seen.code == "UNKNOWN_OUTCOME"
        entered = await b.call("workflow.submit", **way(seen, "succeeded"))
        assert (entered.at, entered.names) == (("a", 2, {"n": 1}), ["go"])


@asynchronous
async def test_a_resolution_names_the_move_it_is_about() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        refused = await b.submit(told, "other", resolve="succeeded")
        assert (refused.refused, refused["version"]) == (True, 1)
        assert (await b.get(told))["status"] == "unknown_outcome"


@asynchronous
async def test_what_nobody_knows_about_can_be_cancelled() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        answer = await b.engine.cancel(told.id, DetachedCaller(ANONYMOUS, FROM_OUTSIDE), "enough")
        assert (answer.data["status"], answer.data["version"]) == ("cancelled", 2)


@asynchronous
async def test_a_resolution_with_a_request_id_is_answered_again() -> None:
    async with bench(definition()) as b:
        told = await unknown(b)
        for resolution in ("failed", "retry"):
            if resolution == "retry":
                told = await unknown(b)
            arguments = {**way(told, resolution), "requestId": "r"}
            first = await b.call("workflow.submit", **arguments)
            again = await b.call("workflow.submit", **arguments)
            assert (again.data, again.refused) == (first.data, first.refused)
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_resolution_with_another_output_is_another_call() -> None:
    async with bench(definition()) as b:
        arguments = {**way(await unknown(b), "succeeded"), "requestId": "r"}
        first = await b.call("workflow.submit", **arguments, output={"value": 9})
        assert (await b.call("workflow.submit", **arguments, output={"value": 9})).data == first.data
        refused = await b.call("workflow.submit", **arguments, output={"value": 10})
        assert (refused.refused, refused.code) == (True, "REQUEST_ID_REUSED")
