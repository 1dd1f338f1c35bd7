"""A hub is killed again and again while its workflows run: nothing answered is lost, nothing is silently repeated."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.chaos import mill as program
from tests.chaos.conftest import rounds
from tests.chaos.millers import GONE, RESOLUTIONS, Mill, Miller, can_go, working
from tests.chaos.test_hub_killed import kill
from tests.chaos.verdict import Effect, Evidence, KnownAnswer, wrong_with
from tests.chaos.visitor import eventually, visiting
from tests.cli.shell import Serving, serving
from waypost.stores.instances import HistoryEntry, InstanceRecord, Reservation
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

MILL: Final = f"{program.__file__}:hub"
ROUNDS: Final = 6
OF_EACH_KIND: Final = 3
MOST_ANSWERS: Final = 200
A_ROUND: Final = 15.0
"""Seconds that a round may take on a busy machine."""


@contextmanager
def mill_in(data: Path) -> Iterator[Serving]:
    """The mill, served until the block ends or it is killed."""
    data.mkdir(exist_ok=True)
    with serving(MILL, "--port", "0", "--data", data, cwd=data, MILL_EFFECTS=str(data / "effects")) as hub:
        yield hub


async def killed_at_random(mill: Mill, data: Path, chance: random.Random) -> None:
    """Let a hub work for some answers, and kill it in the middle of something."""
    with mill_in(data) as hub:
        mill.opens(await asyncio.to_thread(lambda: hub.url))
        for _ in range(chance.randrange(MOST_ANSWERS)):
            await mill.answers.acquire()
        await asyncio.sleep(chance.uniform(0, 0.02))  # so that it is not always killed right after an answer
        mill.closes()
        await asyncio.to_thread(kill, hub)


async def brought_to_rest(mill: Mill, data: Path, chance: random.Random) -> None:
    """Start a last hub, resolve unknown outcomes, and wait until nothing moves by itself."""
    left = await kept(data)

    async def rests(workflow_id: str) -> bool | None:
        stands = await mill.look(workflow_id)
        if stands["status"] in ("unknown_outcome", "chain_failed"):
            await mill.resolve_instance(stands, chance)
        return can_go(stands) or stands.get("terminal")

    with mill_in(data) as hub:
        mill.opens(await asyncio.to_thread(lambda: hub.url))
        for workflow_id in left:
            await eventually(partial(rests, workflow_id), f"{workflow_id} does not come to rest")
        mill.closes()


async def kept(data: Path) -> dict[str, tuple[InstanceRecord, list[HistoryEntry]]]:
    """Every instance with its history, after a check that the store is sound."""
    store = Store(SqliteDatabase(data / "waypost.db"))
    try:
        assert await store.check() == []
        found = await store.instances.page(limit=100_000)
        return {one.id: (one, await store.instances.history(one.id, limit=100_000)) for one in found}
    finally:
        await store.close()


def effects_in(data: Path) -> list[Effect]:
    """Every effect that was written."""
    return [Effect(*line.split()) for line in (data / "effects").read_text().splitlines()]


def test_workflows_survive_kills_at_random_moments(tmp_path: Path) -> None:
    data, seed, often = tmp_path / "data", random.randrange(1_000_000), rounds(ROUNDS)
    chance = random.Random(seed)

    async def scenario() -> Mill:
        async with asyncio.timeout(A_ROUND * (often + 2)), visiting() as visitor:
            mill = Mill(visitor)
            clients = [Miller(mill, f"{kind}-{n}", kind) for kind in program.KINDS for n in range(OF_EACH_KIND)]
            async with working(clients):
                for _ in range(often):
                    await killed_at_random(mill, data, chance)
            await brought_to_rest(mill, data, chance)
            return mill

    mill = asyncio.run(scenario())
    left = asyncio.run(kept(data))
    mill.evidence.effects = effects_in(data)
    mill.evidence.instances = {name: one[0] for name, one in left.items()}
    mill.evidence.histories = {name: one[1] for name, one in left.items()}
    wrong = wrong_with(mill.evidence)
    assert not wrong, f"seed {seed}: {wrong}"
    moved = Counter(one.definition for one, history in left.values() if len(history) > 1)
    assert moved.keys() == {*program.KINDS, "child"}
    assert len(mill.evidence.answers) > often
    assert mill.unknown > 0


def test_an_interrupted_move_is_run_again_or_left_for_a_client_to_resolve(tmp_path: Path) -> None:
    """An executor runs in each instance when the hub is killed."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "hold").touch()
    ids: dict[str, str] = {}

    async def begun(mill: Mill, kind: str, ticket: str) -> asyncio.Task[Any]:
        stands = await mill.call("workflow.start", definitionId=kind, input={})
        ids[ticket] = stands["workflowId"]
        wanted = {**stands["links"][0]["args"], "arguments": {"ticket": ticket}, "requestId": ticket}
        return asyncio.create_task(mill.call("workflow.submit", **wanted))

    async def is_at(mill: Mill, ticket: str, version: int) -> dict[str, Any] | None:
        stands = await mill.look(ids[ticket])
        return stands if stands["version"] == version and can_go(stands) else None

    async def interrupted(mill: Mill) -> None:
        with mill_in(data) as hub:
            mill.opens(await asyncio.to_thread(lambda: hub.url))
            unsafe = [await begun(mill, "unsafe", how) for how in RESOLUTIONS]
            safe = [await begun(mill, kind, kind) for kind in ("safe", "chain", "parent", "risky")]
            await eventually(lambda: all_running(data, len(ids)), "not everything is running")
            mill.closes()
            await asyncio.to_thread(kill, hub)
        assert all(isinstance(one, GONE) for one in await asyncio.gather(*unsafe, *safe, return_exceptions=True))

    async def taken_up(mill: Mill) -> None:
        for ticket, version in {"safe": 2, "chain": 6, "parent": 2}.items():
            await eventually(partial(is_at, mill, ticket, version), f"{ticket} did not go on")
        for how in RESOLUTIONS:
            await resolved(mill, ids[how], how)
        stands = await resolved(mill, ids["risky"], "failed")
        assert (stands["status"], stands["state"]) == ("chain_failed", "danger")
        await mill.resolve_instance(stands, random.Random())
        assert await is_at(mill, "risky", 3)
        assert await is_at(mill, "retry", 2)
        assert await is_at(mill, "succeeded", 2)
        assert await is_at(mill, "failed", 1)

    async def scenario() -> None:
        async with asyncio.timeout(3 * A_ROUND), visiting() as visitor:
            mill = Mill(visitor)
            await interrupted(mill)
            (data / "hold").unlink()
            with mill_in(data) as hub:
                mill.opens(await asyncio.to_thread(lambda: hub.url))
                await taken_up(mill)

    asyncio.run(scenario())
    runs = Counter(effects_in(data))
    assert {effect.ticket: times for effect, times in runs.items() if effect.kind == "unsafe"} == {
        "retry": 2,
        "succeeded": 1,
        "failed": 1,
        "risky": 1,
    }
    assert sorted(times for effect, times in runs.items() if effect.ticket == "safe") == [2]


