"""Workflows written as a list of steps: how the list becomes states, and the executor that runs one step.

A step calls a skill or another capability. Its settings say what happens when the capability is missing or its
circuit is open: skip the step, fail it, or call the fallback skill.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from waypost.capabilities.results import Result
from waypost.config.models import Schema, Step, Workflow
from waypost.errors import CircuitOpen, DeadlineExceeded, ExecutorFailed, UnknownTool, WaypostError
from waypost.redaction import hide, redacted
from waypost.skills.tools import BRANCH, tool_name
from waypost.workflows.executors.capability import get_output
from waypost.workflows.executors.cli import to_text
from waypost.workflows.executors.kind import NO_TIMEOUT_S, Executor, ExecutorContext, Run
from waypost.workflows.guards import CompiledGuard
from waypost.workflows.scope import Scope

RUN: Final = "run"
"""The transition of every step."""
COMPLETED: Final = "completed"
FAILED: Final = "failed"
LOOP: Final = "loop_detected"

ON_SUCCESS: Final = "on_success"
ON_ERROR: Final = "on_error"
SKIPPED: Final = "skipped"
_DEFAULT: Final = "default"
_MAX_SNAPSHOT_BYTES: Final = 2048
"""Bytes of an output, as JSON, that the results of the steps keep."""

Data = dict[str, Any]

GIVEN: Final[Schema] = {"type": "string", "description": "Input data passed to the first step"}
"""The input schema of a workflow of steps."""
_INPUT: Final[Schema] = {"type": "object", "properties": {"input": GIVEN}}


WITHIN: Final = "waypost/within"
"""The entry of a call's `_meta` with its timeout in seconds."""
_GRACE: Final = 0.2
"""Seconds that a call may exceed its timeout before it is cancelled: its own timeout also counts for its breaker."""
_PLACE: Final = "{input}"


def input_schema(workflow: Workflow) -> Schema | None:
    """The input schema of a workflow: its own, or a text if it has steps."""
    return _INPUT if workflow.input_schema is None and workflow.steps else workflow.input_schema


class Done(msgspec.Struct, frozen=True):
    """The result of a step."""

    outcome: Literal["succeeded", "failed", "skipped"] = "succeeded"
    output: Any = None
    branch: str = ON_SUCCESS
    error: str = ""
    ms: int = 0
    instead: str = ""
    """The skill that was run in place of the step's own."""


def step_name(step: Step) -> str:
    """The name of a step, or of what it runs."""
    return step.name or step.skill or step.capability or ""


def position_of(reference: str | int, steps: Sequence[Step]) -> int | None:
    """The position of a step by its name or position, both from 1."""
    if isinstance(reference, int):
        return reference if 1 <= reference <= len(steps) else None
    return next((place for place, step in enumerate(steps, 1) if step_name(step) == reference), None)


def state_names(steps: Sequence[Step]) -> tuple[str, ...]:
    """The state names of the steps, made unique."""
    names: list[str] = []
    for place, step in enumerate(steps, 1):
        name = step_name(step)
        taken = not name or name in (COMPLETED, FAILED) or name in names
        names.append(f"{name} {place}".strip() if taken else name)
    return tuple(names)


