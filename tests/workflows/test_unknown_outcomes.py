"""After a crash: idempotent moves are repeated, and others have an unknown outcome that a principal resolves."""

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
from tests.workflows.conftest import STRANGER, WORK, Bench, Json, View, bench, flow
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
    """The holder name of a process of this machine that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine, _, began, token = identify_process().split("|")
    return f"{machine}|{ended.pid}|{began}|{token}"


async def crash(b: Bench, view: View, *, move: str = "go", until: float | None = None, **more: Any) -> None:
    """Leave a pending move like a process that was killed during it."""
    held = PendingMove(kind="executing", move=move, by=ANONYMOUS, key=KEY, **({"arguments": {"value": 4}} | more))
    if not held.holder:
        held = msgspec.structs.replace(held, holder=gone())
    reservation = Reservation("token", time.time() + 30 if until is None else until, held)
    assert await b.hub.store.instances.reserve(view.id, view["version"], reservation)


async def unknown(b: Bench) -> View:
    """An instance with an unknown outcome."""
    view = await b.start()
    await crash(b, view)
    return await b.get(view)


@asynchronous
async def test_an_unknown_outcome_has_links_that_resolve_it(store: str) -> None:
    async with bench(definition(), store=store) as b:
        view = await unknown(b)
        assert (view.refused, view["status"], view.code) == (False, "unknown_outcome", "UNKNOWN_OUTCOME")
        assert view.at == ("a", 1, {})
        assert view["error"]["attemptedTransition"] == "go"
        assert view["error"]["idempotencyKey"] == KEY
        resolutions = [link["args"]["resolve"] for link in view["links"]]
        assert resolutions == ["retry", "succeeded", "failed"]
        assert {link["args"]["transition"] for link in view["links"]} == {"go"}
        assert b.work.calls == []


@asynchronous
async def test_other_transitions_are_refused_before_the_resolution() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        for transition in ("go", "other", "$resume"):
            refused = await b.submit(view, transition)
            assert (refused.refused, refused.code) == (True, "UNKNOWN_OUTCOME")
            assert refused["error"]["idempotencyKey"] == KEY
            assert "self" in refused.rels
            assert "resolve" in refused.rels
        assert b.work.calls == []


def link_to(view: View, resolution: str) -> Json:
    """The arguments of the link to a resolution."""
    found: Json = next(link["args"] for link in view["links"] if link["args"].get("resolve") == resolution)
    return found


@asynchronous
async def test_an_unknown_outcome_can_be_retried_with_the_same_key_and_arguments(store: str) -> None:
    async with bench(definition(), store=store) as b:
        view = await unknown(b)
        ended = await b.call("workflow.submit", **link_to(view, "retry"))
        assert ended.at == ("done", 3, {"n": 4, "hopped": True})
        assert (b.work.calls, b.work.keys) == ([4], [KEY])
        assert (await b.history(view))[1]["key"] == KEY


@asynchronous
async def test_an_unknown_outcome_can_be_resolved_as_succeeded() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        ended = await b.call("workflow.submit", **link_to(view, "succeeded"), output={"value": 9})
        assert ended.at == ("done", 3, {"n": 9, "hopped": True})
        assert b.work.calls == []
        assert "anonymous" in str((await b.history(view))[1]["executor"])


@asynchronous
async def test_an_unknown_outcome_can_be_resolved_as_failed() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        stays = await b.call("workflow.submit", **link_to(view, "failed"))
        assert (stays.refused, stays.at, stays["status"]) == (False, ("a", 1, {}), "waiting_for_action")
        assert b.work.calls == []
        assert (await b.notes(view))[-1]["outcome"] == "failed"
        assert (await b.submit(view, "go", {"value": 1})).at == ("done", 3, {"n": 1, "hopped": True})
        assert b.work.keys[0] != KEY


@asynchronous
async def test_a_failed_retry_leaves_the_instance_in_its_state() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        b.work.fails = 1
        failed = await b.call("workflow.submit", **link_to(view, "retry"))
        assert (failed.code, failed["state"], failed["version"]) == ("EXECUTOR_FAILED", "a", 1)


@asynchronous
async def test_an_unknown_outcome_is_resolved_once_and_for_its_version() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        late = {**link_to(view, "succeeded"), "expectedVersion": 9}
        assert (await b.call("workflow.submit", **late)).code == "STALE_WORKFLOW_VERSION"
        answers = await asyncio.gather(*(b.call("workflow.submit", **link_to(view, "retry")) for _ in range(5)))
        assert len(b.work.calls) == 1
        assert sum(not answer.refused for answer in answers) == 1
        assert (await b.call("workflow.submit", **link_to(view, "failed"))).refused


@asynchronous
async def test_other_principals_cannot_resolve_an_unknown_outcome() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        assert (await b.call("workflow.submit", STRANGER, **link_to(view, "succeeded"))).code == "UNKNOWN_WORKFLOW"
        assert (await b.get(view))["status"] == "unknown_outcome"


@asynchronous
async def test_resolving_an_instance_without_an_unknown_outcome_is_refused() -> None:
    async with bench(definition()) as b:
        view = await b.start()
        refused = await b.submit(view, "go", resolve="succeeded")
        assert (refused.code, (await b.get(view)).at) == ("INVALID_TRANSITION", view.at)


@pytest.mark.parametrize("executor", [AGAIN, HARMLESS])
@pytest.mark.parametrize("who", ["reader", "watch"])
@asynchronous
async def test_an_idempotent_move_is_repeated_with_the_same_key(who: str, executor: Json, store: str) -> None:
    async with bench(definition(executor), store=store) as b:
        view = await b.start()
        await crash(b, view)
        if who == "watch":
            await b.hub.workflows.watch.recover()
        else:
            assert (await b.get(view))["status"] == "executing"
        seen = await b.once(view, lambda seen: seen["state"] == "done")
        assert seen["version"] == 3
        assert (b.work.calls, [key.startswith(KEY) for key in b.work.keys]) == ([4], [True])


@asynchronous
async def test_a_hub_recovers_moves_of_an_earlier_process_at_startup(tmp_path: object) -> None:
    place = f"sqlite:///{tmp_path}/left.db"
    async with bench(definition(AGAIN), store=place) as b:
        view = await b.start()
        await crash(b, view)
        await b.hub.workflows.watch.stop()
    async with bench(definition(AGAIN), store=place) as b:
        await until(lambda: b.work.calls, "nobody ran it again")
        assert b.work.keys == [KEY]


@asynchronous
async def test_a_move_of_a_live_process_is_not_recovered() -> None:
    async with bench(definition(AGAIN)) as b:
        view = await b.start()
        await crash(b, view, holder=identify_process())
        await b.hub.workflows.watch.recover()
        assert (await b.get(view))["status"] == "executing"
        assert b.work.calls == []


@asynchronous
async def test_a_move_of_another_machine_is_recovered_after_its_lease() -> None:
    async with bench(definition()) as b:
        view = await b.start()
        await crash(b, view, holder="elsewhere/1|17|3|x")
        assert (await b.get(view))["status"] == "executing"
        other = await b.start()
        await crash(b, other, holder="elsewhere/1|17|3|x", until=time.time() - 1)
        assert (await b.get(other))["status"] == "unknown_outcome"


@asynchronous
async def test_a_move_of_a_dead_replica_is_taken_over_before_its_lease_ends() -> None:
    async with bench(definition(AGAIN)) as b:
        recovery, elsewhere = b.hub.workflows.engine.recovery, "elsewhere/1|17|3|replica-b"
        before, after = await b.start(), await b.start()
        await crash(b, before, holder=elsewhere)
        recovery.release_leases("replica-c", time.time())
        await b.hub.workflows.watch.recover()
        assert (await b.get(before))["status"] == "executing"
        await crash(b, after, holder=elsewhere, until=time.time() + LEASE_S + 60)  # leased after the replica came back
        recovery.release_leases("replica-b", time.time())
        await until(lambda: b.work.calls, "the move was not taken over")
        assert b.work.keys == [KEY]
        assert (await b.get(after))["status"] == "executing"


@asynchronous
@pytest.mark.parametrize("executor", [AGAIN, WORK])
async def test_the_caller_of_a_move_that_was_taken_over_gets_its_outcome(tmp_path: Path, executor: Json) -> None:
    place, known = f"sqlite:///{tmp_path}/shared.db", definition(executor)
    async with bench(known, store=place) as slow, bench(known, store=place) as other:
        view = await slow.start()
        release = slow.work.hold()
        moving = asyncio.create_task(slow.follow(view, "go", arguments={"value": 4}))
        await slow.work.began.wait()
        other.engine.recovery.release_leases(replica_of(slow.engine.runner.holder), other.hub.store.now())
        # Between the transition and its chain, the instance is briefly not executing.
        settled = await other.once(view, lambda seen: seen["state"] == "done" or seen["status"] == "unknown_outcome")
        release.set()
        answer = await moving
        if executor is AGAIN:
            assert (answer.refused, answer.code, answer["version"]) == (False, None, settled["version"])
            assert other.work.keys == slow.work.keys
        else:
            assert (answer.refused, answer["status"], answer.code) == (False, "unknown_outcome", "UNKNOWN_OUTCOME")
            assert other.work.calls == []


@asynchronous
async def test_a_chain_that_stopped_between_two_moves_is_continued() -> None:
    async with bench(definition()) as b:
        view = await b.start()
        live = await b.engine.cache.get(view.id)
        assert live is not None
        await b.engine.runner.take(live, "go", {"value": 4}, DetachedCaller(ANONYMOUS, FROM_OUTSIDE))
        assert (await b.get(view))["state"] == "b"
        await b.hub.workflows.watch.look(ahead=30)
        seen = await b.once(view, lambda seen: seen["state"] == "done")
        assert (seen["version"], len(b.work.calls)) == (3, 1)


@asynchronous
async def test_a_hop_of_a_chain_can_have_an_unknown_outcome_and_is_not_repeated() -> None:
    states = {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {"transitions": {"on": {"target": "done", "actor": "deterministic", "executor": WORK}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        b.work.fails = 1
        view = await b.follow(await b.start(), "go")
        await crash(b, view, move="on", chained=True, arguments={})
        seen = await b.get(view)
        assert seen.code == "UNKNOWN_OUTCOME"
        stays = await b.call("workflow.submit", **link_to(seen, "failed"))
        assert (stays["state"], stays["version"]) == ("b", 2)
        assert len(b.work.calls) == 1
        assert (await b.get(view)).names == ["$resume"]
        assert (await b.follow(await b.get(view), "$resume"))["state"] == "done"


@asynchronous
async def test_a_request_that_crashed_is_answered_after_its_resolution() -> None:
    async with bench(definition()) as b:
        view = await b.start()
        arguments = {"value": 4}
        await crash(b, view, request="r", request_digest=digest([1, "go", arguments, "", None]))
        other = await b.submit(view, "go", arguments, requestId="another")
        for _ in range(2):
            again = await b.submit(view, "go", arguments, requestId="r")
            assert (again.refused, again.code, again.data) == (True, "UNKNOWN_OUTCOME", other.data)
        ended = await b.call("workflow.submit", **link_to(await b.get(view), "retry"))
        assert ended["state"] == "done"
        replay = await b.submit(view, "go", arguments, requestId="r")
        assert (replay.refused, replay["version"] >= 2, len(b.work.calls)) == (False, True, 1)


@asynchronous
async def test_an_entry_can_have_an_unknown_outcome() -> None:
    states = {
        "a": {"onEnter": {"executor": WORK, "output": {"n": 1}}, "transitions": {"go": {"target": "done"}}},
        "done": DONE,
    }
    async with bench(flow(states)) as b:
        b.work.fails = 1
        view = await b.start()
        await crash(b, view, move="$enter", chained=True, arguments={})
        seen = await b.get(view)
        assert seen.code == "UNKNOWN_OUTCOME"
        entered = await b.call("workflow.submit", **link_to(seen, "succeeded"))
        assert (entered.at, entered.names) == (("a", 2, {"n": 1}), ["go"])


@asynchronous
async def test_a_resolution_must_name_its_move() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        refused = await b.submit(view, "other", resolve="succeeded")
        assert (refused.refused, refused["version"]) == (True, 1)
        assert (await b.get(view))["status"] == "unknown_outcome"


@asynchronous
async def test_an_instance_with_an_unknown_outcome_can_be_cancelled() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        answer = await b.engine.cancel(view.id, DetachedCaller(ANONYMOUS, FROM_OUTSIDE), "enough")
        assert (answer.data["status"], answer.data["version"]) == ("cancelled", 2)


@asynchronous
async def test_a_repeated_resolution_gets_the_same_response() -> None:
    async with bench(definition()) as b:
        view = await unknown(b)
        for resolution in ("failed", "retry"):
            if resolution == "retry":
                view = await unknown(b)
            arguments = {**link_to(view, resolution), "requestId": "r"}
            first = await b.call("workflow.submit", **arguments)
            again = await b.call("workflow.submit", **arguments)
            assert (again.data, again.refused) == (first.data, first.refused)
        assert len(b.work.calls) == 1


@asynchronous
async def test_a_repeated_resolution_with_another_output_is_refused() -> None:
    async with bench(definition()) as b:
        arguments = {**link_to(await unknown(b), "succeeded"), "requestId": "r"}
        first = await b.call("workflow.submit", **arguments, output={"value": 9})
        assert (await b.call("workflow.submit", **arguments, output={"value": 9})).data == first.data
        refused = await b.call("workflow.submit", **arguments, output={"value": 10})
        assert (refused.refused, refused.code) == (True, "REQUEST_ID_REUSED")
