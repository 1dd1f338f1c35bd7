import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.protocol.conftest import Json, asynchronous, idle, until
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.questions import Question
from waypost.errors import Busy, InvalidParams
from waypost.protocol import tasks as module
from waypost.protocol.relay import Liveness
from waypost.protocol.tasks import RunningTask, Tasks, detailed_task, legacy_task, modern_task, now
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.stores.tasks import TaskCall, TaskRecord
from waypost.wire.versions import V2026_07_28

ADA = Principal("ada")
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
DONE: Json = {"content": [{"type": "text", "text": "done"}]}


class Background:
    """Background tasks like those of an engine."""

    def __init__(self) -> None:
        self.store = Store(SqliteDatabase())
        self.jobs: set[asyncio.Task[Any]] = set()

    def background(self, work: Any) -> asyncio.Task[Any]:
        job = asyncio.get_running_loop().create_task(work)
        self.jobs.add(job)
        return job


class Bench:
    """Tasks with a store that a test can inspect."""

    def __init__(self, limit: int = 100, host: Background | None = None) -> None:
        self.host = host or Background()
        self.store = self.host.store.tasks
        self.tasks = Tasks(self.host, Liveness(self.host), limit=limit)
        self.seen: list[TaskRecord] = []
        self.tasks.watch(self.seen.append)

    async def run(self, work: Callable[[RunningTask], Awaitable[Json]], ttl_ms: int | None = None) -> RunningTask:
        task = await self.tasks.start(ADA, V2026_07_28, ttl_ms)

        async def body() -> Json:
            return await work(task)

        self.tasks.follow(task, asyncio.get_running_loop().create_task(body()))
        return task

    async def status(self, task: RunningTask) -> str:
        return (await self.tasks.find(task.record.id, ADA)).status

    def statuses(self) -> list[str]:
        return [record.status for record in self.seen]


def question(key: str | None = None, method: str = "elicitation/create") -> Question:
    return Question(method, {"message": key}, {"elicitation": {}}, key, 300.0)


async def finish(_task: RunningTask) -> Json:
    return DONE


async def hang(_task: RunningTask) -> Json:
    await asyncio.Event().wait()
    return DONE


@asynchronous
async def test_a_task_is_stored_before_its_work_starts() -> None:
    bench = Bench()
    task = await bench.tasks.start(ADA, V2026_07_28)
    assert await bench.store.load(task.record.id) == task.record
    assert (await bench.tasks.find(task.record.id, ADA)).status == "working"


@asynchronous
async def test_ids_are_long_random_and_fit_a_header() -> None:
    bench = Bench()
    ids = {(await bench.tasks.start(ADA, V2026_07_28)).record.id for _ in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"[\w-]{32}", key) for key in ids)


@asynchronous
async def test_work_that_returns_completes_the_task() -> None:
    bench = Bench()
    task = await bench.run(finish)
    await task.ended.wait()
    record = await bench.tasks.find(task.record.id, ADA)
    assert (record.status, record.result, record.error) == ("completed", DONE, None)
    assert bench.statuses() == ["completed"]
    assert record.id not in bench.tasks._running


@asynchronous
async def test_work_that_raises_fails_the_task_with_the_error_a_call_would_get() -> None:
    async def refuse(_task: RunningTask) -> Json:
        raise InvalidParams("not like this", {"field": "a"})

    async def crash(_task: RunningTask) -> Json:
        raise RuntimeError("secret")

    bench = Bench()
    task = await bench.run(refuse)
    await task.ended.wait()
    assert (task.record.status, task.record.result) == ("failed", None)
    assert task.record.error == {"code": -32602, "message": "not like this", "data": {"field": "a"}}
    assert task.record.status_message == "not like this"
    task = await bench.run(crash)
    await task.ended.wait()
    assert task.record.error is not None
    assert task.record.error["code"] == -32603
    assert "secret" not in str(task.record)


@asynchronous
async def test_a_task_alternates_between_working_and_input_required_until_it_ends() -> None:
    async def ask_twice(task: RunningTask) -> Json:
        first = await task.ask(question("who"))
        second = await task.ask(question("who"))
        return {"answers": [first, second]}

    bench = Bench()
    task = await bench.run(ask_twice)
    await until(lambda: "who-1" in task.record.input_requests)
    assert await bench.status(task) == "input_required"
    await task.answer({"who-1": 1})
    await until(lambda: "who-2" in task.record.input_requests)
    assert list(task.record.input_requests) == ["who-2"]
    await task.answer({"who-1": "again", "who-2": 2})
    await task.ended.wait()
    assert task.record.result == {"answers": [1, 2]}
    assert task.record.input_requests == {}
    assert bench.statuses() == ["input_required", "working", "input_required", "working", "completed"]