async def all_running(data: Path, number: int) -> bool | None:
    """Whether so many effects have happened."""
    return ((data / "effects").exists() and len(effects_in(data)) == number) or None


async def resolved(mill: Mill, workflow_id: str, how: str) -> dict[str, Any]:
    """The view of an instance after its unknown outcome was resolved by following a link."""
    stands = await mill.look(workflow_id)
    assert stands["status"] == "unknown_outcome"
    assert stands["error"]["code"] == "UNKNOWN_OUTCOME"
    links = {link["args"]["resolve"]: link["args"] for link in stands["links"] if link["rel"] == "resolve"}
    assert tuple(links) == RESOLUTIONS
    return await mill.call("workflow.submit", **links[how])


KEY: Final = "wf_1.go.0"


def sound() -> Evidence:
    """An instance that was moved by something unsafe, as it should be."""
    body = {"digest": "d", "owner": {"id": "ada"}}
    one = InstanceRecord(
        id="wf_1",
        version=2,
        definition="unsafe",
        principal="ada",
        state="there",
        status="waiting_for_action",
        value=body,
    )
    history = [
        HistoryEntry(1, 0.0, {"transition": "$start", "from": None, "to": "here"}),
        HistoryEntry(2, 1.0, {"from": "here", "to": "there", "key": KEY, "executor": {"kind": "capability"}}),
    ]
    return Evidence(
        answers=[KnownAnswer("wf_1", 1, "here"), KnownAnswer("wf_1", 2, "there")],
        effects=[Effect("unsafe", "t1", KEY)],
        instances={"wf_1": one},
        histories={"wf_1": history},
    )


