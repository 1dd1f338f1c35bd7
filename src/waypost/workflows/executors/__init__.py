"""Executors of transitions: one module for each kind, and the table of all kinds.

A kind that is not in the table is added with `register_executor`.
"""

from __future__ import annotations

from typing import Any, Final

from waypost.config.models import Reliability
from waypost.kinds import ExecutorModel
from waypost.workflows.executors.capability import CAPABILITY
from waypost.workflows.executors.cli import CLI
from waypost.workflows.executors.human import HUMAN
from waypost.workflows.executors.kind import (
    Builder,
    Executor,
    ExecutorContext,
    ExecutorFields,
    ExecutorKind,
    Run,
    is_idempotent,
    register_executor,
    unregister_executor,
)
from waypost.workflows.executors.mcp import MCP
from waypost.workflows.executors.noop import NOOP
from waypost.workflows.executors.parallel import PARALLEL
from waypost.workflows.executors.pipeline import PIPELINE
from waypost.workflows.executors.reliability import Supervised
from waypost.workflows.executors.rest import REST
from waypost.workflows.executors.script import SCRIPT
from waypost.workflows.executors.worker import WORKER
from waypost.workflows.executors.workflow import WORKFLOW

__all__ = [
    "EXECUTORS",
    "Builder",
    "Executor",
    "ExecutorContext",
    "ExecutorFields",
    "ExecutorKind",
    "Run",
    "build",
    "is_idempotent",
    "register_executor",
    "supervise",
    "supervise_fallbacks",
    "unregister_executor",
]

EXECUTORS: Final[tuple[ExecutorKind[Any], ...]] = (
    NOOP,
    CLI,
    SCRIPT,
    REST,
    MCP,
    CAPABILITY,
    WORKER,
    HUMAN,
    WORKFLOW,
    PARALLEL,
    PIPELINE,
)
"""The kinds that ship with Waypost."""

for _kind in EXECUTORS:
    register_executor(_kind)


def build(model: ExecutorModel, context: ExecutorContext) -> Executor:
    """The executor of a model; `DefinitionError` for a model that cannot work."""
    return Builder(context).build(model)


def supervise(model: ExecutorModel, reliability: Reliability | None, context: ExecutorContext) -> Supervised:
    """The executor of a model with the retries, timeouts and fallbacks of a reliability."""
    return Supervised(
        build(model, context), _build_fallbacks(reliability, context), reliability, secrets=context.secrets
    )


def supervise_fallbacks(reliability: Reliability | None, context: ExecutorContext) -> Supervised | None:
    """The fallbacks of a reliability alone, for what the engine does itself."""
    fallbacks = _build_fallbacks(reliability, context)
    return Supervised(fallbacks[0], fallbacks[1:], reliability, secrets=context.secrets) if fallbacks else None


def _build_fallbacks(reliability: Reliability | None, context: ExecutorContext) -> list[Executor]:
    fallback = reliability and reliability.fallback
    return [build(other, context) for other in fallback.executors] if fallback else []