@asynchronous
async def test_questions_of_a_task_may_be_answered_one_by_one() -> None:
    async def ask_both(task: RunningTask) -> Json:
        both = await asyncio.gather(task.ask(question("a")), task.ask(question(None)))
        return {"answers": both}

    bench = Bench()
    task = await bench.run(ask_both)
    await until(lambda: len(task.record.input_requests) == 2)
    assert list(task.record.input_requests) == ["a-1", "elicitation-2"]
    await task.answer({"elicitation-2": "second"})
    assert (task.record.status, list(task.record.input_requests)) == ("input_required", ["a-1"])
    await task.answer({"a-1": "first"})
    await task.ended.wait()
    assert task.record.result == {"answers": ["first", "second"]}


@asynchronous
async def test_answers_to_unknown_questions_change_nothing() -> None:
    async def ask(task: RunningTask) -> Json:
        return {"answer": await task.ask(question("who"))}

    bench = Bench()
    task = await bench.run(ask)
    await until(lambda: task.record.input_requests)
    before = task.record
    await task.answer({"whom-1": 1, "": None})
    await task.answer({})
    assert task.record is before
    await task.cancel()


@asynchronous
async def test_cancelling_stops_the_work_and_stays() -> None:
    stopped: list[str] = []

    async def work(_task: RunningTask) -> Json:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("work")
        return DONE

    bench = Bench()
    task = await bench.run(work)
    await idle()
    await task.cancel()
    assert await bench.status(task) == "cancelled"
    await task.ended.wait()
    assert stopped == ["work"]
    await task.cancel()
    assert bench.statuses() == ["cancelled"]


@asynchronous
async def test_work_that_ignores_the_cancellation_leaves_the_task_cancelled() -> None:
    async def stubborn(_task: RunningTask) -> Json:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return DONE
        return {}

    bench = Bench()
    task = await bench.run(stubborn)
    await idle()
    await task.cancel()
    await task.ended.wait()
    assert (task.record.status, task.record.result) == ("cancelled", None)


@asynchronous
async def test_an_answer_after_the_cancellation_does_not_revive_a_task() -> None:
    async def ask(task: RunningTask) -> Json:
        return {"answer": await task.ask(question("who"))}

    bench = Bench()
    task = await bench.run(ask)
    await until(lambda: task.record.input_requests)
    await task.cancel()
    await task.answer({"who-1": 1})
    await task.ended.wait()
    assert bench.statuses() == ["input_required", "cancelled"]


@asynchronous
async def test_a_question_after_the_cancellation_does_not_revive_a_task() -> None:
    async def stubborn(task: RunningTask) -> Json:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await task.ask(question("sure"))
        return DONE

    bench = Bench()
    task = await bench.run(stubborn)
    await idle()
    await task.cancel()
    await idle()
    assert bench.statuses() == ["cancelled"]
    bench.tasks.stop()


@asynchronous
async def test_another_principals_task_is_refused_like_an_unknown_one() -> None:
    bench = Bench()
    task = await bench.run(hang)
    task_id = task.record.id
    for principal in (Principal("eve"), ANONYMOUS):
        with pytest.raises(InvalidParams, match=f"^There is no task {task_id}.$"):
            await bench.tasks.find(task_id, principal)
        assert await bench.tasks.page(principal, None, 10) == []
    with pytest.raises(InvalidParams, match=r"^There is no task never\.$"):
        await bench.tasks.find("never", ADA)
    await task.cancel()
    await task.ended.wait()
    with pytest.raises(InvalidParams, match=f"^There is no task {task_id}.$"):
        await bench.tasks.find(task_id, Principal("eve"))


@pytest.mark.parametrize(
    ("asked", "given"),
    [(None, 3_600_000), (0, 1000), (-5, 1000), (999, 1000), (60_000, 60_000), (10**15, 3_600_000)],
)
def test_a_ttl_is_kept_within_bounds(asked: int | None, given: int) -> None:
    async def run() -> None:
        assert (await Bench().tasks.start(ADA, V2026_07_28, asked)).record.ttl_ms == given

    asyncio.run(run())


def test_work_is_stopped_and_its_task_deleted_when_its_ttl_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_TTL_MS", 50)

    async def run() -> None:
        bench = Bench()
        task = await bench.run(hang, 50)
        await task.ended.wait()
        assert task.record.status == "cancelled"
        assert task.record.status_message == "The task was stopped: its time, 50 ms, was over."
        record: list[TaskRecord | None] = [task.record]
        async with asyncio.timeout(60):
            while record[0] is not None:
                await asyncio.sleep(0.01)
                record[0] = await bench.tasks.load(task.record.id)
        with pytest.raises(InvalidParams):
            await bench.tasks.find(task.record.id, ADA)

    asyncio.run(run())