@dataclass(frozen=True)
class Walk:
    """The order of the steps of a workflow."""

    steps: Sequence[Step]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The state names of the steps."""
        return state_names(self.steps)

    def given(self, place: int, scope: Scope) -> Any:
        """The input of a step: the output of the step it names or of the nearest before it, or the workflow's input."""
        outputs = scope.context.get("outputs", {})
        source = self.steps[place - 1].input_from
        if source is not None:
            return outputs.get(str(position_of(source, self.steps)))
        earlier = (str(before) for before in range(place - 1, 0, -1))
        found = next((before for before in earlier if before in outputs), None)
        return _input(scope.input) if found is None else outputs[found]

    def after(self, place: int, scope: Scope) -> Data:
        """What a step writes into the context; the output of the scope is that of the step."""
        context, step, done = scope.context, self.steps[place - 1], _done(scope)
        results = {**context.get("step_results", {}), str(place): _result(step, done)}
        changes: Data = {"step_results": results}
        if "input" not in context:
            changes["input"] = _input(scope.input)
        onward = self._next_place(step, place, done)
        outputs = context.get("outputs", {})
        if onward != FAILED:
            kept = {"error": done.error} if done.outcome == "failed" else done.output
            outputs = changes["outputs"] = {**outputs, str(place): kept}
        if onward == COMPLETED:
            changes["result"] = outputs[max(outputs, key=int)]
        elif self.target(place, scope) == FAILED:
            changes["error"] = done.error if onward == FAILED else LOOP
        return changes

    def target(self, place: int, scope: Scope) -> str:
        """The state after a step; `failed` if that step has already run."""
        onward = self._next_place(self.steps[place - 1], place, _done(scope))
        if isinstance(onward, str):
            return onward
        has_run = onward == place or str(onward) in scope.context.get("step_results", {})
        return FAILED if has_run else self.names[onward - 1]

    def targets(self, place: int) -> tuple[str, ...]:
        """The states that a step can lead to."""
        step = self.steps[place - 1]
        found = [position_of(route.goto, self.steps) for route in step.routes]
        places: list[int | None] = [place + 1 if place < len(self.steps) else None, *found]
        names = [self.names[one - 1] for one in places if one is not None]
        return tuple(dict.fromkeys([*names, COMPLETED, FAILED]))

    def _next_place(self, step: Step, place: int, done: Done) -> int | str:
        """The next position, or a terminal state."""
        following = place + 1 if place < len(self.steps) else COMPLETED
        # Reversed: of several routes for one branch, the first one counts.
        routes = {route.branch: route.goto for route in reversed(step.routes)}
        if done.outcome == "skipped":
            return following
        if done.outcome == "failed":
            return FAILED if ON_ERROR not in routes else position_of(routes[ON_ERROR], self.steps) or COMPLETED
        if not routes:
            return following
        goto = routes.get(done.branch, routes.get(_DEFAULT))
        return COMPLETED if goto is None else position_of(goto, self.steps) or COMPLETED


def leads(walk: Walk, place: int, target: str) -> CompiledGuard:
    """A guard that holds if a step leads to a state."""
    data = {"kind": "step", "target": target}
    return CompiledGuard(data, lambda scope: walk.target(place, scope) == target, lambda scope: [])


def _done(scope: Scope) -> Done:
    """The result of a step; the output of an operator who resolved it counts as a success."""
    return scope.output if isinstance(scope.output, Done) else Done(output=scope.output)


def as_text(value: Any) -> str:
    """A value as the input of a skill: text, or JSON."""
    return "" if value is None else to_text(value)


def _input(given: Mapping[str, Any]) -> Any:
    """The input of an instance: its `input`, or all of it."""
    return given["input"] if given.keys() == {"input"} else dict(given) or None


def _result(step: Step, done: Done) -> Data:
    row: Data = {
        "name": step_name(step),
        "skill": step.skill or step.capability,
        "branch": done.branch,
        "outcome": done.outcome,
        "duration_ms": done.ms,
    }
    if done.instead:
        row["fallback"] = done.instead
    if done.outcome == "failed":
        return {**row, "error": done.error}
    return {**row, "output": _cut_output(done.output)}


def _cut_output(output: Any) -> Any:
    """An output, or the beginning of its text where it is long."""
    encoded = msgspec.json.encode(output)
    if len(encoded) <= _MAX_SNAPSHOT_BYTES:
        return output
    text = output.encode() if isinstance(output, str) else encoded
    return text[:_MAX_SNAPSHOT_BYTES].decode(errors="ignore") + "…"


class _Missing(Exception):
    """There is no capability of that name."""


class _Open(Exception):
    """The circuit of the capability is open."""


def build_step(walk: Walk, place: int, context: ExecutorContext) -> Executor:
    """The executor of a step, whose call has its own timeout."""
    return Executor("step", _StepRunner(walk, place, context).run, limit=NO_TIMEOUT_S)


