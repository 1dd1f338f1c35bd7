"""The kind `capability`: calls a tool of this hub through its pipeline, or names an entry of `capabilities`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args

from msgspec import Meta

from waypost.capabilities.results import Result, round_trip_json
from waypost.config.models import ErrorClass, Name
from waypost.errors import ExecutorFailed, WaypostError, class_of
from waypost.redaction import redacted
from waypost.workflows.executors.kind import Builder, Executor, ExecutorFields, ExecutorKind, Paths, Run

_ERROR_CLASSES: Final = get_args(ErrorClass)


class CapabilityCall(ExecutorFields, frozen=True, kw_only=True, tag="capability"):
    """Calls a capability of this hub, or names an entry of `capabilities`."""

    capability: Annotated[Name, Meta(description="Its name.")]
    arguments: Annotated[
        Paths | None, Meta(description="Its arguments; left out, those of the transition as they are.")
    ] = None


def _build(model: CapabilityCall, builder: Builder) -> Executor:
    name, arguments = model.capability, builder.arguments(model.arguments)

    async def run(run: Run) -> Any:
        """The result of the capability: structured data, or text."""
        try:
            result = await builder.context.invoke(name, arguments(run.scope), run.caller, run.meta)
        except WaypostError as error:
            raise to_failure(error) from None
        return get_output(name, result)

    return Executor("capability", run, "capability_result")


def get_output(name: str, result: Result) -> Any:
    """The data of a result; `ExecutorFailed` if it is an error."""
    if result.is_error:
        raise ExecutorFailed(redacted(result.text) or f"{name} failed.", _classify_result(result))
    if result.structured is None:
        return result.text
    data = round_trip_json(result.structured)
    # A bare number, truth value or list was wrapped, since structured content is an object.
    return data["result"] if isinstance(data, Mapping) and data.keys() == {"result"} else data


def to_failure(error: WaypostError) -> ExecutorFailed:
    """An error of the pipeline as the failure of an executor."""
    return ExecutorFailed(redacted(error.message), class_of(error))


def _classify_result(result: Result) -> str:
    if result.error is not None:
        return class_of(result.error)
    # The tool of an exposed executor or workflow names the class in its answer.
    error = result.structured.get("error") if isinstance(result.structured, dict) else None
    named = str(error.get("errorClass")) if isinstance(error, dict) else ""
    return named if named in _ERROR_CLASSES else "permanent_error"


CAPABILITY: Final = ExecutorKind(
    model=CapabilityCall,
    build=_build,
    plan=None,
    check=None,
    check_place=None,
    names={"capability": "capability"},
    templates=("arguments",),
    asks_person=False,
    mark="",
)
