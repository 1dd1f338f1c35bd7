"""The kind `parallel`: runs executors side by side."""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from waypost.config.findings import KeyPath, quoted
from waypost.config.models import Millis
from waypost.errors import DefinitionError, ExecutorFailed
from waypost.kinds import ExecutorModel
from waypost.loops import cancel_tasks
from waypost.workflows.executors.kind import Builder, Executor, ExecutorFields, ExecutorKind, Run
from waypost.workflows.executors.reliability import failure_data, run_safely
from waypost.workflows.scope import Scope, is_path

if TYPE_CHECKING:
    from waypost.workflows.data_flow import Place, Report

MAX_BRANCHES: Final = 10_000
MAX_DEPTH: Final = 3
"""The maximum depth of nested parallel executors."""
_NAME: Final = "parallel"

Task = asyncio.Task[Any]


class JoinSome(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many branches have to succeed."""

    at_least: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="So many branches.")] = None
    percent: Annotated[Annotated[float, Meta(gt=0, le=100)] | None, Meta(description="That share of them.")] = None


class Parallel(ExecutorFields, frozen=True, kw_only=True, tag="parallel"):
    """Runs several executors side by side."""

    branches: Annotated[list[ExecutorModel], Meta(description="The executors.")] = []
    for_each: Annotated[str | list[Any] | None, Meta(description="A list, or a path to one.")] = None
    do: Annotated[ExecutorModel | None, Meta(description="What to run for each item, which is `$.branch.value`.")] = (
        None
    )
    join: Annotated[
        Literal["all", "any"] | JoinSome, Meta(description="How many branches have to succeed for it to succeed.")
    ] = "all"
    max_concurrency: Annotated[int, Meta(ge=1, le=1000, description="How many run at once.")] = 10
    on_branch_failure: Annotated[
        Literal["bail", "continue"], Meta(description="Whether the others are stopped when it can only fail.")
    ] = "bail"
    total_timeout_ms: Annotated[Millis | None, Meta(description="How long all of it may take.")] = None


def _build(model: Parallel, builder: Builder) -> Executor:
    """Branches, or one executor for each item of a list; each may look at `$.branch.value` and `$.branch.index`."""
    inner = builder.inside(_NAME)
    if inner.within.count(_NAME) > MAX_DEPTH:
        raise DefinitionError(f"parallel executors are nested at most {MAX_DEPTH} deep")
    branches = [inner.build(branch) for branch in model.branches]
    do = None if model.do is None else inner.build(model.do)
    if bool(branches) == (model.for_each is not None) or (do is None) != (model.for_each is None):
        raise DefinitionError("a parallel executor has branches, or forEach and do")
    if branches and count_needed(model.join, len(branches)) > len(branches):
        raise DefinitionError("a parallel executor needs more branches to succeed than it has")
    each = None if model.for_each is None else builder.value(model.for_each)
    limit = None if model.total_timeout_ms is None else model.total_timeout_ms / 1000

    def plan(scope: Scope) -> list[tuple[Executor, Any]]:
        """The executors to run, each with its `$.branch.value`."""
        if each is None or do is None:
            return [(branch, None) for branch in branches]
        items = each(scope)
        if not isinstance(items, list):
            raise ExecutorFailed("The value of forEach is not a list.")
        if len(items) > MAX_BRANCHES:
            raise ExecutorFailed(f"forEach has {len(items)} items; the maximum is {MAX_BRANCHES}.")
        return [(do, item) for item in items]

    async def run(run: Run) -> Any:
        """`{branches: [{status, output | error}], summary}`."""
        planned = plan(run.scope)
        flight = _Flight(run, planned, count_needed(model.join, len(planned)), model)
        try:
            async with asyncio.timeout(limit):
                return await flight.run()
        except TimeoutError:
            raise ExecutorFailed(f"The branches did not end within {limit:g} s.", "timeout") from None

    return Executor(_NAME, run, "parallel_result", limit)


def count_needed(join: str | JoinSome, total: int) -> int:
    """How many of so many branches have to succeed."""
    if isinstance(join, JoinSome):
        if join.at_least is None and join.percent is None:
            raise DefinitionError("a join says atLeast or percent")
        # Floats make 7.000000000000001 of 70 percent of ten.
        share = ceil(round(total * (join.percent or 0) / 100, 6))
        return max(join.at_least or 0, share)
    return total if join == "all" else 1


class _Flight:
    """One run of a parallel executor."""

    def __init__(self, run: Run, planned: list[tuple[Executor, Any]], need: int, model: Parallel) -> None:
        self._run = run
        self._planned = planned
        self._need = need
        self._most = model.max_concurrency
        self._bails = model.on_branch_failure == "bail"
        self._running: dict[Task, int] = {}
        # A branch that is never started counts as cancelled.
        self._outcomes: list[dict[str, Any]] = [{"status": "cancelled"} for _ in planned]
        self._failures: list[tuple[int, ExecutorFailed]] = []
        self._succeeded = 0

    async def run(self) -> dict[str, Any]:
        """Run branches until the outcome is known; none is left running."""
        waiting = list(enumerate(self._planned))[::-1]
        try:
            while (waiting or self._running) and not self._is_decided:
                while waiting and len(self._running) < self._most:
                    index, (executor, value) = waiting.pop()
                    self._running[self._start(index, executor, value)] = index
                done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                self._settle(done)
        finally:
            stopped = await self._stop()
        self._settle(stopped)
        if self._succeeded < self._need:
            raise self._failure()
        total, failed = len(self._planned), len(self._failures)
        cancelled = total - self._succeeded - failed
        summary = {"total": total, "succeeded": self._succeeded, "failed": failed, "cancelled": cancelled}
        return {"branches": self._outcomes, "summary": summary}

    @property
    def _is_decided(self) -> bool:
        if self._need > len(self._planned):
            return True
        possible = len(self._planned) - len(self._failures)
        return self._succeeded >= self._need or (self._bails and possible < self._need)

    def _start(self, index: int, executor: Executor, value: Any) -> Task:
        scope = replace(self._run.scope, branch={"value": value, "index": index})
        # With a key of its own: the other side would take two branches with one key for a repetition.
        run = Run(scope, f"{self._run.key}.{index}", self._run.caller)
        return asyncio.get_running_loop().create_task(run_safely(executor, run))

    def _settle(self, tasks: set[Task]) -> None:
        # In the order of the branches, so that the same one is always reported as the first that failed.
        for task in sorted(tasks, key=self._running.__getitem__):
            index = self._running.pop(task)
            if task.cancelled():
                continue
            try:
                self._outcomes[index] = {"status": "succeeded", "output": task.result()}
                self._succeeded += 1
            except ExecutorFailed as error:
                self._outcomes[index] = {"status": "failed", "error": failure_data(error)}
                self._failures.append((index, error))

    async def _stop(self) -> set[Task]:
        """Cancel what still runs and wait for it; some may have ended all the same."""
        tasks = set(self._running)
        await cancel_tasks(tasks)
        return tasks

    def _failure(self) -> ExecutorFailed:
        total = len(self._planned)
        said = f"{self._succeeded} of {total} branches succeeded, and {self._need} had to"
        if not self._failures:
            return ExecutorFailed(f"{said}.")
        index, first = self._failures[0]
        return ExecutorFailed(f"{said}; branch {index} failed first: {first.message}", first.error_class)


def _check(model: Parallel, path: KeyPath, report: Report) -> None:
    listed = bool(model.branches)
    repeated = model.for_each is not None or model.do is not None
    if listed and repeated:
        report.add(path, "there are `branches` and `forEach` with `do`; keep one form", "WF021")
    elif not listed and (model.for_each is None or model.do is None):
        report.add(path, "there is nothing to run; add `branches`, or `forEach` together with `do`", "WF021")
    elif isinstance(model.for_each, str) and not is_path(model.for_each):
        sentence = f"{quoted(model.for_each)} is neither a list nor a path to one; write a path such as `$.input.items`"
        report.add((*path, "forEach"), sentence, "WF021")
    else:
        _check_join(model, path, report)


def _check_join(model: Parallel, path: KeyPath, report: Report) -> None:
    join = model.join
    if not isinstance(join, JoinSome):
        return
    if (join.at_least is None) == (join.percent is None):
        report.add((*path, "join"), "the join says neither or both of two things; give `atLeast` or `percent`", "WF022")
        return
    count = len(model.for_each) if isinstance(model.for_each, list) else len(model.branches)
    if join.at_least is not None and not isinstance(model.for_each, str) and join.at_least > count:
        sentence = f"{join.at_least} have to succeed and there are only {count}; ask for {count} or fewer"
        report.add((*path, "join"), sentence, "WF022")


def _check_place(model: Parallel, place: Place, report: Report) -> None:
    if place.within.count(_NAME) == MAX_DEPTH:
        sentence = f"parallel executors are nested at most {MAX_DEPTH} deep; start a workflow instead"
        report.add(place.path, sentence, "WF021")


PARALLEL: Final = ExecutorKind(
    model=Parallel,
    build=_build,
    plan=None,
    check=_check,
    check_place=_check_place,
    names={},
    templates=("for_each",),
    asks_person=False,
    mark="",
)
