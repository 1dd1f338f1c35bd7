"""The state that workers share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.workers.wire import Json, at_work, hub_for_workers, wired
from waypost.errors import StaleVersion
from waypost.workers.state import apply_updates

PLACE = {"scope": "s", "key": "k"}


@asynchronous
async def test_values_are_kept_by_scope_and_key() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker, wired(hub) as other:
        assert await worker.result("state::get", PLACE) is None
        first = await worker.result("state::set", {**PLACE, "value": {"n": 1}})
        assert first == {"old_value": None, "new_value": {"n": 1}}
        second = await other.result("state::set", {**PLACE, "value": [2]})
        assert second == {"old_value": {"n": 1}, "new_value": [2]}
        assert await worker.result("state::get", PLACE) == [2]
        assert await worker.result("state::get", {"scope": "other", "key": "k"}) is None
        await worker.result("state::set", {"scope": "s", "key": "j", "value": "first"})
        assert await worker.result("state::list", {"scope": "s"}) == ["first", [2]]
        assert await worker.result("state::list", {"scope": "none"}) == []
        assert await worker.result("state::list_groups", {}) == {"groups": ["s"]}
        assert await worker.result("state::delete", PLACE) == {"old_value": [2]}
        assert await worker.result("state::delete", PLACE) == {"old_value": None}
        assert await worker.result("state::get", PLACE) is None


@pytest.mark.parametrize(
    ("function", "payload", "missing"),
    [
        ("state::get", None, "scope"),
        ("state::get", [], "scope"),
        ("state::get", {"scope": 5, "key": "k"}, "scope"),
        ("state::get", {"scope": "s"}, "key"),
        ("state::set", {"scope": "", "key": "k", "value": 1}, "scope"),
        ("state::list", {}, "scope"),
        ("state::update", PLACE, "ops"),
    ],
)
def test_the_error_names_the_missing_field(function: str, payload: Json, missing: str) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers()
        async with at_work(hub), wired(hub) as worker:
            error = await worker.error(function, payload)
            assert error["code"] == "invocation_failed"
            assert missing in error["message"]

    scenario()


@asynchronous
async def test_changes_in_one_step_do_not_get_lost() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as one, wired(hub) as two:
        count = {**PLACE, "ops": [{"type": "increment", "path": "n", "by": 1}]}
        asked = [(wire, await wire.ask("state::update", count)) for wire in (one, two) for _ in range(20)]
        for wire, invocation in asked:
            assert "error" not in await wire.next("invocationresult", invocation_id=invocation)
        assert await one.result("state::get", PLACE) == {"n": 40}
        odd = await one.result("state::update", {**PLACE, "ops": [{"type": "explode"}, {"type": "set", "value": 1}]})
        assert odd["new_value"] == 1
        assert [error["op_index"] for error in odd["errors"]] == [0]


@asynchronous
async def test_changes_call_the_functions_that_are_bound_to_them() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        for binding, config in (("all", {}), ("scope", {"scope": "s"}), ("key", PLACE), ("none", {"scope": "x"})):
            await worker.send(
                "registertrigger", id=binding, trigger_type="state", function_id=f"see::{binding}", config=config
            )
        await worker.offer("see::all", "see::scope", "see::key", "see::none")
        await worker.result("state::set", {**PLACE, "value": 1})
        await worker.result("state::set", {**PLACE, "value": 2})
        await worker.result("state::delete", PLACE)
        for function in ("see::all", "see::scope", "see::key"):
            seen = [(await worker.next("invokefunction", function_id=function))["data"] for _ in range(3)]
            kinds = sorted(one["event_type"] for one in seen)
            assert kinds == ["state:created", "state:deleted", "state:updated"]
        await worker.settled()
        assert not any(message["type"] == "invokefunction" for message in worker.seen)


@asynchronous
async def test_the_state_survives_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/kept.db"
    for value in (None, "kept"):
        hub = hub_for_workers(store=store)
        async with at_work(hub), wired(hub) as worker:
            assert await worker.result("state::get", PLACE) == value
            await worker.result("state::set", {**PLACE, "value": "kept"})


@asynchronous
async def test_scopes_and_keys_may_have_any_characters() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        short = ["ü/:%_\\", "workers:", "'; drop table state; --"]
        odd = [*short, "a" * 5000]
        for scope in short:
            for key in odd:
                await worker.result("state::set", {"scope": scope, "key": key, "value": [scope[:10], key[:10]]})
        for scope in short:
            for key in odd:
                got = await worker.result("state::get", {"scope": scope, "key": key})
                assert got == [scope[:10], key[:10]]


@asynchronous
async def test_a_store_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = hub_for_workers(workers={"port": 0, "state_timeout": 0.05})

    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    async with at_work(hub), wired(hub) as worker:
        monkeypatch.setattr(type(hub.store.state), "get", silent)
        assert (await worker.error("state::get", PLACE))["code"] == "TIMEOUT"


@asynchronous
async def test_a_value_is_set_whatever_another_worker_has_bound_to_the_state() -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker, wired(hub) as other:
        await other.offer("see::all", name="other")
        # The hub answers calls deeper in the stack than it reads messages, so that what it could just read then failed.
        configs = ["1e999", *("[" * depth + "]" * depth for depth in range(600, 1000))]
        for number, config in enumerate(configs):
            binding = f'"id":"b{number}","trigger_type":"state","function_id":"see::all","config":{config}'
            await other.raw(f'{{"type":"registertrigger",{binding}}}')
        await other.settled()
        await worker.result("state::set", {**PLACE, "value": 1})
        await worker.result("state::update", {**PLACE, "ops": [{"type": "increment"}]})
        assert await worker.result("state::delete", PLACE) == {"old_value": 2}


@asynchronous
async def test_an_update_that_races_with_another_replica_begins_again_with_its_own_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as worker:
        await worker.introduce()
        state = hub.core.store.state
        put, attempts = state.put, 0

        async def lose_first(*given: Any) -> Any:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise StaleVersion
            return await put(*given)

        monkeypatch.setattr(type(state), "put", lambda _, *given: lose_first(*given))
        operations = [
            {"type": "set", "path": "a", "value": {"n": 0, "list": []}},
            {"type": "increment", "path": ["a", "n"]},
            {"type": "append", "path": ["a", "list"], "value": 1},
        ]
        changed = await worker.result("state::update", {**PLACE, "ops": operations})
    assert attempts == 2
    assert changed["new_value"] == {"a": {"n": 1, "list": [1]}}


@asynchronous
async def test_updates_of_one_key_wait_for_each_other_and_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    async def note(old: Any, operations: list[Any]) -> tuple[Any, list[Json]]:
        made.append(len(operations))
        return await apply_updates(old, operations)

    monkeypatch.setattr("waypost.workers.state.apply_updates", note)
    hub = hub_for_workers()
    async with at_work(hub), wired(hub) as one, wired(hub) as two:
        count = {**PLACE, "ops": [{"type": "increment", "path": "n"}]}
        asked = [(wire, await wire.ask("state::update", count)) for wire in (one, two) for _ in range(20)]
        for wire, invocation in asked:
            await wire.next("invocationresult", invocation_id=invocation)
        assert await one.result("state::get", PLACE) == {"n": 40}
    assert len(made) == 40
