"""Parallel branches: concurrency, required successes, and that no branch is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.workflows.executors.test_building import a_run, failure_of, model, surroundings
from waypost.errors import Busy, ToolError
from waypost.workflows.executors import build
from waypost.workflows.executors.kind import Executor
from waypost.workflows.executors.parallel import MAX_BRANCHES, JoinSome, count_needed


class Colleagues:
    """The call targets: they echo, fail, or wait until they are released or cancelled."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.running = 0
        self.most = 0
        self.stopped = 0
        self.go = asyncio.Event()

    async def __call__(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
        self.keys.append(meta["waypost/idempotencyKey"])
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._answer(arguments.get("is", name), arguments)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # cleanup takes one turn of the loop, which the executor must await
            self.stopped += 1
            raise
        finally:
            self.running -= 1

    async def _answer(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "fail":
            raise ToolError("no luck")
        if name == "busy":
            raise Busy
        if name == "crash":
            raise KeyError("x")
        if name == "wait":
            await self.go.wait()
        return arguments


def branch(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "capability", "capability": name, "arguments": arguments}


def parallel(colleagues: Colleagues, *names: str, **written: Any) -> Executor:
    return build(
        model(kind="parallel", branches=[branch(name) for name in names], **written), surroundings(invoke=colleagues)
    )


def for_each(colleagues: Colleagues, items: Any, do: dict[str, Any], **written: Any) -> Executor:
    return build(model(kind="parallel", forEach=items, do=do, **written), surroundings(invoke=colleagues))


def statuses(output: dict[str, Any]) -> list[str]:
    return [outcome["status"] for outcome in output["branches"]]


@asynchronous
async def test_every_branch_has_its_outcome_and_its_key() -> None:
    colleagues = Colleagues()
    output = await parallel(colleagues, "a", "b").run(a_run(key="k"))

    assert output == {
        "branches": [{"status": "succeeded", "output": {}}, {"status": "succeeded", "output": {}}],
        "summary": {"total": 2, "succeeded": 2, "failed": 0, "cancelled": 0},
    }
    assert sorted(colleagues.keys) == ["k.0", "k.1"]


@asynchronous
async def test_each_item_of_a_list_is_processed_by_one_branch() -> None:
    do = branch("echo", item="$.branch.value.name", at="$.branch.index", by="$.context.by")
    items = [{"name": "x"}, {"name": "y"}]
    output = await for_each(Colleagues(), "$.arguments.items", do).run(a_run({"items": items}, {"by": "me"}))

    assert [outcome["output"] for outcome in output["branches"]] == [
        {"item": "x", "at": 0, "by": "me"},
        {"item": "y", "at": 1, "by": "me"},
    ]


@asynchronous
async def test_a_literal_list_may_contain_paths() -> None:
    output = await for_each(Colleagues(), ["a", "$.arguments.b"], branch("echo", v="$.branch.value")).run(
        a_run({"b": 2})
    )

    assert [outcome["output"]["v"] for outcome in output["branches"]] == ["a", 2]


@pytest.mark.parametrize("items", [None, "text", {"a": 1}, 7])
@asynchronous
async def test_a_value_that_is_not_a_list_is_a_permanent_failure(items: Any) -> None:
    failure = await failure_of(for_each(Colleagues(), "$.arguments.items", branch("x")), a_run({"items": items}))

    assert (failure.error_class, failure.message) == ("permanent_error", "The value of forEach is not a list.")


@asynchronous
async def test_a_missing_list_is_named_and_a_list_that_is_too_long_is_refused() -> None:
    executor = for_each(Colleagues(), "$.arguments.items", branch("x"))

    assert (await failure_of(executor)).message == "There is no value at $.arguments.items."
    assert "the maximum is 10000" in (await failure_of(executor, a_run({"items": [0] * (MAX_BRANCHES + 1)}))).message


@asynchronous
async def test_an_empty_list_satisfies_all_but_not_any() -> None:
    output = await for_each(Colleagues(), [], branch("x")).run(a_run())
    failure = await failure_of(for_each(Colleagues(), [], branch("x"), join="any"))

    assert output == {"branches": [], "summary": {"total": 0, "succeeded": 0, "failed": 0, "cancelled": 0}}
    assert failure.message == "0 of 0 branches succeeded, and 1 had to."


@pytest.mark.parametrize(("most", "expected"), [(1, 1), (3, 3), (50, 20)])
@asynchronous
async def test_no_more_branches_run_at_once_than_allowed(most: int, expected: int) -> None:
    colleagues = Colleagues()
    executor = for_each(colleagues, list(range(20)), branch("wait"), maxConcurrency=most)
    running = asyncio.ensure_future(executor.run(a_run()))
    await until(lambda: colleagues.running == expected)
    colleagues.go.set()
    output = await running

    assert (colleagues.most, output["summary"]["succeeded"]) == (expected, 20)


@asynchronous
async def test_a_failure_stops_the_other_branches_when_all_must_succeed() -> None:
    colleagues = Colleagues()
    failure = await failure_of(parallel(colleagues, "wait", "busy", "wait", "echo", maxConcurrency=3))

    assert failure.error_class == "transient_error"
    assert failure.message.startswith("0 of 4 branches succeeded, and 4 had to; branch 1 failed first: Too much")
    assert (colleagues.stopped, colleagues.running, len(colleagues.keys)) == (2, 0, 3)


@asynchronous
async def test_other_branches_can_continue_after_a_failure() -> None:
    colleagues = Colleagues()
    failure = await failure_of(parallel(colleagues, "fail", "a", "b", maxConcurrency=1, onBranchFailure="continue"))

    assert failure.message == "2 of 3 branches succeeded, and 3 had to; branch 0 failed first: no luck"
    assert len(colleagues.keys) == 3


@asynchronous
async def test_the_first_success_is_enough_for_any_and_the_rest_is_stopped() -> None:
    colleagues = Colleagues()
    output = await parallel(colleagues, "fail", "wait", "a", "b", join="any", maxConcurrency=3).run(a_run())

    assert statuses(output) == ["failed", "cancelled", "succeeded", "cancelled"]
    assert output["branches"][0]["error"] == {"message": "no luck", "errorClass": "permanent_error"}
    assert output["summary"] == {"total": 4, "succeeded": 1, "failed": 1, "cancelled": 2}
    assert (colleagues.stopped, colleagues.running, len(colleagues.keys)) == (1, 0, 3)


@pytest.mark.parametrize("join", [{"atLeast": 2}, {"percent": 40}])
@asynchronous
async def test_enough_successes_stop_the_rest(join: dict[str, Any]) -> None:
    colleagues = Colleagues()
    output = await parallel(colleagues, "wait", "a", "wait", "b", "wait", join=join).run(a_run())

    assert statuses(output) == ["cancelled", "succeeded", "cancelled", "succeeded", "cancelled"]
    assert colleagues.running == 0


@asynchronous
async def test_branches_continue_while_enough_can_still_succeed() -> None:
    colleagues = Colleagues()
    names = ["fail", "fail", "a", "b"]
    output = await parallel(colleagues, *names, join={"atLeast": 2}, maxConcurrency=1).run(a_run())

    assert statuses(output) == ["failed", "failed", "succeeded", "succeeded"]


@asynchronous
async def test_too_many_failures_stop_the_remaining_branches() -> None:
    colleagues = Colleagues()
    names = ["fail", "fail", "fail", "a", "b"]
    await failure_of(parallel(colleagues, *names, join={"percent": 60}, maxConcurrency=1))

    assert len(colleagues.keys) == 3


@asynchronous
async def test_a_list_with_too_few_items_fails_before_any_branch_runs() -> None:
    colleagues = Colleagues()
    executor = for_each(colleagues, [1, 2], branch("a"), join={"atLeast": 3}, onBranchFailure="continue")

    assert (await failure_of(executor)).error_class == "permanent_error"
    assert colleagues.keys == []


@pytest.mark.parametrize(
    ("join", "total", "expected"),
    [
        ("all", 4, 4),
        ("any", 4, 1),
        (JoinSome(at_least=2), 4, 2),
        (JoinSome(percent=50), 5, 3),
        (JoinSome(percent=70), 10, 7),
        (JoinSome(percent=0.1), 10, 1),
        (JoinSome(percent=100), 7, 7),
        (JoinSome(at_least=3, percent=10), 10, 3),
    ],
)
def test_the_number_of_branches_that_must_succeed(join: Any, total: int, expected: int) -> None:
    assert count_needed(join, total) == expected


@asynchronous
async def test_the_total_timeout_applies_to_all_branches_together() -> None:
    colleagues = Colleagues()
    # Both branches have to begin within it.
    failure = await failure_of(parallel(colleagues, "wait", "wait", totalTimeoutMs=500))

    assert (failure.error_class, colleagues.stopped, colleagues.running) == ("timeout", 2, 0)


@asynchronous
async def test_a_cancellation_stops_every_branch_and_waits_for_it() -> None:
    colleagues = Colleagues()
    running = asyncio.ensure_future(parallel(colleagues, "wait", "wait").run(a_run()))
    await until(lambda: colleagues.running == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (colleagues.stopped, colleagues.running) == (2, 0)


@asynchronous
async def test_a_branch_that_crashes_has_failed() -> None:
    output = await parallel(Colleagues(), "crash", "a", join="any", maxConcurrency=1).run(a_run())

    assert output["branches"][0]["error"] == {
        "message": "The executor crashed: KeyError.",
        "errorClass": "permanent_error",
    }


@asynchronous
async def test_a_branch_that_finishes_despite_its_cancellation_is_reported_as_succeeded() -> None:
    """The effect has happened, so the branch has succeeded."""
    stubborn = asyncio.Event()

    async def invoke(name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> Any:
        if name == "quick":
            return "quick"
        with suppress(asyncio.CancelledError):
            await stubborn.wait()
        return "done all the same"

    written = model(kind="parallel", branches=[branch("slow"), branch("quick")], join="any")
    output = await build(written, surroundings(invoke=invoke)).run(a_run())

    assert statuses(output) == ["succeeded", "succeeded"]


@asynchronous
async def test_nested_branches_read_their_own_item() -> None:
    inner = {"kind": "parallel", "forEach": "$.branch.value", "do": branch("echo", v="$.branch.value")}
    colleagues = Colleagues()
    output = await for_each(colleagues, [[1, 2], [3]], inner).run(a_run(key="k"))

    assert [[one["output"]["v"] for one in outcome["output"]["branches"]] for outcome in output["branches"]] == [
        [1, 2],
        [3],
    ]
    assert sorted(colleagues.keys) == ["k.0.0", "k.0.1", "k.1.0"]