class _StepRunner:
    """Runs one step; a failure is a result too, as a route may continue from it."""

    def __init__(self, walk: Walk, place: int, context: ExecutorContext) -> None:
        self._walk = walk
        self._place = place
        self._step: Step = walk.steps[place - 1]
        self._context = context

    async def run(self, run: Run) -> Done:
        """The result of the step."""
        step = self._step
        given = self._walk.given(self._place, run.scope)
        began = time.monotonic()
        done = await self._outcome(given, run)
        ms = round((time.monotonic() - began) * 1000)
        so_far = len(run.scope.context.get("step_results", {})) + 1
        await run.caller.progress(so_far, len(self._walk.steps), step_name(step))
        # Stored and shown like the output of every executor, so no secret of the configuration may be in it.
        output, error = hide([done.output, done.error], self._context.secrets())
        return Done(done.outcome, output, done.branch, error, ms, done.instead)

    async def _outcome(self, given: Any, run: Run) -> Done:
        step = self._step
        skipped = Done("skipped", given, SKIPPED)
        try:
            target = step.capability or "" if step.skill is None else tool_name(step.skill)
            return await self._call(target, given, run)
        except _Missing as missing:
            return skipped if step.on_missing_skill == "skip" else _failed(str(missing))
        except _Open as is_open:
            if step.on_circuit_open == "skip":
                return skipped
            if step.on_circuit_open == "halt" or step.fallback_skill is None:
                return _failed(str(is_open))
        try:
            done = await self._call(tool_name(step.fallback_skill), given, run)
        except (_Missing, _Open) as error:
            done = _failed(str(error))
        return Done(done.outcome, done.output, done.branch, done.error, instead=step.fallback_skill)

    async def _call(self, name: str, given: Any, run: Run) -> Done:
        """The result of a capability; raises `_Missing` or `_Open` if it was not called."""
        try:
            result = await self._in_time(name, _arguments(name, self._step, given), run)
        except UnknownTool as error:
            raise _Missing(error.message) from None
        except WaypostError as error:
            return _failed(redacted(error.message))
        try:
            output = get_output(name, result)
        except ExecutorFailed as error:
            # The open circuit may be that of a capability which this one called: then it has run, and has failed.
            if isinstance(result.error, CircuitOpen) and result.error.name == name:
                raise _Open(error.message) from None
            return _failed(error.message)
        return Done("succeeded", output, (result.meta or {}).get(BRANCH) or ON_SUCCESS)

    async def _in_time(self, name: str, arguments: Data, run: Run) -> Result:
        if self._step.timeout_ms is None:
            return await self._context.invoke(name, arguments, run.caller, run.meta)
        seconds = self._step.timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds + _GRACE):
                return await self._context.invoke(name, arguments, run.caller, {**run.meta, WITHIN: seconds})
        except TimeoutError:
            raise DeadlineExceeded from None


def _arguments(name: str, step: Step, given: Any) -> Data:
    """The arguments of a call: `input` and `config` for a skill, `input` for a workflow.

    For other capabilities the entries of the input, if it is an object, and of `config`, which has precedence.
    """
    if name.startswith("skill:"):
        return {"input": as_text(given), "config": _config(step, given)}
    if name.startswith("workflow:"):
        return {} if given is None else {"input": given}
    return {**(given if isinstance(given, dict) else {}), **step.config}


def _config(step: Step, given: Any) -> Data:
    """The `config` of a skill: the fields of the step, overridden by its own `config`."""
    said: Data = {}
    if step.prompt_template is not None:
        said |= {
            "prompt_template": step.prompt_template,
            "prompt": step.prompt_template.replace(_PLACE, as_text(given)),
        }
    if step.llm_tier is not None:
        said["llm_tier"] = step.llm_tier
    if step.llm_model is not None:
        said |= {"llm_model": step.llm_model, "model": step.llm_model}
    return {**said, **step.config}


def _failed(reason: str) -> Done:
    return Done("failed", None, ON_ERROR, reason)