def test_a_task_is_not_deleted_before_its_ttl_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        bench = Bench()
        database, began = bench.host.store.database, time.time()
        monkeypatch.setattr(database, "now", lambda: began)
        task = await bench.run(finish, 60_000)
        await task.ended.wait()
        monkeypatch.setattr(database, "now", lambda: began + 59)
        assert await bench.status(task) == "completed"
        monkeypatch.setattr(database, "now", lambda: began + 61)
        assert await bench.tasks.load(task.record.id) is None
        await bench.host.store.sweep()
        assert await bench.store.load(task.record.id) is None

    asyncio.run(run())


@asynchronous
async def test_too_many_tasks_at_once_are_refused() -> None:
    bench = Bench(limit=2)
    first, _second = [await bench.run(hang) for _ in range(2)]
    with pytest.raises(Busy, match=r"2 tasks are running already \(maxTasks\)"):
        await bench.tasks.start(ADA, V2026_07_28)
    await idle()
    await first.cancel()
    await until(lambda: first.record.id not in bench.tasks._running)
    await bench.tasks.start(ADA, V2026_07_28)
    bench.tasks.stop()
    await idle()


@asynchronous
async def test_running_tasks_are_stopped_and_failed_when_the_hub_stops() -> None:
    bench = Bench()
    tasks = [await bench.run(hang) for _ in range(3)]
    await idle()
    bench.tasks.stop()
    for task in tasks:
        await task.ended.wait()
        reason = "The server was stopped while the task was running."
        assert (task.record.status, task.record.status_message) == ("failed", reason)
        assert task.record.error == {"code": -32603, "message": reason}


@asynchronous
async def test_a_stopped_watcher_gets_no_more_changes() -> None:
    bench = Bench()
    heard: list[TaskRecord] = []
    stop = bench.tasks.watch(heard.append)
    await (await bench.run(finish)).ended.wait()
    stop()
    await (await bench.run(finish)).ended.wait()
    assert [len(heard), len(bench.seen)] == [1, 2]


def record(**what: Any) -> TaskRecord:
    stamp = now()
    whole = {"id": "t", "principal": "ada", "created_at": stamp, "updated_at": stamp, "ttl_ms": 1000, "poll_ms": 500}
    return TaskRecord(**{"status": "working", **whole, **what})


def test_each_version_has_its_own_names_for_ttl_and_poll_interval() -> None:
    task = record()
    modern, legacy = modern_task(task), legacy_task(task)
    assert (modern.pop("ttlMs"), modern.pop("pollIntervalMs")) == (1000, 500)
    assert (legacy.pop("ttl"), legacy.pop("pollInterval")) == (1000, 500)
    assert modern == legacy
    assert set(modern) == {"taskId", "status", "createdAt", "lastUpdatedAt"}
    assert STAMP.fullmatch(modern["createdAt"])
    outcome = record(status_message="Soon.")
    assert modern_task(outcome)["statusMessage"] == legacy_task(outcome)["statusMessage"] == "Soon."


def test_a_detailed_task_has_only_the_field_of_its_status() -> None:
    everything: Json = {"input_requests": {"a-1": {}}, "result": DONE, "error": {"code": 1, "message": "no"}}
    extra = {"inputRequests", "result", "error"}
    for status, field in (("input_required", "inputRequests"), ("completed", "result"), ("failed", "error")):
        assert set(detailed_task(record(status=status, **everything))) & extra == {field}
    for status in ("working", "cancelled"):
        assert not set(detailed_task(record(status=status, **everything))) & extra


def test_an_error_result_is_a_failed_task_only_for_sessions() -> None:
    failed = record(status="completed", result={"content": [], "isError": True})
    assert legacy_task(failed)["status"] == "failed"
    assert detailed_task(failed)["status"] == "completed"
    assert legacy_task(record(status="completed", result=DONE))["status"] == "completed"


@asynchronous
async def test_a_task_that_times_out_while_the_hub_stops_does_not_affect_other_tasks() -> None:
    bench = Bench()
    late, other = [await bench.run(hang) for _ in range(2)]
    await idle()
    bench.tasks.stop()
    late.stop_because("its time, 1000 ms, was over")
    for task in (late, other):
        await task.ended.wait()
        assert task.record.status == "failed"
    assert other.record.status_message == "The server was stopped while the task was running."


