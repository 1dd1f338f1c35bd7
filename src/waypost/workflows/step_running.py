"""The executor of a step: calls its skill, and knows what to do where there is none or its circuit is open."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from waypost.capabilities.results import Result
from waypost.config.workflows import Step
from waypost.errors import CircuitOpen, DeadlineExceeded, ExecutorFailed, UnknownTool, WaypostError
from waypost.redaction import redacted
from waypost.skills.tools import BRANCH, tool_name
from waypost.workflows.executors.capability import get_output
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY, NO_TIMEOUT_S, ExecutorContext, Run
from waypost.workflows.executors.reliability import Supervised
from waypost.workflows.steps import ON_ERROR, ON_SUCCESS, SKIPPED, Done, Walk, as_text, step_name

WITHIN: Final = "waypost/within"
"""The entry of a call's `_meta` that says in how many seconds it has to end."""
_GRACE: Final = 0.2
"""Seconds by which a call may end itself before it is ended: then its breaker hears of it."""
_PLACE: Final = "{input}"

Data = dict[str, Any]


class _Missing(Exception):
    """There is nothing of that name to call."""


class _Open(Exception):
    """The circuit of what was to be called is open."""


def supervised_step(walk: Walk, place: int, context: ExecutorContext) -> Supervised:
    """The executor of a step."""
    return Supervised(StepExecutor(walk, place, context))


class StepExecutor:
    """Runs one step; that it failed is an outcome like another, for routes may lead on from it."""

    kind: Final = "step"
    evidence: Final = None
    limit: Final = NO_TIMEOUT_S
    """What it calls has a deadline of its own."""

    def __init__(self, walk: Walk, place: int, context: ExecutorContext) -> None:
        self._walk = walk
        self._place = place
        self._step: Step = walk.steps[place - 1]
        self._context = context

    async def run(self, run: Run) -> Done:
        """What the step came to."""
        step = self._step
        given = self._walk.given(self._place, run.scope)
        began = time.monotonic()
        done = await self._outcome(given, run)
        ms = round((time.monotonic() - began) * 1000)
        so_far = len(run.scope.context.get("step_results", {})) + 1
        await run.caller.progress(so_far, len(self._walk.steps), step_name(step))
        return Done(done.outcome, done.output, done.branch, done.error, ms, done.instead)

    async def _outcome(self, given: Any, run: Run) -> Done:
        step = self._step
        skipped = Done("skipped", given, SKIPPED)
        try:
            return await self._called(_target(step), given, run)
        except _Missing as missing:
            return skipped if step.on_missing_skill == "skip" else _failed(str(missing))
        except _Open as is_open:
            if step.on_circuit_open == "skip":
                return skipped
            if step.on_circuit_open == "halt" or step.fallback_skill is None:
                return _failed(str(is_open))
        try:
            done = await self._called(tool_name(step.fallback_skill), given, run)
        except (_Missing, _Open) as error:
            done = _failed(str(error))
        return Done(done.outcome, done.output, done.branch, done.error, instead=step.fallback_skill)

    async def _called(self, name: str, given: Any, run: Run) -> Done:
        """What a capability answers; `_Missing` and `_Open` where nothing was run."""
        try:
            result = await self._in_time(name, _arguments(name, self._step, given), run)
            output = get_output(name, result)
        except UnknownTool as error:
            raise _Missing(error.message) from None
        except ExecutorFailed as error:
            if isinstance(result.error, CircuitOpen) and result.error.name == name:
                raise _Open(error.message) from None
            return _failed(error.message)
        except WaypostError as error:
            return _failed(redacted(error.message))
        return Done("succeeded", output, (result.meta or {}).get(BRANCH) or ON_SUCCESS)

    async def _in_time(self, name: str, arguments: Data, run: Run) -> Result:
        timeout_ms = self._step.timeout_ms
        if timeout_ms is None:
            return await self._context.invoke(name, arguments, run.caller, {IDEMPOTENCY_KEY: run.key})
        seconds = timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds + _GRACE):
                return await self._context.invoke(
                    name, arguments, run.caller, {IDEMPOTENCY_KEY: run.key, WITHIN: seconds}
                )
        except TimeoutError:
            raise DeadlineExceeded from None


def _target(step: Step) -> str:
    return tool_name(step.skill) if step.skill is not None else step.capability or ""


def _arguments(name: str, step: Step, given: Any) -> Data:
    """What is called is given: a skill, `input` and `config`; a workflow, `input`; anything else, arguments of its own.

    Those are the entries of the input, if it is an object, and of `config`, which win.
    """
    if name.startswith("skill:"):
        return {"input": as_text(given), "config": _config(step, given)}
    if name.startswith("workflow:"):
        return {} if given is None else {"input": given}
    return {**(given if isinstance(given, dict) else {}), **step.config}


def _config(step: Step, given: Any) -> Data:
    """What a skill gets as `config`: what the step says, where `config` itself does not say otherwise."""
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
