"""From the model of an executor to the executor."""

from __future__ import annotations

from typing import Final

from waypost.config import executors as models
from waypost.errors import DefinitionError
from waypost.workflows.executors.capability import Capability
from waypost.workflows.executors.child import Child
from waypost.workflows.executors.cli import Cli
from waypost.workflows.executors.executor import Surroundings
from waypost.workflows.executors.mcp import Mcp
from waypost.workflows.executors.noop import Noop
from waypost.workflows.executors.parallel import Parallel
from waypost.workflows.executors.pipeline import Pipeline
from waypost.workflows.executors.reliability import Supervisable, Supervised
from waypost.workflows.executors.script import Script
from waypost.workflows.executors.worker import Worker
from waypost.workflows.scope import GUARD_ROOTS, NESTED_ROOTS

DEEPEST: Final = 3
"""How many parallel executors may stand inside each other."""


def build(model: models.Executor, surroundings: Surroundings) -> Supervisable:
    """The executor of a model; `DefinitionError` for what cannot work."""
    return _build(model, surroundings, GUARD_ROOTS, 0)


def supervise(model: models.Executor, reliability: models.Reliability | None, surroundings: Surroundings) -> Supervised:
    """The executor of a model with everything that is done about its failures."""
    fallback = reliability and reliability.fallback
    others = [build(other, surroundings) for other in fallback.executors] if fallback else []
    return Supervised(build(model, surroundings), others, reliability)


def is_idempotent(model: models.Executor) -> bool:
    """Whether it may be run again when nobody knows how far it came."""
    return model.idempotent or (bool(inside := _inside(model)) and all(map(is_idempotent, inside)))


def _inside(model: models.Executor) -> list[models.Executor]:
    match model:
        case models.Parallel():
            return [*model.branches, *([model.do] if model.do is not None else [])]
        case models.Pipeline():
            return model.steps
        case _:
            return []


def _build(model: models.Executor, surroundings: Surroundings, roots: frozenset[str], depth: int) -> Supervisable:
    match model:
        case models.Noop():
            return Noop()
        case models.Cli():
            return Cli(model, surroundings, roots)
        case models.Script():
            return Script(model, roots)
        case models.Rest():
            # Loading an HTTP client takes longer than all else a hub needs to start.
            from waypost.workflows.executors.rest import Rest

            return Rest(model, surroundings, roots)
        case models.Mcp():
            return Mcp(model, surroundings, roots)
        case models.CapabilityCall():
            return Capability(model, surroundings, roots)
        case models.WorkerCall():
            return Worker(model, surroundings, roots)
        case models.Child():
            return Child(model, surroundings, roots)
        case models.Human():
            raise DefinitionError("a person can only be waited for by a transition itself")
        case models.Parallel():
            return _parallel(model, surroundings, roots, depth + 1)
        case models.Pipeline():
            return Pipeline(model, [_build(step, surroundings, NESTED_ROOTS, depth) for step in model.steps])


def _parallel(model: models.Parallel, surroundings: Surroundings, roots: frozenset[str], depth: int) -> Parallel:
    if depth > DEEPEST:
        raise DefinitionError(f"parallel executors stand at most {DEEPEST} deep inside each other")
    branches = [_build(branch, surroundings, NESTED_ROOTS, depth) for branch in model.branches]
    do = None if model.do is None else _build(model.do, surroundings, NESTED_ROOTS, depth)
    return Parallel(model, branches, do, roots)
