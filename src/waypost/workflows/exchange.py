"""Workflows as documents that people pass on: written out, read in, copied."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from waypost.config.workflows import Workflow
from waypost.errors import WorkflowRefused
from waypost.kinds import convert

VERSION: Final = 1
_OF_STEPS: Final = ("on_circuit_open", "fallback_skill", "on_missing_skill", "timeout_ms")
"""What other hubs write into the `config` of a step."""

Data = dict[str, Any]


def exported(name: str, model: Workflow) -> Data:
    """A workflow as a document: `{"version": 1, "workflow": {...}, "steps": [...]}`."""
    written: Data = msgspec.to_builtins(model)
    steps = written.pop("steps")
    return {"version": VERSION, "workflow": {"name": name, **written}, "steps": steps}


def imported(data: Any, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """The workflow of a document, under a name that is free; what Waypost does not know of it is left out."""
    if not isinstance(data, Mapping) or data.get("version") != VERSION or data["version"] is True:
        raise _refused(f"Unsupported or missing version: this hub reads version {VERSION}")
    written = data.get("workflow")
    name = written.get("name") if isinstance(written, Mapping) else None
    if not isinstance(written, Mapping) or not isinstance(name, str) or not name.strip():
        raise _refused("Workflow name is required")
    steps = data.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise _refused('Missing or invalid "steps" field')
    model = {key: value for key, value in written.items() if key != "name"}
    return free_name(name.strip(), "imported", taken), _model({**model, "steps": [_step(step) for step in steps]})


def duplicated(name: str, model: Workflow, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """A copy of a workflow, under a name of its own, which nobody can start yet."""
    copy = f"{name} (copy)"
    return copy if copy not in taken else free_name(name, "copy", taken, 2), msgspec.structs.replace(
        model, enabled=False
    )


def free_name(name: str, word: str, taken: Collection[str], first: int = 1) -> str:
    """The name, or the first like `name (imported 1)` that nobody has."""
    if name not in taken:
        return name
    return next(other for n in itertools.count(first) if (other := f"{name} ({word} {n})") not in taken)


def _model(written: Data) -> Workflow:
    try:
        return convert(written, Workflow)
    except msgspec.ValidationError as error:
        raise _refused(f"The workflow cannot be read: {error}") from None


def _step(written: Mapping[str, Any]) -> Data:
    step = dict(written)
    config = step.get("config")
    if isinstance(config, Mapping):
        moved = {key: config[key] for key in _OF_STEPS if key in config and key not in step}
        step |= moved
        step["config"] = {key: value for key, value in config.items() if key not in moved}
    return {key: value for key, value in step.items() if value is not None}


def _refused(message: str) -> WorkflowRefused:
    return WorkflowRefused(message, "INVALID_DEFINITION")