def with_instance(**changes: Any) -> Evidence:
    """The same, with something else about the instance."""
    found = sound()
    return replace(found, instances={"wf_1": msgspec.structs.replace(found.instances["wf_1"], **changes)})


def with_history(*kept: int) -> Evidence:
    """The same, with these entries of the history."""
    found = sound()
    return replace(found, histories={"wf_1": [found.histories["wf_1"][place] for place in kept]})


def with_effects(*effects: Effect, **more: Any) -> Evidence:
    """The same, with other effects."""
    return replace(sound(), effects=list(effects), **more)


def two_children() -> Evidence:
    """Two instances that were started for one submit."""
    found, input = sound(), {"input": {"ticket": "t1"}}
    one = msgspec.structs.replace(found.instances["wf_1"], definition="child", value=input)
    other = msgspec.structs.replace(one, id="wf_2")
    histories = {"wf_1": found.histories["wf_1"], "wf_2": found.histories["wf_1"]}
    return replace(found, instances={"wf_1": one, "wf_2": other}, histories=histories)


ONCE: Final = Effect("unsafe", "t1", KEY)
DOCTORED: Final[dict[str, Callable[[], Evidence]]] = {
    "was answered": lambda: replace(sound(), answers=[KnownAnswer("wf_1", 3, "here")]),
    "the history says there": lambda: replace(sound(), answers=[KnownAnswer("wf_1", 2, "here")]),
    "the history says None": lambda: replace(sound(), answers=[KnownAnswer("wf_2", 1, "here")]),
    "its history has": lambda: with_history(0),
    "leaps": lambda: with_history(1, 0),
    "its history ends in": lambda: with_instance(state="here"),
    "is at 3": lambda: with_instance(version=3),
    "done 2 times, 1 were asked for": lambda: with_effects(ONCE, ONCE),
    "under 2 keys": lambda: with_effects(Effect("safe", "t1", KEY), Effect("safe", "t1", "wf_1.go.1")),
    "that wf_1.go.0 was done": lambda: with_effects(),
    "has 2 children": two_children,
    "stuck: executing": lambda: with_instance(status="executing"),
    "stuck: waiting_for_action in there, Reservation": lambda: with_instance(reservation=Reservation("t", 1.0)),
    "'pending': 'chain'": lambda: with_instance(value={"pending": "chain"}),
}


@pytest.mark.parametrize("finding", DOCTORED)
def test_each_kind_of_inconsistency_is_found(finding: str) -> None:
    assert any(finding in one for one in wrong_with(DOCTORED[finding]()))


def test_nothing_is_found_in_sound_evidence() -> None:
    assert wrong_with(sound()) == []
    assert wrong_with(with_effects(ONCE, ONCE, allowed=Counter(t1=1))) == []
    safe = Effect("safe", "t1", KEY)
    assert wrong_with(with_effects(safe, safe, safe)) == []
