"""The executor that calls what this hub offers, through the pipeline every call goes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from waypost.capabilities.results import Result, as_json
from waypost.config import executors as models
from waypost.errors import Busy, CircuitOpen, DeadlineExceeded, ExecutorFailed, PolicyDenied, WaypostError
from waypost.redaction import redacted
from waypost.workflows.executors import arguments_of
from waypost.workflows.executors.executor import Run, Surroundings
from waypost.workflows.executors.mcp import KEY
from waypost.workflows.scope import compile_template

_TIMED_OUT: Final = DeadlineExceeded().message
_CIRCUIT: Final = "Circuit open"
_LIMIT: Final = "rate limit exceeded"
_BUSY: Final = "try again later."
_CLASSES: Final = get_args(models.ErrorClass)


class Capability:
    """A capability by its name."""

    kind: Final = "capability"
    evidence: Final = "capability_result"
    limit: Final = None

    def __init__(self, model: models.CapabilityCall, surroundings: Surroundings, roots: frozenset[str]) -> None:
        self._name = model.capability
        self._surroundings = surroundings
        self._arguments = None if model.arguments is None else compile_template(model.arguments, roots)

    async def run(self, run: Run) -> Any:
        """What the capability answers: structured data, or text."""
        arguments = arguments_of(self._arguments, run.scope)
        try:
            result = await self._surroundings.invoke(self._name, arguments, run.caller, {KEY: run.key})
        except WaypostError as error:
            raise failed_call(error) from None
        return output_of(self._name, result)


def output_of(name: str, result: Result) -> Any:
    """The data of a result; one that says it is an error is a failure."""
    if result.is_error:
        raise ExecutorFailed(redacted(result.text) or f"{name} failed.", _class_of(result))
    if result.structured is None:
        return result.text
    data = as_json(result.structured)
    return data["result"] if _is_bare(data) else data


def failed_call(error: WaypostError) -> ExecutorFailed:
    """What an error of the pipeline means to a workflow."""
    if isinstance(error, DeadlineExceeded):
        return ExecutorFailed(error.message, "timeout")
    if isinstance(error, (Busy, CircuitOpen)):
        return ExecutorFailed(redacted(error.message), "transient_error")
    return ExecutorFailed(redacted(error.message), class_of_denial(error, error.__cause__))


def class_of_denial(*errors: BaseException | None) -> str:
    """What it means that a rule is against something: only a limit passes with time."""
    denials = [error for error in errors if isinstance(error, PolicyDenied)]
    return "rate_limited" if any(denial.rule_type == "rate_limit" for denial in denials) else "permanent_error"


def _class_of(result: Result) -> str:
    told = result.error_class or _told_class(result.structured)
    if told in _CLASSES:
        return told
    text = result.text
    if text == _TIMED_OUT:
        return "timeout"
    if text.startswith(_LIMIT):
        return "rate_limited"
    return "transient_error" if text.startswith(_CIRCUIT) or text.endswith(_BUSY) else "permanent_error"


def _told_class(structured: Any) -> str:
    """The class that an executor behind a tool gave its failure."""
    error = structured.get("error") if isinstance(structured, dict) else None
    return str(error.get("errorClass")) if isinstance(error, dict) else ""


def _is_bare(data: Any) -> bool:
    return isinstance(data, Mapping) and data.keys() == {"result"}
