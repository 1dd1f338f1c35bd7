"""The kind `noop`: does nothing."""

from __future__ import annotations

from typing import Any, Final

from waypost.config.models import Idempotent
from waypost.workflows.executors.kind import Executor, ExecutorFields, ExecutorKind, NoWork, Run


class Noop(ExecutorFields, frozen=True, kw_only=True, tag="noop"):
    """Does nothing."""

    idempotent: Idempotent = True


async def _run(run: Run) -> dict[str, Any]:
    """Succeed at once, with an empty output."""
    return {}


NOOP: Final = ExecutorKind(
    model=Noop,
    build=lambda model, builder: Executor("noop", _run),
    plan=lambda model: NoWork(),
    check=None,
    check_place=None,
    names={},
    templates=(),
    asks_person=False,
    mark="",
)