def call(**what: Any) -> TaskCall:
    return TaskCall(**{"tool": "job", "arguments": {"n": 1}, "version": V2026_07_28, "capabilities": {}, **what})


async def leave_behind(bench: Bench, **what: Any) -> str:
    """A task of a process that has ended; its id."""
    made = record(holder="gone", expires_at=bench.tasks.time() + 3600, **what)
    await bench.host.store.open()
    return (await bench.store.save(made)).id


def repeats(bench: Bench) -> list[TaskCall]:
    """Let repeated calls complete at once, and return the list of them."""
    made: list[TaskCall] = []

    async def run(_task: RunningTask, again: TaskCall) -> Json:
        made.append(again)
        return DONE

    bench.tasks.run_again = run
    return made


@asynchronous
async def test_the_call_of_a_dead_process_is_repeated_under_the_same_id() -> None:
    bench = Bench()
    made = repeats(bench)
    task_id = await leave_behind(bench, status="input_required", input_requests={"a-1": {}}, call=call())
    found = await bench.tasks.find(task_id, ADA)
    assert (found.id, found.status, found.input_requests) == (task_id, "working", {})
    await until(lambda: task_id not in bench.tasks._running)
    ended = await bench.store.load(task_id)
    assert ended is not None
    assert (ended.status, ended.result, ended.call) == ("completed", DONE, None)
    assert made == [call(runs=2)]


@asynchronous
async def test_cancelling_a_request_for_a_task_does_not_stop_its_repeated_call() -> None:
    bench, began, may_end = Bench(), asyncio.Event(), asyncio.Event()

    async def run(_task: RunningTask, _again: TaskCall) -> Json:
        began.set()
        await may_end.wait()
        return DONE

    bench.tasks.run_again = run
    task_id = await leave_behind(bench, call=call())
    asking = asyncio.get_running_loop().create_task(bench.tasks.find(task_id, ADA))
    while task_id not in bench.tasks._running:  # noqa: ASYNC110  # the write that follows takes more turns of the loop
        await asyncio.sleep(0)
    asking.cancel()
    await began.wait()
    may_end.set()
    await until(lambda: task_id not in bench.tasks._running)
    assert (await bench.tasks.find(task_id, ADA)).status == "completed"


@asynchronous
async def test_a_call_that_ended_its_process_too_often_is_not_repeated() -> None:
    bench = Bench()
    made = repeats(bench)
    task_id = await leave_behind(bench, call=call(runs=module.MAX_RUNS))
    lost = await bench.tasks.find(task_id, ADA)
    assert (lost.status, lost.status_message, lost.call) == ("failed", module.LOST["status_message"], None)
    assert made == []


@asynchronous
async def test_a_call_is_repeated_once_by_two_concurrent_replicas() -> None:
    first = Bench()
    second = Bench(host=first.host)
    made, other = repeats(first), repeats(second)
    task_id = await leave_behind(first, call=call())
    found = await asyncio.gather(*(bench.tasks.find(task_id, ADA) for bench in (first, second, first, second)))
    assert {one.status for one in found} <= {"working", "completed"}
    assert len(made + other) == 1


@asynchronous
async def test_a_repeated_call_waits_until_its_principal_may_run_another_task() -> None:
    bench = Bench(limit=1)
    made = repeats(bench)
    running = await bench.run(hang)
    task_id = await leave_behind(bench, call=call())
    assert (await bench.tasks.find(task_id, ADA)).status == "working"
    assert made == []
    await running.cancel()
    await until(lambda: not bench.tasks._running)
    await bench.tasks.find(task_id, ADA)
    await until(lambda: not bench.tasks._running)
    assert made == [call(runs=2)]


@asynchronous
async def test_a_process_presumed_dead_does_not_write_to_a_task_that_another_runs() -> None:
    bench = Bench()
    task = await bench.run(hang)
    await idle()
    elsewhere = await bench.store.save(msgspec.structs.replace(task.record, holder="other"))
    await bench.tasks.refresh(task.record.id)
    await task.ended.wait()
    await until(lambda: not bench.tasks._running)
    assert await bench.store.load(task.record.id) == elsewhere


@asynchronous
async def test_a_call_with_a_secret_of_the_hub_is_not_kept() -> None:
    bench = Bench()
    bench.store.secrets.set(["hunter2-hunter2"])
    kept = await bench.tasks.start(ADA, V2026_07_28, call=call())
    assert kept.record.call == call()
    hidden = await bench.tasks.start(ADA, V2026_07_28, call=call(arguments={"key": "hunter2-hunter2"}))
    assert hidden.record.call is None
    stored = await bench.store.load(hidden.record.id)
    assert stored is not None
    assert stored.call is None
